"""Pods: created in the public pool, shown, restarted, lost and found, each state made by API and agent."""

import datetime as dt
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from rest_framework.test import APIClient

from compute.domain.container_images import why_not_an_image
from compute.models import Claim, GpuPrice, Occupancy, OrgGpuPrice, Run, Workload
from compute.services.agents.pod_recovery import JOB_LOST
from compute.services.lifecycle import interrupt
from nodes.levels import AMD_GRANT, BASE, INFINIBAND
from nodes.models import FabricAddress, GpuUnit, Node, NodeHeartbeat
from nodes.services.fabrics import set_fabric, set_node_fabric
from openrelay.audit.actor import Actor
from openrelay.audit.models import AuditEvent
from openrelay.core import clock
from openrelay.core.clock import Now
from openrelay.identity.models import Organization
from tests import factories
from tests.compute.conftest import World, consistent, refused, run_of, state

pytestmark = pytest.mark.django_db

OPS = Actor("operator:test")
IMAGE = "ghcr.io/acme/trainer:1.4"
AMD = "amd-mi300x-192gb"


def pod_units(number: int, *, gpus: int = 1, model: str = "nvidia-h100-sxm5-80gb") -> list[dict[str, Any]]:
    return [
        factories.unit_report(n, gpus=gpus, model=model, allocClass="device-request") for n in range(number)
    ]


def pod_node(owner: Organization, units: int | list[dict[str, Any]] = 4, **host: Any) -> Node:
    """A node that runs pods."""
    made = factories.node(owner, 0)
    figures = {"cpuCores": 128, "ramMb": 1024 * 1024, "diskTotalGb": 16000, "diskFreeGb": 16000, **host}
    listed = pod_units(units) if isinstance(units, int) else units
    factories.inventory(made, listed, runtime="runc", host=figures)
    return made


@dataclass
class Pods:
    """A world with a node for pods, and what one asks of it."""

    world: World
    node: Node
    keys: dict[Any, str] = field(default_factory=dict)

    def client(self, org: Organization) -> APIClient:
        return self.world.client(org)

    def ask(self, org: Organization | None = None, **body: Any) -> Any:
        org = org or self.world.buyer
        if org.pk not in self.keys:
            self.keys[org.pk] = str(factories.ssh_key(org).pk)
        data = {"image": IMAGE, "sshKeyIds": [self.keys[org.pk]], **body}
        return self.client(org).post("/v1/pods", data)

    def made(self, org: Organization | None = None, **body: Any) -> Workload:
        answer = self.ask(org, **body)
        assert answer.status_code == 200, answer.content
        return Workload.objects.get(pk=answer.json()["id"])

    def running(self, org: Organization | None = None, **body: Any) -> Workload:
        pod = self.made(org, **body)
        self.says((pod, "running"), node=pod.node)
        assert state(pod)[0] == "running"
        return pod

    def stopped(self, org: Organization | None = None, **body: Any) -> Workload:
        pod = self.running(org, **body)
        assert self.act(pod, "stop").status_code == 200
        self.says((pod, "gone"), node=pod.node)
        pod.refresh_from_db()
        return pod

    def says(self, *guests: Any, node: Node | None = None, **fields: Any) -> Any:
        return self.world.says(*guests, node=node or self.node, **fields)

    def level(self, level: int, node: Node | None = None) -> None:
        """Have the node's agent say from now on that it is of that level."""
        agent = self.world.agent(node or self.node)
        agent._credentials["HTTP_OPENRELAY_AGENT_LEVEL"] = str(level)
        assert agent.get("/v1/agent/work").status_code == 200

    def act(self, pod: Workload, verb: str, **body: Any) -> Any:
        return self.client(pod.organization).post(f"/v1/vms/{pod.pk}/{verb}", body)

    def spec(self, pod: Workload) -> dict[str, Any]:
        spec: dict[str, Any] = self.world.work(pod.node)[str(pod.pk)]["spec"]
        return spec

    def capacity(self, org: Organization | None = None) -> list[dict[str, Any]]:
        answer = self.client(org or self.world.buyer).get("/v1/pods/capacity")
        assert answer.status_code == 200, answer.content
        items: list[dict[str, Any]] = answer.json()["items"]
        return items


@pytest.fixture
def pods(world: World) -> Pods:
    return Pods(world, pod_node(world.provider))


def fabric(*nodes: Node, network: str = "10.40.0.0/30") -> Any:
    """A fabric (of two addresses) that the nodes are on."""
    made = set_fabric("ib-1", name="InfiniBand 1", networks=[network], actor=OPS)
    for node in nodes:
        set_node_fabric(node.pk, made, actor=OPS)
    return made


def on_infiniband(org: Organization) -> None:
    Organization.objects.filter(pk=org.pk).update(infiniband_enabled=True)


# Creating


