"""What an owner does with a node: maintenance, draining, removal, and back."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compute.models import Claim, Run, Workload
from nodes.models import GpuUnit, Node, TopologyGeneration
from openrelay.audit.models import AuditEvent
from openrelay.identity.models import Organization
from openrelay.identity.services.callers import forget_keys
from reservations.services.invariants import violations
from tests import factories
from tests.compute.conftest import World, refused, state
from tests.provider.conftest import Provider, events

pytestmark = pytest.mark.django_db


def stopped(world: World, **fields: object) -> Workload:
    """A VM that stopped by itself and keeps its disk."""
    made = world.running(world.buyer)
    world.says((made, "stopped"))
    Workload.objects.filter(pk=made.pk).update(**fields)
    made.refresh_from_db()
    assert made.status == "stopped"
    return made


def free(world: World) -> int:
    """The free GPUs that a buyer is shown."""
    shown = world.client(world.buyer).get("/v1/gpu-availability").json()
    return sum(row["vm"]["freeGpus"] for row in shown)


def failed(world: World) -> Workload:
    made = world.vm(world.buyer)
    world.says((made, "failed"))
    return made


def test_maintenance_keeps_new_work_away_and_what_runs_runs_on(provider: Provider, world: World) -> None:
    vm = world.running(world.buyer)
    assert free(world) == 7
    answer = provider.set("maintenance")
    assert answer.status_code == 200
    assert free(world) == 0
    assert answer.json()["status"] == "maintenance"
    refused(
        world.ask(world.provider, nodeId=str(world.node.pk)), 503, "INSUFFICIENT_GPU_CAPACITY", "no new work"
    )
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_GPU_CAPACITY")
    assert state(vm) == ("running", "")
    assert provider.set("online").json()["status"] == "online"
    assert free(world) == 7
    world.vm(world.buyer)
    assert events(world.node)[-2:] == ["node.hold_changed"] * 2


@pytest.mark.parametrize(
    "by", ["preemption", "reclaim", "reclaim-spot", "draining", "removal", "an announced end"]
)
def test_who_loses_a_workload_is_not_told_where_its_end_was_ordered_from(
    provider: Provider, world: World, by: str
) -> None:
    """The log of those who ordered it has the address; the log of the workload's organization has the
    server's id of the request.
    """
    node = str(world.node.pk)
    held = world.reserve(*range(8))
    world.release(held, *range(8))
    lost, kept = world.running(world.buyer, tier="spot", gpuCount=8), None
    if by == "removal":
        world.terminate(world.buyer, lost)
        world.says((lost, "gone"))
        kept = world.running(world.buyer, tier="spot", gpuCount=4)
        world.client(world.buyer).post(f"/v1/vms/{kept.pk}/stop")
        world.says((kept, "gone"))
        lost = world.running(world.buyer, tier="spot", gpuCount=4)
    if by == "preemption":
        world.vm(world.tenant, nodeId=node)
    elif by == "reclaim":
        path = f"/v1/nodes/{node}/reservations/{held.pk}/reclaim"
        client = world.client(world.provider)
        assert client.post(path, {"unitIds": [factories.address(0)]}).status_code == 200
    elif by == "reclaim-spot":
        answer = world.client(world.provider).post(f"{provider.path}/nodes/{node}/reclaim-spot", {})
        assert answer.json()["terminated"]
    elif by == "an announced end":
        Organization.objects.filter(pk=world.provider.pk).update(leave_notices_enabled=True)
        assert provider.notice(noticeSeconds=3600).status_code == 200
    else:
        assert provider.set("draining" if by == "draining" else "removed").status_code == 200
    log = world.client(world.buyer).get("/v1/audit-events", {"limit": 100}).json()["items"]
    told = [
        event for event in log if event["event"] in ("vm.terminated", "vm.node_removed", "vm.node_leaving")
    ]
    about = {str(lost.pk), *([str(kept.pk)] if kept else [])}
    ordered = {event["targetId"]: event for event in reversed(told)}
    assert ordered.keys() >= about
    for pk in about:
        assert "sourceIp" not in ordered[pk], ordered[pk]
        assert "requestId" not in ordered[pk], ordered[pk]
        request = ordered[pk]["serverRequestId"]
        assert AuditEvent.objects.filter(server_request_id=request).exclude(source_ip="").exists()


def test_whoever_ends_their_own_is_told_from_where(world: World) -> None:
    made = world.running(world.buyer)
    world.terminate(world.buyer, made)
    assert AuditEvent.objects.get(event="vm.terminated", target_id=str(made.pk)).source_ip == "127.0.0.1"


def test_draining_costs_the_same_for_one_vm_as_for_seven(provider: Provider, world: World) -> None:
    costs = []
    for number in (1, 7):
        made = [world.running(world.buyer) for _ in range(number)]
        provider.shown()  # the first use of a key within a minute is noted
        forget_keys()
        with CaptureQueriesContext(connection) as queries:
            assert provider.set("draining").status_code == 200
        costs.append(len(queries))
        world.says(*[(vm, "gone") for vm in made])
        assert provider.set("online").status_code == 200
    assert costs[0] == costs[1]


def test_draining_ends_all_that_is_not_stopped_with_a_published_reason(
    provider: Provider, world: World
) -> None:
    running, deploying, broken = world.running(world.buyer), world.vm(world.tenant), failed(world)
    kept = stopped(world)
    assert provider.set("draining").json()["status"] == "draining"
    for vm in (running, deploying, broken):
        assert state(vm) == ("terminated", "node_removed")
        assert events(vm).count("vm.terminated") == 1
    assert state(kept) == ("stopped", "vm_exited")
    assert not Claim.objects.exists()
    # The guests are the agent's to tear down, and are occupied until it says so.
    assert Run.objects.being_torn_down().count() == 2
    assert provider.set("draining").status_code == 200
    assert events(world.node).count("node.hold_changed") == 1
    assert violations() == []


def test_a_removed_node_ends_its_pods_tells_its_stopped_vms_and_takes_its_units_along(
    provider: Provider, world: World
) -> None:
    running, vm, pod = world.running(world.buyer), stopped(world), stopped(world, kind="pod")
    reservation = world.reserve(4, 5)
    generation = world.node.topology_gen
    answer = provider.set("removed")
    assert answer.status_code == 200
    assert free(world) == 0
    shown = answer.json()
    assert shown["status"] == "removed"
    assert shown["gpus"] == [{"gpuName": "NVIDIA H100 SXM5 80 GB", "vramGb": 80, "quantity": 8}]
    assert state(running) == state(pod) == ("terminated", "node_removed")
    assert state(vm) == ("stopped", "node_removed")
    assert events(vm)[-1] == "vm.node_removed"
    world.node.refresh_from_db()
    assert world.node.topology_gen == generation + 1
    assert not GpuUnit.objects.present().filter(node=world.node).exists()
    assert TopologyGeneration.objects.get(node=world.node, number=generation + 1).units == []
    reservations = world.client(factories.platform()).get(f"/v1/nodes/{world.node.pk}/reservations").json()
    assert [(row["id"], row["status"]) for row in reservations] == [(str(reservation.pk), "needs-review")]
    assert events(world.node)[-1] == "node.removed"
    assert violations() == []


@pytest.mark.parametrize("status", ["online", "maintenance", "draining", "removed"])
def test_a_removed_node_is_not_changed_any_more(provider: Provider, world: World, status: str) -> None:
    provider.set("removed")
    refused(provider.set(status), 400, "NODE_DECOMMISSIONED", "Enrol")
    refused(provider.notice(), 400, "NODE_DECOMMISSIONED")
    refused(
        world.agent().post("/v1/agent/inventory", factories.report(8, sequence=9)), 400, "NODE_DECOMMISSIONED"
    )


def test_a_removed_node_still_confirms_what_it_tore_down(provider: Provider, world: World) -> None:
    vm = world.running(world.buyer)
    provider.set("removed")
    assert world.work()[str(vm.pk)]["desired"] == "gone"
    world.says((vm, "gone"))
    assert not Run.objects.open().exists()
    assert violations() == []


def test_another_organizations_node_is_not_there(provider: Provider, world: World) -> None:
    refused(provider.set("removed", by=world.tenant), 404, "NOT_FOUND")
    refused(provider.set("removed", by=factories.platform()), 404, "NOT_FOUND")
    assert Node.objects.live().count() == 1


@pytest.mark.parametrize("body", [{}, {"status": "offline"}, {"status": 1}, {"status": "online", "x": 1}, []])
def test_a_status_that_no_owner_sets_is_refused(provider: Provider, world: World, body: object) -> None:
    answer = world.client(world.provider).patch(f"{provider.path}/nodes/{world.node.pk}", body)
    refused(answer, 400, "VALIDATION_ERROR")


def test_what_is_so_already_changes_nothing(provider: Provider, world: World) -> None:
    before = AuditEvent.objects.count()
    assert provider.set("online").json()["status"] == "online"
    assert AuditEvent.objects.count() == before
