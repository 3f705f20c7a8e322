"""Stopping, restarting, rebooting and changing a VM, from states that came about by the API and the agent."""

import importlib
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compute.models import Claim, Occupancy, Run, Workload
from compute.services.billing.sizes import set_size
from nodes.models import Gpu, Location, Node
from openrelay.audit.actor import OPERATOR
from openrelay.audit.models import AuditEvent
from openrelay.core.clock import Now
from openrelay.identity.models import Organization
from openrelay.identity.services.callers import forget_keys
from tests import factories
from tests.compute.conftest import World, consistent, refused, run_of, state
from tests.compute.test_pods import Pods, pod_node

pytestmark = pytest.mark.django_db


def act(world: World, made: Workload, verb: str, org: Any = None, **body: Any) -> Any:
    """POST one of the VM's operations as its owner."""
    client = world.client(org or made.organization)
    return client.post(f"/v1/vms/{made.pk}/{verb}", body)


def detail(world: World, made: Workload) -> dict[str, Any]:
    """Its detail, as its owner sees it."""
    answer = world.client(made.organization).get(f"/v1/vms/{made.pk}/detail")
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def stopped(world: World, org: Any = None, **body: Any) -> Workload:
    """A VM that ran and was stopped, its guest confirmed gone."""
    made = world.running(org or world.buyer, **body)
    answer = act(world, made, "stop")
    assert answer.status_code == 200, answer.content
    world.says((made, "gone"), node=made.node)
    made.refresh_from_db()
    return made


def events(made: Workload) -> list[str]:
    rows = AuditEvent.objects.filter(target_id=str(made.pk)).order_by("created_at", "id")
    return [row.event for row in rows]


def gpu_fails(world: World, *numbers: int, units: int = 8, **fields: Any) -> None:
    """Have the node report GPUs of those units as failed."""
    reported = [factories.unit_report(number) for number in range(units)]
    for number in numbers:
        reported[number]["gpus"][0]["healthy"] = False
    factories.inventory(world.node, reported, **fields)


# Stop


def test_stop_gives_up_the_units_at_once_and_keeps_the_disk(world: World) -> None:
    made = world.running(world.buyer, diskSizeGb=500)
    answer = act(world, made, "stop")
    assert (answer.status_code, answer.json()["status"]) == (200, "stopped")
    assert answer.json()["statusReason"] == "user_stopped"
    assert not Claim.objects.exists()
    assert Occupancy.objects.open().count() == 1
    assert world.work()[str(made.pk)]["desired"] == "gone"
    answer = world.says((made, "gone"), disks=[str(made.pk)])
    assert answer["deleteDisks"] == []
    assert not Occupancy.objects.open().exists()
    assert state(made) == ("stopped", "user_stopped")
    assert events(made) == ["vm.created", "vm.running", "vm.stopped"]
    consistent()


def test_the_disk_of_a_stopped_vm_still_counts_on_its_host(world: World) -> None:
    for _ in range(4):
        stopped(world, diskSizeGb=2000)
    for _ in range(4):
        stopped(world, diskSizeGb=1900)
    # 16,000 GB in all, of which 400 are left.
    refused(world.ask(world.buyer, diskSizeGb=500), 503, "INSUFFICIENT_HOST_CAPACITY")
    assert world.ask(world.buyer, diskSizeGb=400).status_code == 200


def test_a_disk_is_deleted_once_its_vm_is_terminated_and_its_guest_gone(world: World) -> None:
    made = world.running(world.buyer)
    world.terminate(world.buyer, made)
    assert world.says((made, "running"), disks=[str(made.pk)])["deleteDisks"] == []
    assert world.says((made, "gone"), disks=[str(made.pk)])["deleteDisks"] == [str(made.pk)]
    unknown = "0198c0de-0000-7000-8000-000000000000"
    assert world.says(disks=[unknown])["deleteDisks"] == []


def test_a_stopped_vm_ends_by_terminate_and_its_disk_goes(world: World) -> None:
    made = stopped(world)
    assert world.terminate(world.buyer, made).json()["statusReason"] == "user_terminated"
    assert world.says(disks=[str(made.pk)])["deleteDisks"] == [str(made.pk)]


