"""The life of a pod by the published client, on the running server, with a real agent process."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from compute.models import Claim, Occupancy, Workload
from nodes.levels import INFINIBAND
from nodes.models import Node, NodeHeartbeat
from tests import factories
from tests.compute.conftest import consistent
from tests.compute.test_life_by_client import By, given, is_
from tests.compute.test_over_http import Agent, Site, at_once, eventually
from tests.compute.test_pods import IMAGE, fabric, on_infiniband, pod_node, pod_units
from tests.support.web import Server

pytestmark = pytest.mark.slow


class PodSite(Site):
    """A site whose node runs pods."""

    def __init__(self, server: Server, units: int = 4) -> None:
        super().__init__(server, 0)
        Node.objects.filter(pk=self.node.pk).delete()
        self.node = pod_node(self.provider, units)
        self.credential = factories.credential(self.node)


class PodAgent(Agent):
    """The agent of a node that runs pods."""

    def write(self, units: int = 4, **entry: Any) -> None:
        inventory = {
            "runtime": "runc",
            "host": {"cpuCores": 128, "ramMb": 1024 * 1024, "diskTotalGb": 16000, "diskFreeGb": 16000},
            "units": pod_units(units),
        }
        super().write(**{"inventory": inventory, **entry})


@pytest.fixture
def agent(server: Server, tmp_path: Path) -> Iterator[PodAgent]:
    agent = PodAgent(PodSite(server), tmp_path)
    agent.start()
    yield agent
    agent.kill()


def test_a_pod_lives_by_the_published_client(agent: PodAgent, sdk: ModuleType) -> None:
    by = By(sdk, agent.site)
    models = by.models
    body = models.CreatePodRequest(
        image=IMAGE,
        ssh_key_ids=[str(agent.site.key.pk)],
        gpu_count=2,
        volume_gb=80,
        http_port=8888,
        env_vars=models.CreatePodRequestEnvVars.from_dict({"MODE": "train"}),
    )
    (before,) = by("pods.list_pod_capacity").items
    assert (before.free_units, before.total_units, before.max_gpu_count) == (4, 4, 4)
    assert before.rate_on_demand_cents_per_hour == before.rate_reserved_cents_per_hour == 200
    assert (before.manufacturer, before.vram_gb) == ("NVIDIA", 80)

    pod = by("pods.create_pod", body=body, idempotency_key="pod-1")
    assert by("pods.create_pod", body=body, idempotency_key="pod-1").id == pod.id
    assert given(pod) >= {
        "capability_tier",
        "compute_class",
        "created_at",
        "gpu_count",
        "gpu_manufacturer",
        "gpu_model_id",
        "gpu_model_name",
        "image_url",
        "price_per_hour_cents",
        "provisioning_stage",
        "public",
        "tier",
        "volume_gb",
    }
    assert (pod.capability_tier, pod.compute_class, pod.volume_gb) == ("pod", "on_demand", 80)
    (after,) = by("pods.list_pod_capacity").items
    assert (after.free_units, after.total_units, after.max_gpu_count) == (2, 4, 2)
    eventually(is_(by, pod.id, "running"))
    eventually(lambda: by("vms.get_vm_detail", pod.id).ssh_ready)
    detail = by("vms.get_vm_detail", pod.id)
    assert given(detail) >= {
        "capability_tier",
        "compute_class",
        "container_port",
        "gpu_info",
        "guest_mem_mb",
        "guest_vcpu",
        "host_disk_free_gb",
        "host_disk_total_gb",
        "image_url",
        "non_billable",
        "ssh_command",
        "started_at",
        "volume_gb",
        "volume_mount_path",
        "volume_used_at",
        "volume_used_bytes",
    }
    assert not given(detail) & {"disk_used_bytes", "template_info", "os_type", "terminated_at"}
    assert (detail.volume_mount_path, detail.volume_gb, detail.healthy) == ("/workspace", 80, True)
    assert [row.id for row in by("pods.list_pods").items] == [pod.id]
    assert by("vms.list_org_vms", by.org).items == []
    eventually(lambda: "/workspace is a new volume" in (by("pods.get_pod_logs", pod.id).content or ""))
    assert by("vms.get_vm_burn", pod.id).gpu_count == 2

    assert by("vms.restart_vm", pod.id).status_reason == "user_restarted"
    eventually(lambda: "made anew" in by("pods.get_pod_logs", pod.id).content)
    assert by("vms.stop_vm", pod.id).status == "stopped"
    eventually(lambda: not Occupancy.objects.open().exists())
    assert by.refused("vms.resize_vm_disk", pod.id, body=models.ResizeDiskRequest(new_size_gb=900)) == (
        "VALIDATION_ERROR"
    )
    assert by("vms.restart_vm", pod.id).status == "deploying"
    eventually(is_(by, pod.id, "running"))
    eventually(lambda: "the volume as it was" in by("pods.get_pod_logs", pod.id).content)
    assert by("vms.terminate_vm", pod.id).status == "terminated"
    eventually(lambda: not Occupancy.objects.open().exists())
    assert by("pods.list_pods").items == []
    assert by("pods.list_pod_capacity").items[0].free_units == 4


def test_refusals_by_the_published_client(agent: PodAgent, sdk: ModuleType) -> None:
    by = By(sdk, agent.site)
    models = by.models
    keys = [str(agent.site.key.pk)]

    def refused(**fields: Any) -> str:
        asked = {"image": IMAGE, "ssh_key_ids": keys, **fields}
        return by.refused("pods.create_pod", body=models.CreatePodRequest(**asked))

    def is_of_level(level: int) -> None:
        eventually(lambda: NodeHeartbeat.objects.filter(agent_level=level).exists(), 30)

    assert refused(compute_class="interruptible") == "COMPUTE_CLASS_RETIRED"
    assert refused(gpu_count=5) == "GPU_COUNT_NOT_ALLOCATABLE"
    assert refused(shm_size_gb=2000) == "POD_ADMISSION_FAILED"
    assert refused(image="No Image") == "VALIDATION_ERROR"
    pod = by("pods.create_pod", body=models.CreatePodRequest(image=IMAGE, ssh_key_ids=keys, gpu_count=3))
    assert refused(gpu_count=2) == "INSUFFICIENT_GPU_CAPACITY"
    eventually(is_(by, pod.id, "running"))
    by("vms.stop_vm", pod.id)
    eventually(lambda: not Occupancy.objects.open().exists())
    on_infiniband(agent.site.buyer)
    agent.write(agentLevel=INFINIBAND - 1)
    is_of_level(INFINIBAND - 1)
    assert by.refused("vms.restart_vm", pod.id) == "POD_NODE_NO_INFINIBAND"
    fabric(agent.site.node)
    agent.write(agentLevel=INFINIBAND)
    is_of_level(INFINIBAND)
    assert by("vms.restart_vm", pod.id).status == "deploying"
    eventually(is_(by, pod.id, "running"))


def test_a_lost_job_comes_back_and_a_container_that_fails_says_so(agent: PodAgent, sdk: ModuleType) -> None:
    by = By(sdk, agent.site)
    models = by.models
    body = models.CreatePodRequest(image=IMAGE, ssh_key_ids=[str(agent.site.key.pk)])
    pod = by("pods.create_pod", body=body)
    eventually(is_(by, pod.id, "running"))
    agent.write(losesGuests=True, bootSeconds=3)
    eventually(is_(by, pod.id, "interrupted"))
    agent.write()
    eventually(is_(by, pod.id, "running"), 30)
    assert Workload.objects.get(pk=pod.id).runs.count() >= 2
    consistent()
    agent.write(failsBoots=True)
    other = by("pods.create_pod", body=body)
    eventually(is_(by, other.id, "failed"), 30)
    assert by("vms.get_vm", other.id).status_reason == "container failed to start: the guest did not boot"


def test_thirty_pods_at_once_on_four_units(server: Server) -> None:
    site = PodSite(server)
    body = {"image": IMAGE, "sshKeyIds": [str(site.key.pk)]}
    answers = at_once([lambda: site.http.post("/v1/pods", json=body)] * 30)
    assert sorted(answer.status_code for answer in answers) == [200] * 4 + [503] * 26
    assert Claim.objects.count() == Workload.objects.count() == 4
