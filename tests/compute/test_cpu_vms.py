"""VMs without GPUs: sizes from the table, on what hosts have to spare."""

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from compute.domain.cpu_shares import Guest, Host, host_remaining, stranded
from compute.domain.host_shares import HostAllocation, footprint_mb
from compute.models import Claim, Occupancy, ResourceSize, Run, UsageSession, VmTemplate, Workload
from compute.services.lifecycle import interrupt
from nodes.models import Location, Node
from openrelay.audit.models import AuditEvent
from openrelay.identity.services.callers import forget_keys
from reservations.services import reclaim_spot
from tests import factories
from tests.compute.conftest import World, consistent, refused, state
from tests.compute.test_life_cycle import act, events
from tests.compute.test_pods import pod_node
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db

# Eight GPUs share 128 CPUs, 1 TiB and 16,000 GB: 16 CPUs, 128,450 MiB and 2,000 GB each.
SMALL = {"gpuCount": None, "resourceSize": "cpu-small"}
LARGE = {"gpuCount": None, "resourceSize": "cpu-2xlarge"}


def bare(world: World, *, cores: int = 16, ram_mb: int = 65536, disk_gb: int = 1000, **fields: Any) -> Node:
    """A node for VMs that has no GPUs."""
    host = {"cpuCores": cores, "ramMb": ram_mb, "diskTotalGb": disk_gb, "diskFreeGb": disk_gb, "tdx": False}
    made = factories.node(world.provider, 0, **fields)
    factories.inventory(made, [], host=host)
    return made


def stopped(world: World, org: Any = None, **body: Any) -> Workload:
    made = world.running(org or world.buyer, **{**SMALL, **body})
    assert act(world, made, "stop").status_code == 200
    world.says((made, "gone"), node=made.node)
    made.refresh_from_db()
    return made


def fill(world: World, org: Any, **body: Any) -> int:
    """Create VMs of the largest size until there is no room; returns how many there were."""
    for number in range(100):
        answer = world.ask(org, **{**LARGE, **body})
        if answer.status_code != 200:
            refused(answer, 503, "INSUFFICIENT_HOST_CAPACITY")
            return number
    raise AssertionError("there is no end of room")


# What is asked for


def test_a_vm_of_a_size_is_given_what_the_table_says(world: World) -> None:
    answer = world.ask(world.buyer, **SMALL, name="tiny", containerPort=8080, public=True)
    assert answer.status_code == 200, answer.content
    shown = answer.json()
    assert (shown["resourceSize"], shown["gpuCount"], shown["status"]) == ("cpu-small", 0, "deploying")
    assert (shown["diskSizeGb"], shown["pricePerHourCents"], shown["provisioningStage"]) == (
        100,
        4,
        "scheduled",
    )
    assert not shown.keys() & {"gpuModelId", "gpuModelName", "gpuManufacturer"}
    detail = world.client(world.buyer).get(f"/v1/vms/{shown['id']}/detail").json()
    assert (detail["guestVcpu"], detail["guestMemMb"], detail["resourceSize"]) == (2, 4096, "cpu-small")
    assert not detail.keys() & {"gpuInfo", "gpuModelId", "requestedGuestMemMb"}
    run = world.work()[shown["id"]]
    assert (run["units"], run["waitsFor"], run["desired"]) == ([], [], "running")
    spec = run["spec"]
    assert (spec["guestVcpu"], spec["guestMemMb"], spec["diskSizeGb"], spec["gpuCount"]) == (2, 4096, 100, 0)
    assert (spec["name"], spec["containerPort"], spec["public"]) == ("tiny", 8080, True)
    assert len(spec["sshKeys"]) == 1
    assert not Claim.objects.exists()
    created = AuditEvent.objects.get(target_id=shown["id"])
    assert (created.event, created.after["resourceSize"]) == ("vm.created", "cpu-small")
    world.says((Workload.objects.get(), "running"))
    (listed,) = world.client(world.buyer).get(f"/v1/orgs/{world.buyer.pk}/vms").json()["items"]
    assert (listed["status"], listed["resourceSize"]) == ("running", "cpu-small")
    consistent()


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"resourceSize": "huge"}, "VALIDATION_ERROR", ("cpu-small, cpu-medium", "cpu-2xlarge")),
        ({}, "VALIDATION_ERROR", ("gpuCount", "cpu-small")),
        ({"gpuCount": 0}, "VALIDATION_ERROR", ("gpuCount", "cpu-small")),
        ({"gpuCount": 2, **{"resourceSize": "cpu-small"}}, "RESOURCE_SIZE_NOT_APPLICABLE", ("resourceSize",)),
        ({"resourceSize": "cpu-small", "gpuModelId": "model"}, "RESOURCE_SIZE_NOT_APPLICABLE", ()),
        (
            {"gpuCount": 0, "resourceSize": "cpu-small", "gpuModelId": "model"},
            "VALIDATION_ERROR",
            ("gpuModelId",),
        ),
        ({"resourceSize": "cpu-small", "guestMemMb": 8192}, "VALIDATION_ERROR", ("guestMemMb", "cpu-large")),
        ({"resourceSize": "cpu-small", "diskSizeGb": 16001}, "VM_SHAPE_NOT_PLACEABLE", ("16001",)),
        ({"resourceSize": "cpu-small", "preferredRegions": ["mars"]}, "VALIDATION_ERROR", ("mars",)),
        (
            {"resourceSize": "cpu-small", "nodeId": "x", "allowFallback": True},
            "VALIDATION_ERROR",
            ("nodeId",),
        ),
        ({"resourceSize": "cpu-small", "nodeId": "x"}, "UNKNOWN_NODE", ()),
        ({"resourceSize": "cpu-small", "cloudInit": "true"}, "VALIDATION_ERROR", ("cloudInit",)),
    ],
)
def test_what_can_never_be_is_refused_with_a_reason(
    world: World, body: dict[str, Any], code: str, words: tuple[str, ...]
) -> None:
    refused(world.ask(world.buyer, **{"gpuCount": None, **body}), 400, code, *words)
    assert not Workload.objects.exists()