@pytest.mark.parametrize("verb", ["stop", "reboot", "restart"])
def test_what_is_pending_or_terminated_takes_none_of_them(world: World, verb: str) -> None:
    reservation = world.reserve(0)
    world.release(reservation, 0)
    world.running(world.buyer, tier="spot", nodeId=None)
    waits = world.vm(world.tenant, nodeId=str(world.node.pk))
    ended = world.vm(world.buyer)
    world.terminate(world.buyer, ended)
    for made in (waits, ended):
        made.refresh_from_db()
        refused(act(world, made, verb), 409, "INVALID_STATE", made.status)


def test_stop_may_be_switched_off_for_an_organization(world: World) -> None:
    made = world.running(world.buyer)
    Organization.objects.filter(pk=world.buyer.pk).update(stop_enabled=False)
    refused(act(world, made, "stop"), 409, "STOP_DISABLED")
    assert state(made)[0] == "running"
    pod = Pods(world, pod_node(world.provider)).running(world.buyer)
    assert act(world, pod, "stop").status_code == 200


def test_a_start_reported_late_does_not_undo_a_stop(world: World) -> None:
    made = world.vm(world.buyer)
    assert act(world, made, "stop").status_code == 200
    world.says((made, "running"))
    assert state(made) == ("stopped", "user_stopped")
    assert world.work()[str(made.pk)]["desired"] == "gone"
    world.says((made, "gone"))
    assert world.work() == {}
    consistent()


# Restart


def test_a_running_vm_is_rebooted_in_place(world: World) -> None:
    made = world.running(world.buyer, gpuCount=2)
    run, started = run_of(made), made.started_at
    answer = act(world, made, "restart")
    assert (answer.status_code, answer.json()["status"]) == (200, "running")
    assert answer.json()["statusReason"] == "user_restarted"
    work = world.work()[str(made.pk)]
    assert (work["runId"], work["reboots"]) == (run, 1)
    assert act(world, made, "reboot").status_code == 204
    assert world.work()[str(made.pk)]["reboots"] == 2
    world.says((made, "starting"))
    world.says((made, "running"))
    made.refresh_from_db()
    assert (made.status, made.status_reason, made.started_at) == ("running", "user_restarted", started)
    assert events(made) == ["vm.created", "vm.running", "vm.rebooted", "vm.rebooted"]


def test_a_stopped_vm_starts_again_by_a_new_run_on_its_node(world: World) -> None:
    factories.node(world.provider, 8)
    made = stopped(world, gpuCount=2)
    node_id = made.node_id
    answer = act(world, made, "restart")
    assert (answer.status_code, answer.json()["status"]) == (200, "deploying")
    assert answer.json()["provisioningStage"] == "scheduled"
    made.refresh_from_db()
    assert made.node_id == node_id
    assert [run.number for run in Run.objects.order_by("number")] == [1, 2]
    world.says((made, "starting"), node=made.node)
    assert world.client(world.buyer).get(f"/v1/vms/{made.pk}").json()["provisioningStage"] == "starting"
    world.says((made, "running"), node=made.node)
    assert state(made) == ("running", "")
    assert events(made)[-2:] == ["vm.restarted", "vm.running"]
    consistent()


def test_a_failed_vm_starts_again(world: World) -> None:
    made = world.vm(world.buyer)
    world.says((made, "failed"))
    assert state(made)[0] == "failed"
    assert act(world, made, "restart").status_code == 200
    world.says((made, "running"))
    assert state(made)[0] == "running"
    consistent()


def test_a_guest_waits_for_the_earlier_one_of_the_same_vm_which_has_its_disk(world: World) -> None:
    made = world.running(world.buyer)
    earlier = run_of(made)
    act(world, made, "stop")
    assert act(world, made, "restart").status_code == 200
    # On another unit, for the first is not free yet.
    assert world.units(made) == [1]
    work = world.agent().get("/v1/agent/work").json()["runs"]
    assert [(run["runId"], run["desired"], run["waitsFor"]) for run in work] == [
        (earlier, "gone", []),
        (run_of(made), "running", [earlier]),
    ]
    world.says((earlier, "gone"))
    assert world.work()[str(made.pk)]["waitsFor"] == []
    consistent()


def test_a_restart_names_what_is_short_and_works_once_it_is_there(world: World) -> None:
    made = stopped(world, gpuCount=4)
    other = world.running(world.tenant, gpuCount=6)
    sentence = refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "needs 4", "there are 2")
    assert "Its disk is kept" in sentence
    assert state(made) == ("stopped", "user_stopped")
    world.terminate(world.tenant, other)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "6 more are freed")
    world.says((other, "gone"))
    assert act(world, made, "restart").status_code == 200
    consistent()