def test_a_pod_is_made_with_the_defaults(pods: Pods) -> None:
    answer = pods.ask()
    assert answer.status_code == 200, answer.content
    said = answer.json()
    assert said["name"].startswith("pod-")
    expected = {
        "status": "deploying",
        "organizationId": str(pods.world.buyer.pk),
        "capabilityTier": "pod",
        "computeClass": "on_demand",
        "tier": "community",
        "gpuCount": 1,
        "volumeGb": 50,
        "diskSizeGb": 50,
        "imageUrl": IMAGE,
        "public": False,
        "pricePerHourCents": 200,
        "gpuModelName": "NVIDIA H100 SXM5 80 GB",
        "gpuManufacturer": "NVIDIA",
        "provisioningStage": "scheduled",
    }
    assert {name: said.get(name) for name in expected} == expected
    pod = Workload.objects.get(pk=said["id"])
    assert (pod.kind, pod.container_port, pod.node_id) == ("pod", 80, pods.node.pk)
    event = AuditEvent.objects.get(event="vm.created", target_id=said["id"])
    assert event.after["nodeId"] == str(pods.node.pk)
    consistent()


def test_everything_asked_for_is_kept_and_handed_to_the_node(pods: Pods) -> None:
    model = factories.gpu_model()
    pod = pods.made(
        name="trainer",
        gpuCount=2,
        gpuModelId=str(model.pk),
        computeClass="reserved",
        httpPort=8888,
        volumeGb=300,
        shmSizeGb=64,
        envVars={"MODE": "train", "EMPTY": ""},
        public=True,
    )
    assert (pod.compute_class, pod.disk_size_gb, pod.requested_shm_gb) == ("on_demand", 300, 64)
    spec = pods.spec(pod)
    expected = {
        "name": "trainer",
        "kind": "pod",
        "gpuCount": 2,
        "imageUrl": IMAGE,
        "containerPort": 8888,
        "diskSizeGb": 300,
        "volumeMountPath": "/workspace",
        "shmMb": 64 * 1024,
        "envVars": {"MODE": "train", "EMPTY": ""},
        "public": True,
    }
    assert {name: spec.get(name) for name in expected} == expected
    assert len(spec["sshKeys"]) == 1
    assert len(pods.world.work(pod.node)[str(pod.pk)]["units"]) == 2


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        ({"image": "https://ghcr.io/a"}, "VALIDATION_ERROR", "image"),
        ({"image": "UPPER"}, "VALIDATION_ERROR", "image"),
        ({"image": ""}, "VALIDATION_ERROR", "image"),
        ({"image": None}, "VALIDATION_ERROR", "image"),
        ({"sshKeyIds": []}, "VALIDATION_ERROR", "sshKeyIds"),
        ({"sshKeyIds": ["0198c0de-0000-7000-8000-000000000000"]}, "VALIDATION_ERROR", "sshKeyIds"),
        ({"gpuCount": 0}, "VALIDATION_ERROR", "gpuCount"),
        ({"gpuCount": 9}, "GPU_COUNT_NOT_ALLOCATABLE", "1, 2, 3, 4"),
        ({"gpuModelId": "x"}, "VALIDATION_ERROR", "gpuModelId"),
        ({"computeClass": "interruptible"}, "COMPUTE_CLASS_RETIRED", "on_demand"),
        ({"computeClass": "cheap"}, "VALIDATION_ERROR", "computeClass"),
        ({"httpPort": 65536}, "VALIDATION_ERROR", "httpPort"),
        ({"volumeGb": 0}, "VALIDATION_ERROR", "volumeGb"),
        ({"volumeGb": 4001}, "POD_ADMISSION_FAILED", "volumeGb"),
        ({"shmSizeGb": 0}, "VALIDATION_ERROR", "shmSizeGb"),
        ({"shmSizeGb": 200}, "POD_ADMISSION_FAILED", "shmSizeGb"),
        ({"envVars": {"A=B": "x"}}, "VALIDATION_ERROR", "envVars"),
        ({"nodeId": "0198c0de-0000-7000-8000-000000000000"}, "VALIDATION_ERROR", "nodeId"),
        ({"tier": "spot"}, "VALIDATION_ERROR", "tier"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(pods: Pods, body: Any, code: str, word: str) -> None:
    refused(pods.ask(**body), 400, code, word)
    assert not Workload.objects.exists()
    assert not Claim.objects.exists()


def test_pods_and_vms_keep_to_their_own_hardware(pods: Pods) -> None:
    for _ in range(4):
        assert pods.made().node_id == pods.node.pk
    refused(pods.ask(), 503, "INSUFFICIENT_GPU_CAPACITY", "None would fit")
    assert pods.world.vm(pods.world.buyer).node_id == pods.world.node.pk
    # One that does not run pods is no place for them, whatever its units say.
    odd = factories.node(pods.world.provider, pod_units(4))
    assert odd.runtime == "qemu"
    refused(pods.ask(), 503, "INSUFFICIENT_GPU_CAPACITY")


def test_a_pod_goes_where_the_fewest_gpus_are_left_and_counts_are_met_exactly(world: World) -> None:
    small = pod_node(world.provider, 2)
    large = pod_node(world.provider, pod_units(4, gpus=2))
    pods = Pods(world, large)
    assert pods.made().node_id == small.pk
    assert pods.made(gpuCount=2).node_id == large.pk
    refused(pods.ask(gpuCount=3), 400, "GPU_COUNT_NOT_ALLOCATABLE", "1, 2, 4, 6, 8")
    refused(pods.ask(gpuCount=8), 503, "INSUFFICIENT_GPU_CAPACITY", "At most 6")


def test_reserved_units_serve_no_pod_that_names_no_node(pods: Pods) -> None:
    reservation = pods.world.reserve(0, 1, 2, node=pods.node)
    for org in (pods.world.tenant, pods.world.buyer):
        refused(pods.ask(org, gpuCount=2), 400, "GPU_COUNT_NOT_ALLOCATABLE", "Possible are 1.")
    pods.world.release(reservation, 0)
    refused(pods.ask(gpuCount=2), 400, "GPU_COUNT_NOT_ALLOCATABLE", "Possible are 1.")
    assert pods.made().node_id == pods.node.pk


def test_a_model_that_is_not_sold_is_not_placed(pods: Pods) -> None:
    GpuPrice.objects.filter(tier="community").delete()
    refused(pods.ask(), 503, "INSUFFICIENT_GPU_CAPACITY")
    refused(pods.ask(gpuModelId=str(factories.gpu_model().pk)), 400, "VALIDATION_ERROR", "not sold")


def test_shared_memory_by_default(world: World) -> None:
    """Half of the memory when alone, 2 GiB a GPU of several on a shared node, else the runtime's."""
    pods = Pods(world, pod_node(world.provider, 4))
    one, two = pods.made(), pods.made(gpuCount=2)
    assert (one.shm_mb, two.shm_mb) == (None, 4096)
    assert "shmMb" not in pods.spec(one)
    pods.act(one, "terminate")
    pods.act(two, "terminate")
    pods.says((one, "gone"), (two, "gone"))
    whole = pods.made(gpuCount=4)
    assert whole.guest_mem_mb is not None
    assert whole.shm_mb == whole.guest_mem_mb // 2
    pods.act(whole, "terminate")
    pods.says((whole, "gone"))
    most = pods.made().guest_mem_mb // 2 // 1024
    assert pods.made(shmSizeGb=most).shm_mb == most * 1024
    refused(pods.ask(shmSizeGb=most + 1), 400, "POD_ADMISSION_FAILED", f"above {most},")


def test_two_gib_a_gpu_is_capped_by_half_of_the_memory(world: World) -> None:
    pods = Pods(world, pod_node(world.provider, 4, ramMb=16 * 1024))
    pod = pods.made(gpuCount=2)
    assert pod.shm_mb == pod.guest_mem_mb // 2 < 4096


def test_volumes_count_on_their_host(world: World) -> None:
    pods = Pods(world, pod_node(world.provider, 4, diskTotalGb=400, diskFreeGb=400))
    pods.stopped(volumeGb=100)
    pods.stopped(volumeGb=100)
    pods.stopped(volumeGb=100)
    pods.stopped(volumeGb=60)
    refused(pods.ask(), 503, "INSUFFICIENT_HOST_CAPACITY")
    assert pods.capacity()[0]["freeUnits"] == 0
    assert pods.ask(volumeGb=40).status_code == 200


def test_an_idempotency_key_makes_one_pod(pods: Pods) -> None:
    client = pods.client(pods.world.buyer)
    key = str(factories.ssh_key(pods.world.buyer).pk)
    body = {"image": IMAGE, "sshKeyIds": [key]}
    first, again = (client.post("/v1/pods", body, headers={"Idempotency-Key": "one"}) for _ in range(2))
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    other = client.post("/v1/pods", {**body, "gpuCount": 2}, headers={"Idempotency-Key": "one"})
    refused(other, 422, "IDEMPOTENCY_KEY_REUSED")
    assert Workload.objects.count() == 1


# Agents' levels, and InfiniBand


def test_amd_gpus_need_an_agent_that_grants_them(world: World) -> None:
    factories.gpu_model(AMD, name="AMD MI300X", manufacturer="AMD", vram_gb=192)
    pods = Pods(world, pod_node(world.provider, pod_units(2, model=AMD)))
    pods.level(AMD_GRANT - 1)
    refused(pods.ask(), 503, "INSUFFICIENT_GPU_CAPACITY")
    assert [(row["freeUnits"], row["totalUnits"]) for row in pods.capacity()] == [(0, 2)]
    pods.level(AMD_GRANT)
    assert pods.capacity()[0]["freeUnits"] == 2
    assert pods.made().node_id == pods.node.pk


def test_an_organization_on_infiniband_gets_an_address_or_another_node(pods: Pods) -> None:
    fabric(pods.node)
    on_infiniband(pods.world.buyer)
    refused(pods.ask(), 503, "INSUFFICIENT_GPU_CAPACITY")
    pods.level(INFINIBAND)
    first, second = pods.made(), pods.made()
    assert {pods.spec(pod)["fabricAddress"] for pod in (first, second)} == {"10.40.0.1", "10.40.0.2"}
    refused(pods.ask(), 503, "INSUFFICIENT_IP_CAPACITY", "InfiniBand")
    assert pods.capacity()[0]["freeUnits"] == 0
    assert Workload.objects.count() == 2
    # Others are not on it, and take none.
    assert pods.capacity(pods.world.tenant)[0]["freeUnits"] == 2
    assert "fabricAddress" not in pods.spec(pods.made(pods.world.tenant))
    # An address is free once the guest that had it is gone, not before.
    pods.act(first, "terminate")
    refused(pods.ask(), 503, "INSUFFICIENT_IP_CAPACITY")
    pods.says((first, "gone"))
    assert pods.spec(pods.made())["fabricAddress"] == "10.40.0.1"
    assert FabricAddress.objects.filter(holder=None).count() == 0


# Reading


def test_the_list_has_the_organizations_live_pods_and_no_vms(pods: Pods) -> None:
    first, second, third = pods.made(), pods.running(), pods.stopped()
    vm = pods.world.vm(pods.world.buyer)
    pods.made(pods.world.tenant)
    pods.act(first, "terminate")
    client = pods.client(pods.world.buyer)
    page = client.get("/v1/pods", {"limit": 1}).json()
    rest = client.get("/v1/pods", {"limit": 1, "cursor": page["nextCursor"]}).json()
    assert [row["id"] for row in (*page["items"], *rest["items"])] == [str(third.pk), str(second.pk)]
    assert "nextCursor" not in rest
    vms = client.get(f"/v1/orgs/{pods.world.buyer.pk}/vms").json()["items"]
    assert [row["id"] for row in vms] == [str(vm.pk)]
    assert client.get("/v1/pods", {"cursor": "x"}).status_code == 400
    assert client.get("/v1/pods", {"limit": 0}).status_code == 400


def test_the_detail_has_the_volume_and_the_hosts_disk(pods: Pods) -> None:
    pod = pods.running(volumeGb=70)
    run = pod.runs.get()
    pods.says(
        node=pod.node,
        guests=[{"runId": str(run.pk), "state": "running", "diskUsedBytes": 123, "console": "hello\n"}],
    )
    client = pods.client(pods.world.buyer)
    said = client.get(f"/v1/vms/{pod.pk}/detail").json()
    expected = {
        "capabilityTier": "pod",
        "computeClass": "on_demand",
        "volumeGb": 70,
        "volumeMountPath": "/workspace",
        "volumeUsedBytes": 123,
        "hostDiskTotalGb": 16000,
        "hostDiskFreeGb": 16000,
        "containerPort": 80,
        "healthy": True,
    }
    assert {name: said.get(name) for name in expected} == expected
    assert said["volumeUsedAt"]
    assert "diskUsedBytes" not in said
    logs = client.get(f"/api/nomad/pods/{pod.pk}/logs").json()
    assert logs == {"found": True, "content": "hello\n"}


# Restarting


def test_a_running_pod_is_recreated_in_place(pods: Pods) -> None:
    pod = pods.running()
    answer = pods.act(pod, "restart")
    assert (answer.status_code, answer.json()["status"]) == (200, "running")
    assert answer.json()["statusReason"] == "user_restarted"
    work = pods.world.work(pods.node)[str(pod.pk)]
    assert (work["reboots"], work["number"]) == (1, 1)


def test_a_stopped_pod_starts_again_where_its_volume_is(pods: Pods) -> None:
    other = pod_node(pods.world.provider, 1)
    pod = pods.stopped(gpuCount=2, shmSizeGb=3)
    assert pod.node_id == pods.node.pk
    answer = pods.act(pod, "restart")
    assert (answer.status_code, answer.json()["status"]) == (200, "deploying"), answer.content
    pods.says((pod, "running"))
    assert state(pod) == ("running", "")
    assert (pod.node_id, pod.shm_mb, pod.disk_size_gb) == (pods.node.pk, 3072, 50)
    assert other.pk != pod.node_id
    consistent()


def test_a_failed_pod_says_why_and_starts_again(pods: Pods) -> None:
    pod = pods.made()
    run = pod.runs.get()
    pods.says(guests=[{"runId": str(run.pk), "state": "failed", "message": "no such image\n here"}])
    assert state(pod) == ("failed", "container failed to start: no such image here")
    assert pods.act(pod, "restart").status_code == 200
    consistent()


def test_restart_503_when_its_gpus_are_taken(pods: Pods) -> None:
    pod = pods.stopped(gpuCount=2)
    for _ in range(3):
        pods.running(pods.world.tenant)
    refused(pods.act(pod, "restart"), 503, "POD_NODE_BUSY", "needs 2 free GPUs", "1", "volume")
    assert state(pod)[0] == "stopped"


def test_restart_503_when_a_running_pods_gpu_failed(pods: Pods) -> None:
    pod = pods.running()
    address = Claim.objects.get(workload=pod).unit.address
    reported = pod_units(4)
    for unit in reported:
        unit["gpus"][0]["healthy"] = unit["address"] != address
    factories.inventory(pods.node, reported, runtime="runc")
    refused(pods.act(pod, "restart"), 503, "POD_NODE_BUSY", address, "Stop it and start it again")
    for _ in range(3):
        pods.running(pods.world.tenant)
    refused(pods.act(pod, "restart"), 503, "POD_NODE_BUSY", address, "would not help")
    assert state(pod)[0] == "running"


def test_restart_503_when_the_fabric_has_no_address(pods: Pods) -> None:
    second = pod_node(pods.world.provider, 4)
    fabric(pods.node, second)
    for node in (pods.node, second):
        pods.level(INFINIBAND, node)
    on_infiniband(pods.world.buyer)
    pod = pods.stopped()
    assert not FabricAddress.objects.filter(holder=pod.pk).exists()
    kept, other = pods.made(), pods.made()
    refused(pods.act(pod, "restart"), 503, "INSUFFICIENT_IP_CAPACITY", "volume")
    assert state(pod) == ("stopped", "user_stopped")
    assert Claim.objects.count() == 2
    pods.act(other, "terminate")
    pods.says((other, "gone"), (kept, "running"), node=other.node)
    assert pods.act(pod, "restart").status_code == 200
    assert pods.spec(pod)["fabricAddress"]


def test_restart_409_while_the_node_is_offline(pods: Pods, clock: Any) -> None:
    stopped, running = pods.stopped(), pods.running()
    clock.advance(1000)
    for pod in (stopped, running):
        refused(pods.act(pod, "restart"), 409, "POD_NODE_OFFLINE")
    factories.online(pods.node)
    for pod in (stopped, running):
        assert pods.act(pod, "restart").status_code == 200


def test_restart_409_while_the_earlier_run_is_torn_down(pods: Pods) -> None:
    pod = pods.running()
    pods.act(pod, "stop")
    refused(pods.act(pod, "restart"), 409, "POD_STOPPING", pod.name)
    pods.says((pod, "gone"))
    assert pods.act(pod, "restart").status_code == 200


def test_restart_409_when_the_agent_is_older_than_infiniband(pods: Pods) -> None:
    pod = pods.stopped()
    on_infiniband(pods.world.buyer)
    pods.level(BASE)
    refused(pods.act(pod, "restart"), 409, "POD_NODE_NO_INFINIBAND", "InfiniBand")
    pods.level(INFINIBAND)
    assert pods.act(pod, "restart").status_code == 200


def test_restart_409_when_the_agent_cannot_grant_amd(world: World) -> None:
    factories.gpu_model(AMD, name="AMD MI300X", manufacturer="AMD", vram_gb=192)
    pods = Pods(world, pod_node(world.provider, pod_units(2, model=AMD)))
    pods.level(AMD_GRANT)
    pod = pods.made()
    pods.says((pod, "running"), node=pods.node)
    pods.act(pod, "stop")
    pods.says((pod, "gone"))
    pods.level(INFINIBAND)
    refused(pods.act(pod, "restart"), 409, "POD_NODE_NO_AMD_GRANT", "AMD")
    pods.level(AMD_GRANT)
    assert pods.act(pod, "restart").status_code == 200


def test_restart_409_in_any_other_state(pods: Pods, clock: Any) -> None:
    deploying, ended = pods.made(), pods.made()
    pods.act(ended, "terminate")
    lost = pods.running()
    pods.says((lost, "gone"))
    assert state(lost)[0] == "interrupted"
    for pod in (deploying, ended, lost):
        pod.refresh_from_db()
        refused(pods.act(pod, "restart"), 409, "INVALID_STATE", pod.status)


def test_a_pod_keeps_its_volumes_size(pods: Pods) -> None:
    refused(pods.act(pods.stopped(), "resize-disk", newSizeGb=500), 400, "VALIDATION_ERROR", "pod")


def test_pods_stop_where_vms_may_not(pods: Pods) -> None:
    pod, vm = pods.running(), pods.world.running(pods.world.buyer)
    Organization.objects.filter(pk=pods.world.buyer.pk).update(stop_enabled=False)
    assert pods.act(pod, "stop").status_code == 200
    refused(pods.act(vm, "stop"), 409, "STOP_DISABLED")


# Lost jobs


def test_a_pod_that_lost_its_job_is_interrupted_and_started_again_on_its_gpus(pods: Pods) -> None:
    fabric(pods.node)
    pods.level(INFINIBAND)
    on_infiniband(pods.world.buyer)
    pod = pods.running(gpuCount=2)
    units = set(Claim.objects.filter(workload=pod).values_list("unit_id", flat=True))
    pods.says((pod, "gone"))
    assert state(pod)[0] == "interrupted"
    work = pods.world.work(pods.node)[str(pod.pk)]
    assert (work["number"], work["desired"], len(work["units"]), work["waitsFor"]) == (2, "running", 2, [])
    assert work["spec"]["fabricAddress"]
    assert set(Claim.objects.filter(workload=pod).values_list("unit_id", flat=True)) == units
    assert Occupancy.objects.open().count() == 2
    consistent()
    pods.says((pod, "running"))
    assert state(pod) == ("running", "")
    assert pod.interrupted_at is None
    # What is said of the run that was lost changes nothing any more.
    pods.says((pod.runs.get(number=1).pk, "gone"), (pod, "running"))
    assert Run.objects.filter(workload=pod).count() == 2


@pytest.mark.parametrize("how", ["lost", "stopped"])
def test_an_earlier_run_that_turns_up_and_goes_again_leaves_the_address_to_the_next(
    pods: Pods, how: str
) -> None:
    fabric(pods.node)
    pods.level(INFINIBAND)
    on_infiniband(pods.world.buyer)
    if how == "lost":
        pod = pods.running()
        pods.says((pod, "gone"))
    else:
        pod = pods.stopped()
        assert pods.act(pod, "restart").status_code == 200
    address = pods.spec(pod)["fabricAddress"]
    first = pod.runs.get(number=1).pk
    for said in ("running", "gone"):
        pods.says((first, said), (pod, "running"))
    assert pods.spec(pod)["fabricAddress"] == address
    other = pods.made()
    assert pods.spec(other)["fabricAddress"] != address
    # Its last run's end gives it back.
    pods.act(pod, "terminate")
    pods.says((pod, "gone"))
    assert not FabricAddress.objects.filter(holder=pod.pk).exists()


def test_why_there_are_no_metrics_of_a_pod(pods: Pods, world: World, clock: Any) -> None:
    def told(range_: str = "1h") -> tuple[str, str]:
        answer = world.client(world.buyer).get(f"/v1/vms/{pod.pk}/metrics", {"range": range_})
        assert answer.status_code == 200, answer.content
        assert answer.json()["gpus"] == []
        found = answer.json()["accelerator"]
        assert found["detail"]
        return found["status"], found["reason"]

    clock.freeze()
    pod = pods.made(world.buyer)
    assert told() == ("unavailable", "guest_not_started")
    world.says((pod, "running"), node=pods.node)
    # It has GPUs that could be read, and nothing here that reads them.
    assert told() == ("degraded", "source_unreachable")
    pods.act(pod, "stop")
    assert told() == ("degraded", "source_unreachable")
    clock.advance(3600)
    assert told() == ("unavailable", "no_session_in_range")
    assert told("6h") == ("degraded", "source_unreachable")


def test_a_pod_that_is_given_up_blames_its_node_only_where_that_was_lost(
    pods: Pods, world: World, clock: Any
) -> None:
    clock.freeze()
    lost, silent = pods.running(world.buyer), pods.running(world.buyer)
    world.says((lost, "gone"), (silent, "running"), node=pods.node)
    clock.advance(200)
    assert interrupt.interrupt_lost(pods.node.pk) == [silent]
    clock.advance(7 * 86400)
    for pod in (lost, silent):
        assert interrupt.expire_interrupted(pod.pk)
    assert state(silent) == ("terminated", "node_lost")
    assert state(lost) == ("terminated", interrupt.JOB_GIVEN_UP)


def test_the_disk_of_a_silent_host_is_not_known(pods: Pods, world: World) -> None:
    pod = pods.running(world.buyer)
    shown = world.client(world.buyer).get(f"/v1/vms/{pod.pk}/detail").json()
    assert (shown["hostDiskTotalGb"], shown["hostDiskFreeGb"]) == (16000, 16000)
    NodeHeartbeat.objects.filter(node=pods.node).update(seen_at=Now() - dt.timedelta(hours=1))
    shown = world.client(world.buyer).get(f"/v1/vms/{pod.pk}/detail").json()
    assert not {"hostDiskTotalGb", "hostDiskFreeGb"} & shown.keys()


def test_a_pod_that_waits_for_its_job_does_not_blame_its_node(pods: Pods, world: World) -> None:
    pod = pods.running(world.buyer)
    world.says((pod, "gone"), node=pods.node)
    assert state(pod)[0] == "interrupted"
    detail = world.client(world.buyer).get(f"/v1/vms/{pod.pk}/detail").json()
    assert detail["sshState"] == "offline"
    assert "offline" not in detail["sshStateReason"]
    assert "started again" in detail["sshStateReason"]
    # One whose node is silent still has it told so.
    made = world.running(world.buyer)
    NodeHeartbeat.objects.filter(node=world.node).update(seen_at=Now() - dt.timedelta(hours=1))
    assert interrupt.interrupt_lost(world.node.pk) == [made]
    detail = world.client(world.buyer).get(f"/v1/vms/{made.pk}/detail").json()
    assert "node is offline" in detail["sshStateReason"]


@pytest.mark.parametrize("first", ["starting", None])
def test_a_container_that_does_not_come_up_again_says_so(pods: Pods, world: World, first: str | None) -> None:
    pod = pods.running(world.buyer)
    world.says((pod, "gone"), node=pods.node)
    if first:
        world.says((pod, first), node=pods.node)
    world.says(guests=[{"runId": run_of(pod), "state": "failed", "message": "no such image"}], node=pods.node)
    assert state(pod) == ("failed", "container failed to start: no such image")
    # And one that is made anew in place, as by a restart while it runs.
    again = pods.running(world.buyer)
    assert pods.act(again, "restart").status_code == 200
    world.says((again, "starting"), node=pods.node)
    world.says(
        guests=[{"runId": run_of(again), "state": "failed", "message": "no such image"}], node=pods.node
    )
    assert state(again) == ("failed", "container failed to start: no such image")
    # One that ran and failed did start.
    third = pods.running(world.buyer)
    world.says(guests=[{"runId": run_of(third), "state": "failed", "message": "exit 3"}], node=pods.node)
    assert state(third) == ("failed", "exit 3")


def test_a_node_that_went_silent_and_lost_its_pods_starts_them_again(pods: Pods, clock: Any) -> None:

    pod = pods.running()
    clock.advance(1000)
    for node_id in interrupt.lost_node_ids():
        interrupt.interrupt_lost(node_id)
    assert state(pod) == ("interrupted", "node_lost")
    pods.says((pod, "gone"))
    assert state(pod) == ("interrupted", JOB_LOST)
    events = AuditEvent.objects.filter(target_id=pod.pk).order_by("id").values_list("event", flat=True)
    assert list(events)[-2:] == ["vm.interrupted", "vm.job_lost"]
    pods.says((pod, "running"))
    assert state(pod)[0] == "running"
    consistent()


def test_a_pod_that_was_stopped_is_not_started_again(pods: Pods) -> None:
    pod = pods.running()
    pods.act(pod, "stop")
    pods.says((pod, "gone"))
    assert state(pod) == ("stopped", "user_stopped")
    assert pods.world.work(pods.node) == {}


def test_a_container_that_ends_by_itself_stops_its_pod(pods: Pods) -> None:
    pod = pods.running()
    pods.says((pod, "stopped"))
    assert state(pod) == ("stopped", "vm_exited")
    assert not Claim.objects.exists()


# Capacity


def test_capacity_by_model_with_the_organizations_price(world: World) -> None:
    factories.gpu_model(AMD, name="AMD MI300X", manufacturer="AMD", vram_gb=192)
    nvidia = factories.gpu_model()
    pods = Pods(world, pod_node(world.provider, pod_units(4)))
    twos = pod_node(world.provider, pod_units(3, gpus=2))
    mixed = pod_node(world.provider, pod_units(2, model=AMD))
    pods.level(AMD_GRANT, mixed)
    OrgGpuPrice.objects.create(
        organization=world.buyer,
        gpu_model=nvidia,
        tier="community",
        cents_per_gpu_hour=150,
        updated_at=clock.read(),
    )
    assert pods.capacity() == [
        {
            "gpuModelId": str(factories.gpu_model(AMD).pk),
            "name": "AMD MI300X",
            "manufacturer": "AMD",
            "vramGb": 192,
            "freeUnits": 2,
            "totalUnits": 2,
            "maxGpuCount": 2,
            **dict.fromkeys(RATES, 200),
        },
        {
            "gpuModelId": str(nvidia.pk),
            "name": nvidia.name,
            "manufacturer": "NVIDIA",
            "vramGb": 80,
            "freeUnits": 7,
            "totalUnits": 7,
            "maxGpuCount": 6,
            **dict.fromkeys(RATES, 150),
        },
    ]
    pods.made(gpuCount=4, gpuModelId=str(nvidia.pk))
    Node.objects.filter(pk=twos.pk).update(owner_hold="maintenance")
    row = pods.capacity()[1]
    assert (row["freeUnits"], row["totalUnits"], row["maxGpuCount"]) == (0, 4, 0)


def test_capacity_is_of_nodes_that_can_connect_the_organizations_pods(pods: Pods) -> None:
    def units(org: Organization) -> tuple[int, int]:
        (row,) = pods.capacity(org)
        return row["freeUnits"], row["totalUnits"]

    fabric(pods.node)
    on_infiniband(pods.world.buyer)
    assert (units(pods.world.buyer), units(pods.world.tenant)) == ((0, 4), (4, 4))
    pods.level(INFINIBAND)
    assert units(pods.world.buyer) == (4, 4)
    pods.made()
    pods.made()
    assert (units(pods.world.buyer), units(pods.world.tenant)) == ((0, 4), (2, 4))


RATES = ("rateOnDemandCentsPerHour", "rateReservedCentsPerHour", "rateInterruptibleCentsPerHour")


@pytest.mark.parametrize("seed", range(6))
def test_capacity_is_what_creates_could_be_granted(world: World, seed: int) -> None:
    dice = random.Random(seed)
    nodes = []
    for _ in range(dice.randint(1, 3)):
        listed = [
            factories.unit_report(n, gpus=dice.choice([1, 1, 2]), allocClass="device-request")
            for n in range(dice.randint(1, 4))
        ]
        for unit in listed:
            unit["sellable"] = dice.random() > 0.1
            unit["gpus"][-1]["healthy"] = dice.random() > 0.1
        nodes.append(pod_node(world.provider, listed, diskTotalGb=dice.choice([120, 16000])))
    pods = Pods(world, nodes[0])
    for node in nodes:
        first = GpuUnit.objects.get(node=node, address=factories.address(0))
        if dice.random() < 0.3 and first.sellable and not first.gpus.filter(failed_at__isnull=False):
            world.reserve(0, node=node)
        if dice.random() < 0.2:
            Node.objects.filter(pk=node.pk).update(owner_hold="maintenance")
        elif dice.random() < 0.2:
            NodeHeartbeat.objects.filter(node=node).update(seen_at=None)
    for _ in range(dice.randint(0, 3)):
        answer = pods.ask(gpuCount=dice.randint(1, 2))
        if answer.status_code == 200 and dice.random() < 0.5:
            pods.client(world.buyer).post(f"/v1/vms/{answer.json()['id']}/terminate")
    factories.online(*[node for node in nodes if NodeHeartbeat.objects.get(node=node).seen_at])
    shown = pods.capacity()
    most = shown[0]["maxGpuCount"] if shown else 0
    granted = 0
    for count in range(8, 0, -1):
        answer = pods.ask(gpuCount=count)
        if answer.status_code == 200:
            granted = count
            break
        assert answer.status_code in (400, 503), answer.content
    assert granted == most
    consistent()


# The form of references


@pytest.mark.parametrize(
    "reference",
    [
        "ubuntu",
        "ubuntu:24.04",
        "library/ubuntu",
        "ghcr.io/acme/trainer:1.4",
        "localhost/a",
        "localhost:5000/a/b__c-d.e--f:v1_2.3-x",
        "registry.example.com:443/team/app@sha256:" + "a" * 64,
        "app:tag@sha256:" + "0" * 64,
        "[::1]:5000/app",
        "Registry.Example/app",
        "a" * 255,
        "a:" + "t" * 128,
        "nvcr.io/nvidia/pytorch:24.10-py3",
    ],
)
def test_references_of_images(reference: str) -> None:
    assert why_not_an_image(reference) == ""


@pytest.mark.parametrize(
    "reference",
    [
        "",
        " ",
        "Ubuntu",
        "ubuntu:",
        "ubuntu: latest",
        "ubuntu:la/test:x",
        "ubuntu:" + "t" * 129,
        "ubuntu:-x",
        "https://ghcr.io/a/b",
        "ghcr.io/",
        "/a",
        "a//b",
        "a/",
        "a..b",
        "a___b",
        "-a",
        "a-",
        "a b",
        "a\nb",
        "a\n",
        "a@",
        "a@sha256:abc",
        "a@sha256:" + "A" * 64,
        "a@sha256:" + "a" * 63,
        "a@" + "a" * 64,
        "a@sha256:" + "a" * 64 + "@x",
        "a" * 64,
        "a" * 256,
        "ghcr.io:/a",
        "-x.io/a",
        "x..io/a",
        "héllo",
        "a$b",
        "a;rm",
        "../a",
    ],
)
def test_what_is_no_reference_of_an_image(reference: str) -> None:
    assert why_not_an_image(reference)