def test_a_size_above_every_host_can_never_be(world: World) -> None:
    Node.objects.update(cpu_cores=16)
    refused(world.ask(world.buyer, **LARGE), 400, "VM_SHAPE_NOT_PLACEABLE", "cpu-2xlarge")
    Node.objects.update(cpu_cores=128, ram_mb=66_000)
    refused(world.ask(world.buyer, **LARGE), 400, "VM_SHAPE_NOT_PLACEABLE")
    Node.objects.update(ram_mb=80_000)
    assert world.ask(world.buyer, **LARGE).status_code == 200


def test_a_template_for_gpus_is_refused_and_a_plain_one_reaches_the_node(world: World) -> None:
    cuda, plain = (VmTemplate.objects.get(slug=f"ubuntu-24-04{end}") for end in ("-cuda", ""))
    refused(world.ask(world.buyer, **SMALL, templateId=str(cuda.pk)), 400, "VALIDATION_ERROR", cuda.name)
    made = world.vm(world.buyer, **SMALL, templateId=str(plain.pk))
    assert world.work()[str(made.pk)]["spec"]["template"] == plain.filename


def test_a_repeat_by_the_same_key_is_the_same_vm(world: World) -> None:
    headers = {"Idempotency-Key": "cpu-1"}
    first, second = (world.ask(world.buyer, headers, **SMALL) for _ in range(2))
    assert first.json() == second.json()
    assert Workload.objects.count() == 1


# Where it goes


def test_it_goes_where_no_gpu_is_in_the_way(world: World) -> None:
    place = Location.objects.create(slug="osl", name="Oslo", city="Oslo", country="NO", region="north")
    roomy = bare(world, cores=64, ram_mb=262144, location=place)
    tight = bare(world)
    pod_node(world.provider)
    offline = bare(world, cores=4)
    offline.heartbeat.delete()
    bare(world, cores=4, owner_hold="maintenance")
    assert world.vm(world.buyer, **SMALL).node == tight
    assert world.vm(world.buyer, **SMALL, preferredRegions=["north"]).node == roomy
    # What does not fit there goes elsewhere, or nowhere.
    assert world.vm(world.buyer, **LARGE, preferredRegions=["north"]).node == roomy
    asked = {**LARGE, "preferredRegions": ["north"]}
    refused(world.ask(world.buyer, **asked), 503, "INSUFFICIENT_HOST_CAPACITY", "cpu-2xlarge")
    assert world.vm(world.buyer, **asked, allowFallback=True).node == world.node