def test_a_restart_names_a_failed_gpu_by_address(world: World) -> None:
    made = stopped(world, gpuCount=8)
    gpu_fails(world, 3)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "GPU 0000:13:00.0 has failed")


def test_a_running_vm_is_not_rebooted_on_a_failed_gpu(world: World) -> None:
    made = world.running(world.buyer, gpuCount=4)
    gpu_fails(world, 0)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "0000:10:00.0", "Stop it and start it again")
    refused(act(world, made, "reboot"), 409, "INVALID_STATE", "0000:10:00.0")
    world.running(world.tenant, gpuCount=4)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "0000:10:00.0", "would not help")
    assert world.work()[str(made.pk)]["reboots"] == 0


def test_nobody_is_told_to_stop_what_may_not_be_stopped(world: World) -> None:
    made = world.running(world.buyer)
    pod = Pods(world, pod_node(world.provider)).running(world.buyer)
    for each in (made, pod):
        Gpu.objects.filter(unit__claims__workload=each).update(failed_at=Now())
    Organization.objects.filter(pk=world.buyer.pk).update(stop_enabled=False)
    said = refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "0000:10:00.0", "switched off")
    assert "Stop it" not in said
    assert "Stop it" not in refused(act(world, made, "reboot"), 409, "INVALID_STATE", "switched off")
    refused(act(world, pod, "restart"), 503, "POD_NODE_BUSY", "Stop it and start it again")


def test_to_stop_and_start_is_no_help_where_the_host_is_full(world: World) -> None:
    made = world.running(world.buyer)
    host = {"cpuCores": 128, "ramMb": 1024 * 1024, "diskTotalGb": 16000, "diskFreeGb": 0}
    gpu_fails(world, 0, host=host)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "0000:10:00.0", "would not help", "disk")
    act(world, made, "stop")
    world.says((made, "gone"))
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "disk")


def test_a_gpu_that_is_gone_from_its_host_has_failed(world: World) -> None:
    made = world.running(world.buyer, gpuCount=2)
    factories.inventory(world.node, [factories.unit_report(number) for number in range(1, 8)])
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "0000:10:00.0", "Stop it and start it")
    assert state(made)[0] == "running"
    act(world, made, "stop")
    world.says((made, "gone"))
    assert act(world, made, "restart").status_code == 200
    assert world.units(made) == [1, 2]


def test_a_gpu_that_is_gone_from_its_unit_has_failed(world: World) -> None:
    units = [factories.unit_report(number, gpus=2) for number in range(4)]
    factories.inventory(world.node, units)
    made = world.running(world.buyer, gpuCount=6)
    assert detail(world, made)["healthy"]
    factories.inventory(world.node, [units[0], factories.unit_report(1), *units[2:]])
    assert not detail(world, made)["healthy"]
    assert state(made)[0] == "running"
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "0000:11:00.0", "Stop it and start it again")
    refused(act(world, made, "reboot"), 409, "INVALID_STATE", "0000:11:00.0")
    act(world, made, "stop")
    world.says((made, "gone"))
    assert act(world, made, "restart").status_code == 200
    assert world.units(made) == [0, 2, 3]


def test_whose_start_would_be_refused_is_not_told_to_stop(world: World) -> None:
    made = world.running(world.buyer)
    gpu_fails(world, 0)
    buyer = Organization.objects.filter(pk=world.buyer.pk)
    buyer.update(suspended_at=Now())
    forget_keys()
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "0000:10:00.0", "would not help", "suspended")
    buyer.update(suspended_at=None, balance_cents=0)
    forget_keys()
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "0000:10:00.0", "would not help", "0 cents")
    buyer.update(balance_cents=1000)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "0000:10:00.0", "Stop it and start it again")


def test_what_the_refusal_promises_is_kept(world: World) -> None:
    made = world.running(world.buyer, gpuCount=4)
    gpu_fails(world, 0)
    act(world, made, "stop")
    world.says((made, "gone"))
    assert act(world, made, "restart").status_code == 200
    assert 0 not in world.units(made)


@pytest.mark.parametrize("running", [True, False])
def test_a_restart_while_the_node_is_offline_says_so(world: World, running: bool, clock: Any) -> None:
    made = world.running(world.buyer) if running else stopped(world)
    clock.advance(91)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "offline")
    # Heard of, and its guest too.
    world.says((made, "running")) if running else world.work()
    assert act(world, made, "restart").status_code == 200