def test_beside_gpus_it_costs_as_few_of_them_as_can_be(world: World) -> None:
    other = factories.node(world.provider, 8)
    first = world.vm(world.buyer, **SMALL)
    # Seven more of two CPUs each have room in the one share that the first has broken.
    assert {world.vm(world.buyer, **SMALL).node_id for _ in range(7)} == {first.node_id}
    whole = other if first.node_id == world.node.pk else world.node
    assert world.vm(world.buyer, gpuCount=8).node == whole
    assert world.vm(world.buyer, gpuCount=7).node_id == first.node_id
    # Its CPUs are gone with the eight VMs.
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_HOST_CAPACITY")


def test_hosts_are_counted_to_the_last_cpu_and_mebibyte(world: World) -> None:
    Node.objects.update(owner_hold="maintenance")
    node = bare(world, cores=5)
    assert [world.ask(world.buyer, **SMALL).status_code for _ in range(3)] == [200, 200, 503]
    Node.objects.filter(pk=node.pk).update(cpu_cores=64, ram_mb=2048 + 3 * footprint_mb(4096))
    assert [world.ask(world.buyer, **SMALL).status_code for _ in range(2)] == [200, 503]
    Node.objects.filter(pk=node.pk).update(ram_mb=2**20, disk_total_gb=500)
    assert [world.ask(world.buyer, **SMALL).status_code for _ in range(3)] == [200, 200, 503]
    assert world.ask(world.buyer, **SMALL, diskSizeGb=10).status_code == 503


def test_a_node_that_has_told_nothing_of_its_host_takes_it(world: World) -> None:
    Node.objects.update(cpu_cores=None, ram_mb=None, disk_total_gb=None, disk_free_gb=None)
    assert world.ask(world.buyer, **LARGE).status_code == 200


# Named nodes


def test_who_may_name_a_node_is_as_for_gpus(world: World) -> None:
    named = {**SMALL, "nodeId": str(world.node.pk)}
    refused(world.ask(world.buyer, **named), 400, "UNKNOWN_NODE")
    refused(world.ask(world.tenant, **named), 400, "UNKNOWN_NODE")
    assert world.vm(world.provider, **named).node_named
    world.reserve(0)
    assert world.ask(world.tenant, **named).status_code == 200
    pods = pod_node(world.provider)
    refused(world.ask(world.provider, **SMALL, nodeId=str(pods.pk)), 400, "VM_SHAPE_NOT_PLACEABLE")
    for hold, words in (("maintenance", "no new work"), ("draining", "no new work")):
        Node.objects.filter(pk=world.node.pk).update(owner_hold=hold)
        refused(world.ask(world.provider, **named), 503, "INSUFFICIENT_HOST_CAPACITY", words)
    Node.objects.filter(pk=world.node.pk).update(owner_hold="")
    world.node.heartbeat.delete()
    refused(world.ask(world.provider, **named), 503, "INSUFFICIENT_HOST_CAPACITY", "offline")


def test_an_audience_in_review_places_nothing(world: World) -> None:
    world.reserve(0)
    factories.inventory(world.node, 7)
    named = {**SMALL, "nodeId": str(world.node.pk)}
    refused(world.ask(world.tenant, **named), 503, "INSUFFICIENT_HOST_CAPACITY", "review")


def test_a_removed_node_is_refused_as_such_to_its_owner(world: World) -> None:
    node = bare(world)
    client = world.client(world.provider)
    path = f"/v1/orgs/{world.provider.pk}/provider/nodes/{node.pk}"
    assert client.patch(path, {"status": "removed"}).status_code == 200
    refused(world.ask(world.provider, **SMALL, nodeId=str(node.pk)), 400, "NODE_DECOMMISSIONED")


# What is kept for reservations