def owner_sets(world: World, node: Any, status: str) -> None:
    path = f"/v1/orgs/{world.provider.pk}/provider/nodes/{node.pk}"
    answer = world.client(world.provider).patch(path, {"status": status})
    assert answer.status_code == 200, answer.content


def test_a_restart_while_the_owner_takes_no_work_says_so(world: World) -> None:
    made, runs = stopped(world), world.running(world.buyer)
    owner_sets(world, world.node, "maintenance")
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "takes no new work")
    assert act(world, runs, "restart").status_code == 200


def test_a_full_disk_keeps_a_vm_from_starting_and_a_new_one_out(world: World) -> None:
    made = stopped(world)
    host = {**factories.report(0, sequence=1)["host"], "diskFreeGb": 0}
    factories.inventory(world.node, 8, host=host)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "too little disk")
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_HOST_CAPACITY")


def test_a_request_for_memory_above_the_share_of_now_starts_at_that_share(world: World) -> None:
    made = stopped(world, gpuCount=1, guestMemMb=110_000)
    assert (made.guest_mem_mb, made.requested_guest_mem_mb) == (110_000, 110_000)
    host = {**factories.report(0, sequence=1)["host"], "ramMb": 700 * 1024}
    factories.inventory(world.node, 8, host=host)
    assert act(world, made, "restart").status_code == 200
    made.refresh_from_db()
    assert made.guest_mem_mb is not None
    assert 53_248 <= made.guest_mem_mb < 110_000
    assert made.requested_guest_mem_mb == made.guest_mem_mb


def test_a_share_below_the_floor_keeps_a_vm_from_starting(world: World) -> None:
    made = stopped(world, gpuCount=1, guestMemMb=110_000)
    host = {**factories.report(0, sequence=1)["host"], "ramMb": 100 * 1024}
    factories.inventory(world.node, 8, host=host)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "RAM")
    made.refresh_from_db()
    assert made.requested_guest_mem_mb == 110_000


def test_a_vm_whose_node_was_removed_deploys_afresh_elsewhere(world: World) -> None:
    made = stopped(world, gpuCount=2, diskSizeGb=300)
    old = made.node
    owner_sets(world, old, "removed")
    assert state(made) == ("stopped", "node_removed")
    refused(act(world, made, "restart"), 503, "INSUFFICIENT_GPU_CAPACITY", "removed")
    assert state(made)[0] == "stopped"
    new = factories.node(world.provider, 8)
    answer = act(world, made, "restart")
    assert (answer.status_code, answer.json()["status"]) == (200, "deploying")
    made.refresh_from_db()
    assert (made.node_id, made.disk_size_gb) == (new.pk, 300)
    world.says((made, "running"), node=new)
    assert state(made)[0] == "running"
    # Should the old node come back, it is told to drop the disk that nobody will ask for again.
    Node.objects.filter(pk=old.pk).update(removed_at=None)
    assert world.says(node=old, disks=[str(made.pk)])["deleteDisks"] == [str(made.pk)]
    consistent()


def test_a_vm_that_prefers_a_region_of_before_deploys_in_it_under_its_canonical_name(world: World) -> None:
    Location.objects.create(slug="eu", name="eu", city="eu", country="DE", region="eu-west")
    made = stopped(world)
    Workload.objects.filter(pk=made.pk).update(preferred_regions=["EU  West", "us", "eu-west", "(none)"])
    owner_sets(world, made.node, "removed")
    new = factories.node(world.provider, 8, location=Location.objects.get(slug="eu"))
    Location.objects.create(slug="us", name="us", city="us", country="US", region="us")
    Location.objects.create(slug="none", name="none", city="none", country="US", region="unknown")
    refused(act(world, made, "restart"), 503, "INSUFFICIENT_GPU_CAPACITY", "preferredRegions names (none)")

    migration = importlib.import_module("compute.migrations.0018_canonical_preferred_regions")
    with connection.schema_editor(atomic=False) as editor:
        migration.rename(apps, editor)

    made.refresh_from_db()
    assert made.preferred_regions == ["eu-west", "us", "unknown"]
    assert act(world, made, "restart").status_code == 200
    made.refresh_from_db()
    assert made.node_id == new.pk