@pytest.mark.parametrize("when", ["now", "later", "released", "in review"])
def test_reserved_gpus_stay_startable_with_their_whole_share(world: World, clock: Clock, when: str) -> None:
    terms = {"starts_at": clock.now().replace(year=clock.now().year + 1)} if when == "later" else {}
    reservation = world.reserve(*range(6), **terms)
    if when == "released":
        world.release(reservation, *range(6))
    if when == "in review":
        factories.inventory(world.node, [factories.unit_report(n) for n in range(9)])
        assert fill(world, world.buyer) == 1  # three of nine shares are 42 CPUs
    else:
        assert fill(world, world.buyer) == 1
        assert fill(world, world.buyer, tier="spot") == 0
        assert fill(world, world.provider, nodeId=str(world.node.pk)) == 0
    if when in ("now", "released"):
        made = world.vm(world.tenant, gpuCount=6, nodeId=str(world.node.pk))
        assert world.units(made) == list(range(6))
        assert made.guest_vcpu == 96


def test_what_a_guest_leaves_of_a_reserved_share_is_kept_for_the_next(world: World) -> None:
    world.reserve(*range(8))
    node_id = str(world.node.pk)
    made = world.vm(world.tenant, nodeId=node_id, guestMemMb=60_000, gpuCount=8, diskSizeGb=100)
    assert fill(world, world.buyer) == 0
    small = {**SMALL, "diskSizeGb": 10}
    refused(world.ask(world.buyer, **small), 503, "INSUFFICIENT_HOST_CAPACITY")
    world.terminate(world.tenant, made)
    refused(world.ask(world.buyer, **small), 503, "INSUFFICIENT_HOST_CAPACITY")
    world.says((made, "gone"))
    refused(world.ask(world.buyer, **small), 503, "INSUFFICIENT_HOST_CAPACITY")
    assert world.vm(world.tenant, gpuCount=8, nodeId=node_id).guest_mem_mb > 900_000


def test_an_audience_may_spend_its_own_share_by_naming_the_node(world: World) -> None:
    world.reserve(*range(8))
    assert fill(world, world.tenant) == 0
    assert fill(world, world.tenant, nodeId=str(world.node.pk)) == 4
    refused(world.ask(world.tenant, nodeId=str(world.node.pk)), 503, "INSUFFICIENT_HOST_CAPACITY", "memory")


def test_what_has_ended_is_kept_no_more(world: World, clock: Clock) -> None:
    at = clock.now()
    world.reserve(*range(8), ends_at=at.replace(year=at.year + 1))
    assert fill(world, world.buyer) == 0
    clock.set(at.replace(year=at.year + 2))
    factories.online(world.node)
    assert fill(world, world.buyer) == 4


def test_free_gpus_may_be_kept_clear_by_the_operators_choice(world: World, settings: Any) -> None:
    settings.CPU_VMS_BESIDE_FREE_GPUS = False
    refused(world.ask(world.buyer, **SMALL), 503, "INSUFFICIENT_HOST_CAPACITY")
    node = bare(world)
    assert world.vm(world.buyer, **SMALL).node == node
    named = {**SMALL, "nodeId": str(world.node.pk)}
    world.vm(world.buyer, gpuCount=4, guestMemMb=300_000)
    refused(world.ask(world.provider, **named), 503, "INSUFFICIENT_HOST_CAPACITY")
    # What is reserved to the one who asks is theirs to spend all the same.
    world.reserve(6, 7)
    assert world.ask(world.tenant, **named).status_code == 200


def test_spare_is_what_neither_guests_nor_kept_shares_need() -> None:
    guests = (Guest(4096, 2, 100, 0), Guest(50_000, 8, 300, 1), Guest(200_000, 32, 100, 1))
    host = Host(world_id(), 1024 * 1024, 128, 16000, 9000, 8, 2, 3, 500, guests)
    left = host_remaining(host)
    share_mb = (1024 * 1024 - 1024 * 1024 * 2 // 100) // 8
    assert left.vcpu == 128 - 2 * 16 - 2 - 16 - 32
    assert left.ram_mb == 8 * share_mb + (1024 * 1024 - 1024 * 1024 * 2 // 100) % 8 - (
        2 * share_mb + footprint_mb(4096) + share_mb + footprint_mb(200_000)
    )
    assert (left.disk_gb, left.disk_free_gb) == (16000 - 2 * 2000 - 500 - 1700 - 1900, 9000)
    # Of three free GPUs two have their 16 CPUs and their memory in what is left.
    assert left.vcpu // 16 == 2
    assert [stranded(host, HostAllocation(4096, vcpu, 10)) for vcpu in (14, 15, 31)] == [0, 1, 2]


def world_id() -> Any:
    return ResourceSize().pk


# Its life


def test_beside_one_a_stopped_vms_disk_does_not_grow_into_what_reserved_gpus_keep(world: World) -> None:
    ours, theirs = (
        stopped(world, org, gpuCount=1, resourceSize=None, diskSizeGb=100)
        for org in (world.buyer, world.tenant)
    )
    world.vm(world.buyer, **SMALL, diskSizeGb=1000)
    world.reserve(*range(7))
    # Of one GPU's 2,000 GB, what the three disks leave.
    refused(act(world, ours, "resize-disk", newSizeGb=901), 503, "INSUFFICIENT_HOST_CAPACITY")
    assert act(world, ours, "resize-disk", newSizeGb=900).status_code == 204
    world.vm(world.tenant, nodeId=str(world.node.pk), gpuCount=6, diskSizeGb=12_000)
    # Whom the reservation serves may spend it so.
    assert act(world, theirs, "resize-disk", newSizeGb=2000).status_code == 204


def test_it_stops_restarts_reboots_grows_and_ends(world: World) -> None:
    made = stopped(world)
    assert state(made) == ("stopped", "user_stopped")
    assert world.work() == {}
    assert act(world, made, "resize-disk", newSizeGb=300).status_code == 204
    refused(act(world, made, "resize-disk", newSizeGb=16001), 400, "VM_SHAPE_NOT_PLACEABLE", "16000")
    answer = act(world, made, "restart")
    assert (answer.status_code, answer.json()["statusReason"]) == (200, "user_restarted")
    run = world.work()[str(made.pk)]
    assert (run["number"], run["spec"]["diskSizeGb"], run["spec"]["guestMemMb"]) == (2, 300, 4096)
    world.says((made, "running"))
    assert act(world, made, "reboot").status_code == 204
    assert act(world, made, "restart").json()["status"] == "running"
    assert world.work()[str(made.pk)]["reboots"] == 2
    assert world.terminate(world.buyer, made).json()["statusReason"] == "user_terminated"
    assert world.work()[str(made.pk)]["desired"] == "gone"
    assert world.says((made, "gone"), disks=[str(made.pk)])["deleteDisks"] == [str(made.pk)]
    assert Run.objects.open().count() == 0
    assert events(made) == [
        "vm.created",
        "vm.running",
        "vm.stopped",
        "vm.disk_resized",
        "vm.restarted",
        "vm.running",
        "vm.rebooted",
        "vm.rebooted",
        "vm.terminated",
    ]
    consistent()


def test_a_restart_names_what_its_host_lacks(world: World) -> None:
    Node.objects.update(owner_hold="maintenance")
    node = bare(world, cores=4, ram_mb=20_000, disk_gb=300)
    made = stopped(world)
    other = world.vm(world.buyer, gpuCount=None, resourceSize="cpu-medium")
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "CPU", "disk is kept")
    Node.objects.filter(pk=node.pk).update(cpu_cores=64, ram_mb=12_000)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "RAM")
    Node.objects.filter(pk=node.pk).update(ram_mb=20_000, disk_free_gb=0)
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "disk")
    Node.objects.filter(pk=node.pk).update(disk_free_gb=100, owner_hold="maintenance")
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "takes no new work")
    Node.objects.filter(pk=node.pk).update(owner_hold="", cpu_cores=4)
    world.terminate(world.buyer, other)
    # What the other had is there once its guest is gone, and not before.
    refused(act(world, made, "restart"), 503, "VM_NODE_BUSY", "CPU")
    world.says((other, "gone"), node=node)
    assert act(world, made, "restart").json()["status"] == "deploying"


def test_a_restart_waits_for_its_own_earlier_guest(world: World) -> None:
    made = world.running(world.buyer, **SMALL)
    first = str(made.runs.get().pk)
    act(world, made, "stop")
    act(world, made, "restart")
    runs = {run["runId"]: run for run in world.agent().get("/v1/agent/work").json()["runs"]}
    assert runs[first]["desired"] == "gone"
    (again,) = (run for run in runs.values() if run["number"] == 2)
    assert again["waitsFor"] == [first]
    world.says((first, "gone"))
    assert world.work()[str(made.pk)]["waitsFor"] == []