@pytest.mark.parametrize("shape", [{}, {"gpuCount": None, "resourceSize": "cpu-small"}])
def test_a_disk_that_went_with_its_node_does_not_grow(world: World, shape: dict[str, Any]) -> None:
    """Or it might grow beyond what any node that it could be deployed on has."""
    set_size(actor=OPERATOR, slug="cpu-small", vcpu=2, ram_mb=4096, cents_per_hour=4)
    made = stopped(world, **shape)
    owner_sets(world, world.node, "removed")
    refused(act(world, made, "resize-disk", newSizeGb=3000), 409, "INVALID_STATE", "removed")
    factories.node(world.provider, 8)
    assert act(world, made, "restart").status_code == 200


def test_only_what_it_could_have_is_said_to_be_freed_soon(world: World) -> None:
    """A restart without room counts what drains, but not what is reserved to others."""
    mine = stopped(world, gpuCount=2)
    others = [world.running(world.buyer, gpuCount=count) for count in (3, 5)]
    for vm in others:
        assert act(world, vm, "terminate").status_code == 200
    world.reserve(*range(3))
    refused(act(world, mine, "restart"), 503, "VM_NODE_BUSY", "5 more are freed")


def test_deployed_elsewhere_it_has_what_its_gpus_come_with_there(world: World) -> None:
    made, large = stopped(world), stopped(world, diskSizeGb=2000)
    had = made.guest_mem_mb
    owner_sets(world, world.node, "removed")
    host = {**factories.report(0, sequence=1)["host"], "ramMb": 800 * 1024, "diskTotalGb": 8000}
    new = factories.node(world.provider, 0)
    factories.inventory(new, 8, host=host)
    assert act(world, made, "restart").status_code == 200
    made.refresh_from_db()
    assert made.node_id == new.pk
    assert made.guest_mem_mb == made.requested_guest_mem_mb < had
    refused(act(world, large, "restart"), 503, "INSUFFICIENT_GPU_CAPACITY", "diskSizeGb")
    consistent()


# Rights of now


def test_reserved_units_of_a_stopped_vm_are_refused_to_others_and_serve_it_again(world: World) -> None:
    world.reserve(*range(8))
    made = stopped(world, world.tenant, nodeId=str(world.node.pk), gpuCount=8)
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_GPU_CAPACITY")
    assert act(world, made, "restart").status_code == 200
    consistent()


def test_a_stopped_spot_vm_whose_unit_was_taken_back_does_not_start_again(world: World) -> None:
    reservation = world.reserve(*range(8))
    world.release(reservation, *range(8))
    made = stopped(world, tier="spot", gpuCount=2)
    world.running(world.tenant, nodeId=str(world.node.pk), gpuCount=7)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "there is 1")
    assert state(made) == ("stopped", "user_stopped")
    assert world.says(disks=[str(made.pk)])["deleteDisks"] == []
    other = Workload.objects.get(organization=world.tenant)
    world.terminate(world.tenant, other)
    world.says((other, "gone"))
    assert act(world, made, "restart").status_code == 200
    consistent()


def test_a_vm_placed_on_a_reservation_that_ended_and_was_given_to_others_stays_out(world: World) -> None:
    made = stopped(world, gpuCount=8)
    world.reserve(*range(8))
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "there are none")


def test_a_restart_uses_open_units_while_its_reservation_is_in_review(world: World) -> None:
    world.reserve(0)
    made = stopped(world, world.tenant, nodeId=str(world.node.pk))
    factories.inventory(world.node, [factories.unit_report(number) for number in range(1, 8)])
    assert act(world, made, "restart").json()["status"] == "deploying"
    assert world.units(made) == [1]
    consistent()


def test_a_refused_restart_says_which_reserved_units_are_gone_or_in_review(world: World) -> None:
    world.reserve(0, 1)
    made = stopped(world, world.tenant, nodeId=str(world.node.pk), gpuCount=2)
    world.running(world.buyer, gpuCount=6)
    factories.inventory(world.node, [factories.unit_report(number) for number in range(1, 8)])
    sentence = refused(
        act(world, made, "restart"),
        503,
        "VM_NODE_BUSY",
        f"Reserved to your organization and gone from the node: {factories.address(0)}.",
        f"in review, because the node's hardware changed: {factories.address(1)}.",
    )
    assert "none" in sentence
    assert state(made) == ("stopped", "user_stopped")