@pytest.mark.parametrize("verb", ["restart", "reboot"])
def test_while_its_node_is_offline_nothing_is_started(world: World, clock: Clock, verb: str) -> None:
    made = world.running(world.buyer, **SMALL)
    clock.advance(91)
    code = (503, "VM_NODE_BUSY") if verb == "restart" else (409, "INVALID_STATE")
    refused(act(world, made, verb), *code, "offline")


def test_a_size_that_changed_or_went_leaves_who_has_it_alone(world: World) -> None:
    made = stopped(world)
    ResourceSize.objects.filter(slug="cpu-small").update(vcpu=64, cents_per_hour=9)
    assert act(world, made, "restart").json()["pricePerHourCents"] == 9
    assert world.work()[str(made.pk)]["spec"]["guestVcpu"] == 2
    act(world, made, "stop")
    world.says((made, "gone"))
    ResourceSize.objects.filter(slug="cpu-small").delete()
    assert act(world, made, "restart").json()["pricePerHourCents"] == 9
    world.says((made, "running"))
    assert UsageSession.objects.open().get().cents_per_hour == 9


def test_operators_keep_the_table_of_sizes(world: World) -> None:
    for _ in range(2):
        call_command("set_size", "cpu-huge", "96", "196608", "190")
    made = world.vm(world.buyer, gpuCount=None, resourceSize="cpu-huge")
    assert made.guest_vcpu == 96
    call_command("set_size", "cpu-huge", "64", "131072", "150")
    shown = {row["resourceSize"]: row for row in world.client(world.buyer).get("/v1/pricing").json()["cpu"]}
    assert (shown["cpu-huge"]["vcpu"], shown["cpu-huge"]["pricePerHourCents"]) == (64, 150)
    call_command("set_size", "cpu-huge", drop=True)
    refused(world.ask(world.buyer, gpuCount=None, resourceSize="cpu-huge"), 400, "VALIDATION_ERROR")
    world.says((made, "running"))
    assert UsageSession.objects.get().cents_per_hour == 190
    told = AuditEvent.objects.filter(target_id="cpu-huge").order_by("created_at", "id")
    assert [row.event for row in told] == ["size.set", "size.set", "size.dropped"]
    for wrong in (["Cpu"], ["x", "0", "512", "1"], ["x", "1", "511", "1"], ["x", "1", "512", "-1"]):
        with pytest.raises(CommandError):
            call_command("set_size", *wrong)
    with pytest.raises(CommandError, match="no size"):
        call_command("set_size", "none", drop=True)


def test_it_is_billed_by_its_size(world: World, clock: Clock) -> None:
    made = world.vm(world.buyer, **SMALL)
    client = world.client(world.buyer)
    shown = client.get(f"/v1/vms/{made.pk}/burn").json()
    assert (shown["rateBasis"], shown["rateSource"], shown["pricePerHourCents"]) == ("cpu", "catalog", 4)
    at = clock.freeze(clock.now())
    world.says((made, "running"))
    clock.freeze(at.replace(year=at.year + 1))
    factories.online(world.node)
    shown = client.get(f"/v1/vms/{made.pk}/burn").json()
    assert (shown["rateSource"], shown["nonBillable"]) == ("locked", False)
    assert shown["accruedSessionCents"] == (clock.now() - at).days * 24 * 4
    assert not shown.keys() & {"gpuCount", "perGpuCents"}
    session = UsageSession.objects.get()
    assert (session.resource_size, session.gpu_count, session.gpu_model) == ("cpu-small", 0, None)
    assert session.node_owner_id == world.provider.pk
    act(world, made, "stop")
    session.refresh_from_db()
    assert (session.ended_at, session.end_reason) == (clock.now(), "user_stopped")


def test_a_node_that_goes_silent_interrupts_it_and_one_that_returns_brings_it_back(
    world: World, clock: Clock
) -> None:
    made = world.running(world.buyer, **SMALL)
    clock.advance(91)
    assert interrupt.interrupt_lost(world.node.pk) == [made]
    assert state(made) == ("interrupted", "node_lost")
    assert not UsageSession.objects.open().exists()
    world.says((made, "running"))
    assert state(made)[0] == "running"
    clock.advance(91)
    interrupt.interrupt_lost(world.node.pk)
    clock.advance(7 * 86400 + 1)
    assert interrupt.expire_interrupted(made.pk)
    assert state(made) == ("stopped", "node_lost")
    consistent()


def test_a_guest_that_fails_to_start_gives_its_room_back(world: World) -> None:
    made = world.vm(world.buyer, **SMALL)
    world.says((made, "failed"))
    assert state(made)[0] == "failed"
    assert not Run.objects.open().exists()
    assert act(world, made, "restart").json()["status"] == "deploying"


@pytest.mark.parametrize("tier", ["community", "spot"])
def test_draining_and_removal_end_it_and_a_stopped_one_deploys_elsewhere(world: World, tier: str) -> None:
    kept, ended = stopped(world, tier=tier), world.running(world.buyer, **SMALL, tier=tier)
    client = world.client(world.provider)
    path = f"/v1/orgs/{world.provider.pk}/provider/nodes/{world.node.pk}"
    assert client.patch(path, {"status": "draining"}).status_code == 200
    assert state(ended) == ("terminated", "node_removed")
    assert state(kept)[0] == "stopped"
    assert client.patch(path, {"status": "removed"}).status_code == 200
    assert state(kept) == ("stopped", "node_removed")
    refused(act(world, kept, "restart"), 503, "INSUFFICIENT_HOST_CAPACITY", "removed")
    node = bare(world)
    assert act(world, kept, "restart").json()["status"] == "deploying"
    kept.refresh_from_db()
    assert kept.node == node
    assert world.work(node)[str(kept.pk)]["spec"]["guestVcpu"] == 2
    consistent()


def test_an_owner_takes_spot_ones_from_the_whole_node_and_never_by_unit(world: World) -> None:
    spot, ordinary = (world.running(world.buyer, **SMALL, tier=tier) for tier in ("spot", "verified"))
    reservation = world.reserve(0)
    caller = factories.caller(world.provider)
    units = {"node_id": world.node.pk, "unit_ids": [factories.address(0)]}
    assert reclaim_spot.reclaim_spot(caller=caller, **units).victims == []
    answer = world.client(world.provider).post(
        f"/v1/nodes/{world.node.pk}/reservations/{reservation.pk}/reclaim",
        {"unitIds": [factories.address(0)]},
    )
    assert answer.json()["terminated"] == []
    assert state(spot)[0] == "running"
    plan = reclaim_spot.reclaim_spot(caller=caller, node_id=world.node.pk, dry_run=True)
    assert ([row.pk for row in plan.victims], [row.pk for row in plan.skipped]) == ([spot.pk], [ordinary.pk])
    reclaim_spot.reclaim_spot(caller=caller, node_id=world.node.pk)
    assert state(spot) == ("terminated", "spot_reclaimed_by_capacity_owner")
    assert state(ordinary)[0] == "running"


def test_gpu_availability_shows_what_it_took_of_the_host(world: World) -> None:
    client = world.client(world.buyer)
    (before,) = client.get("/v1/gpu-availability").json()
    world.vm(world.buyer, **SMALL)
    (after,) = client.get("/v1/gpu-availability").json()
    free = [shown["vm"]["offers"][0]["free"] for shown in (before, after)]
    assert free[0]["vcpu"] - free[1]["vcpu"] == 2
    assert free[0]["diskGb"] - free[1]["diskGb"] == 100
    assert free[0]["ramMb"] > free[1]["ramMb"]
    assert before["vm"]["totalGpus"] == after["vm"]["totalGpus"] == 8


def test_creating_one_costs_the_same_on_any_fleet(world: World) -> None:
    counts = []
    for _ in range(2):
        world.ask(world.buyer, **SMALL)
        forget_keys()
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert world.ask(world.buyer, **SMALL).status_code == 200
        counts.append(len(queries))
        for _ in range(10):
            factories.node(world.provider, 1)
            bare(world)
    assert counts[0] == counts[1]
    assert counts[0] <= 24, [query["sql"][:150] for query in queries]
    assert not Occupancy.objects.exists()