def test_a_refused_restart_says_nothing_of_what_is_reserved_to_others(world: World) -> None:
    made = stopped(world, world.buyer, gpuCount=8)
    world.reserve(*range(8))
    factories.inventory(world.node, [factories.unit_report(number) for number in range(1, 8)])
    sentence = refused(act(world, made, "restart"), 503, "VM_NODE_BUSY")
    assert "review" not in sentence
    assert "gone" not in sentence


def test_a_restart_on_ones_own_reservation_preempts_spot(world: World) -> None:
    reservation = world.reserve(*range(8))
    made = stopped(world, world.tenant, nodeId=str(world.node.pk), gpuCount=8)
    world.release(reservation, *range(8))
    spot = world.running(world.buyer, tier="spot", gpuCount=8)
    assert act(world, made, "restart").json()["status"] == "deploying"
    assert state(spot) == ("terminated", "spot_preempted_for_reservation_tenant")
    assert world.work()[str(made.pk)]["waitsFor"] == [run_of(spot)]
    consistent()


# Resize, visibility


def test_a_stopped_vms_disk_grows_and_never_shrinks(world: World) -> None:
    made = stopped(world, diskSizeGb=100)
    for size in (99, 100):
        refused(act(world, made, "resize-disk", newSizeGb=size), 400, "VALIDATION_ERROR", "only grow")
    refused(act(world, made, "resize-disk", newSizeGb=2001), 400, "VM_SHAPE_NOT_PLACEABLE", "2000")
    answer = act(world, made, "resize-disk", newSizeGb=1500)
    assert (answer.status_code, answer.content) == (204, b"")
    act(world, made, "restart")
    made.refresh_from_db()
    assert made.disk_size_gb == 1500
    assert world.work()[str(made.pk)]["spec"]["diskSizeGb"] == 1500
    refused(act(world, made, "resize-disk", newSizeGb=1600), 409, "INVALID_STATE", "deploying", "stopped")
    assert events(made).count("vm.disk_resized") == 1


def test_a_disk_does_not_grow_beyond_what_its_host_has_left(world: World) -> None:
    made = stopped(world, diskSizeGb=100)
    world.running(world.tenant, gpuCount=7, diskSizeGb=14_000)
    stopped(world, diskSizeGb=1800)
    refused(act(world, made, "resize-disk", newSizeGb=300), 503, "INSUFFICIENT_HOST_CAPACITY")
    assert act(world, made, "resize-disk", newSizeGb=200).status_code == 204


def test_a_pods_volume_is_not_resized(world: World) -> None:
    pods = Pods(world, pod_node(world.provider))
    refused(act(world, pods.running(), "resize-disk", newSizeGb=500), 400, "VALIDATION_ERROR", "pod")


def test_visibility_changes_once_and_reaches_the_node(world: World) -> None:
    made = world.running(world.buyer)
    for _ in range(2):
        assert act(world, made, "visibility", public=True).json()["public"] is True
    assert world.work()[str(made.pk)]["spec"]["public"] is True
    assert events(made).count("vm.visibility_changed") == 1
    refused(act(world, made, "visibility", public="yes"), 400, "VALIDATION_ERROR", "public")
    world.terminate(world.buyer, made)
    refused(act(world, made, "visibility", public=False), 409, "INVALID_STATE", "terminated")


# What it costs


@pytest.mark.parametrize(
    ("verb", "budget"), [("stop", 16), ("restart", 15), ("reboot", 13), ("visibility", 11), ("terminate", 18)]
)
def test_a_change_costs_the_same_on_a_full_node_as_on_an_empty_one(
    world: World, verb: str, budget: int
) -> None:
    def cost(made: Workload) -> int:
        body = {"public": True} if verb == "visibility" else {}
        forget_keys()
        assert made.organization
        with CaptureQueriesContext(connection) as queries:
            answer = act(world, made, verb, **body)
        assert answer.status_code < 300, answer.content
        return len(queries)

    first, second = world.running(world.buyer), world.running(world.buyer)
    if verb == "restart":
        for made in (first, second):
            act(world, made, "stop")
            world.says((made, "gone"))
            made.refresh_from_db()
    act(world, first, "detail")
    alone = cost(first)
    for _ in range(5):
        world.running(world.tenant)
    assert cost(second) == alone
    assert alone <= budget, f"{verb} costs {alone} queries; it may cost {budget}"
    assert alone == budget, f"{verb} costs only {alone} queries now; write that here"