def test_gpus_that_lost_their_share_are_not_shown_as_free(world: World) -> None:
    def shown(org: Any) -> dict[str, Any]:
        (model,) = world.client(org).get("/v1/gpu-availability").json()
        return model["vm"]

    world.vm(world.buyer, **SMALL)
    seen = shown(world.buyer)
    assert (seen["freeGpus"], seen["placeableGpuCounts"]) == (7, [1, 2, 3, 4, 5, 6, 7])
    assert (seen["maxPlaceableGpus"], seen["totalGpus"]) == (7, 8)
    refused(world.ask(world.buyer, gpuCount=8), 503, "INSUFFICIENT_HOST_CAPACITY")
    reservation = world.reserve(*range(8))
    seen = shown(world.tenant)
    assert (seen["reservedFreeGpus"], seen["nodes"][0]["freeGpus"], seen["nodes"][0]["freeUnits"]) == (
        7,
        7,
        8,
    )
    world.release(reservation, *range(8))
    seen = shown(world.buyer)
    assert (seen["spotFreeGpus"], seen["spotPlaceableGpuCounts"]) == (7, [1, 2, 3, 4, 5, 6, 7])
    world.vm(world.buyer, tier="spot", gpuCount=7)
    assert shown(world.buyer)["spotFreeGpus"] == 0


def test_gpus_that_cannot_start_are_passed_over(world: World) -> None:
    node = factories.node(world.provider, 9)
    Node.objects.filter(pk=node.pk).update(cpu_cores=144)
    world.vm(world.provider, **LARGE, nodeId=str(world.node.pk))
    world.client(world.buyer).get("/v1/gpu-availability")
    # Its eight are the fewest free, but six of them is all that its CPUs are enough for.
    assert world.vm(world.buyer, gpuCount=7).node == node
    assert world.vm(world.buyer, gpuCount=6).node == world.node


def test_what_cpu_vms_took_of_free_shares_is_not_made_up_for_from_reserved_ones(world: World) -> None:
    reservation = world.reserve(*range(6))
    assert fill(world, world.buyer) == 1  # the two free shares are gone

    def shown(org: Any, **query: Any) -> dict[str, Any]:
        (model,) = world.client(org).get("/v1/gpu-availability").json()
        return model["vm"]

    assert (shown(world.buyer)["freeGpus"], shown(world.buyer)["placeableGpuCounts"]) == (0, [])
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_HOST_CAPACITY")
    refused(world.ask(world.provider, nodeId=str(world.node.pk)), 503, "INSUFFICIENT_HOST_CAPACITY")
    world.release(reservation, 4, 5)
    assert (shown(world.buyer)["spotFreeGpus"], shown(world.buyer)["spotPlaceableGpuCounts"]) == (2, [1, 2])
    refused(world.ask(world.buyer, tier="spot", gpuCount=4), 503, "INSUFFICIENT_HOST_CAPACITY")
    spot = world.vm(world.buyer, tier="spot", gpuCount=2)
    assert world.units(spot) == [4, 5]
    seen = shown(world.tenant)
    assert (seen["reservedFreeGpus"], seen["freeGpus"]) == (4, 4)
    made = world.vm(world.tenant, gpuCount=4, nodeId=str(world.node.pk))
    assert (world.units(made), made.guest_vcpu) == ([0, 1, 2, 3], 64)
    # The spot VM's share serves whoever it is preempted for.
    assert world.vm(world.tenant, gpuCount=2, nodeId=str(world.node.pk)).guest_vcpu == 32
    consistent()


@pytest.mark.parametrize("status", ["deploying", "interrupted", "terminated"])
def test_a_restart_takes_one_that_runs_or_has_stopped(world: World, clock: Clock, status: str) -> None:
    made = world.vm(world.buyer, **SMALL)
    if status == "interrupted":
        world.says((made, "running"))
        clock.advance(91)
        interrupt.interrupt_lost(world.node.pk)
    elif status == "terminated":
        world.terminate(world.buyer, made)
    refused(act(world, made, "restart"), 409, "INVALID_STATE", status)
