"""Who may place where: the table, row by row, through the API."""

import datetime as dt
from typing import Any

import pytest
from django.db import connection

from compute.models import Claim, GpuPrice, Occupancy, Workload
from compute.services.placement.snapshot import read_snapshot, snapshot_reading
from nodes.inventory import MAX_RAM_MB
from nodes.models import GpuModel, GpuUnit, Location, Node, NodeHeartbeat
from nodes.services.enrolment import enrol_node
from nodes.services.locking import LockedNode, locked, locked_for
from openrelay.audit.actor import OPERATOR
from openrelay.audit.models import AuditEvent
from openrelay.core.clock import Now
from tests import factories
from tests.compute.conftest import World, consistent, refused, run_of, state

pytestmark = pytest.mark.django_db


def fill(world: World, count: int, **body: object) -> list[Workload]:
    return [world.vm(world.buyer, **body) for _ in range(count)]


def test_a_vm_claims_whole_units_and_shows_what_it_got(world: World) -> None:
    model = factories.gpu_model()
    answer = world.ask(world.buyer, gpuCount=2, gpuModelId=str(model.pk), name="trainer")
    assert answer.status_code == 200
    shown = answer.json()
    assert shown["status"] == "deploying"
    assert shown["gpuCount"] == 2
    assert shown["tier"] == "community"
    assert shown["pricePerHourCents"] == 400
    assert shown["gpuManufacturer"] == model.manufacturer
    assert shown["diskSizeGb"] == 200
    made = Workload.objects.get(pk=shown["id"])
    assert Claim.objects.filter(workload=made).count() == 2
    assert Occupancy.objects.open().filter(run__workload=made).count() == 2
    assert AuditEvent.objects.filter(event="vm.created", target_id=shown["id"]).count() == 1
    consistent()


def test_the_public_pool_serves_the_node_it_fits_best(world: World) -> None:
    small = factories.node(world.provider, 2)
    made = world.vm(world.buyer, gpuCount=2)
    assert made.node_id == small.pk
    assert world.vm(world.buyer).node_id == world.node.pk


def test_a_count_is_met_exactly_or_refused_with_those_that_are_possible(world: World) -> None:
    pairs = factories.node(world.provider, [factories.unit_report(n, gpus=2, model="pair") for n in range(2)])
    model = GpuModel.objects.get(slug="pair")
    GpuPrice.objects.create(gpu_model=model, tier="community", cents_per_gpu_hour=1, updated_at=Now())
    sentence = refused(
        world.ask(world.buyer, gpuCount=3, gpuModelId=str(model.pk)), 400, "GPU_COUNT_NOT_ALLOCATABLE"
    )
    assert "2, 4" in sentence
    assert world.vm(world.buyer, gpuCount=4, gpuModelId=str(model.pk)).node_id == pairs.pk
    refused(world.ask(world.buyer, gpuCount=2, gpuModelId=str(model.pk)), 503, "INSUFFICIENT_GPU_CAPACITY")


def test_no_room_now_names_the_largest_count_that_fits(world: World) -> None:
    fill(world, 5)
    answer = world.ask(world.buyer, gpuCount=4)
    refused(answer, 503, "INSUFFICIENT_GPU_CAPACITY", "At most 3")
    assert answer["Retry-After"]


def test_what_is_reserved_is_nobody_elses(world: World) -> None:
    world.reserve(*range(8))
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_GPU_CAPACITY")
    refused(world.ask(world.buyer, tier="spot"), 503, "INSUFFICIENT_GPU_CAPACITY")
    refused(world.ask(world.provider, nodeId=str(world.node.pk)), 503, "INSUFFICIENT_GPU_CAPACITY")
    assert world.units(world.vm(world.tenant, nodeId=str(world.node.pk))) == [0]


def test_without_a_named_node_reserved_capacity_never_serves_its_own_tenant(world: World) -> None:
    reservation = world.reserve(*range(8))
    refused(world.ask(world.tenant), 503, "INSUFFICIENT_GPU_CAPACITY")
    world.release(reservation, 0)
    refused(world.ask(world.tenant, tier="spot"), 503, "INSUFFICIENT_GPU_CAPACITY")


def test_only_spot_lands_on_what_was_released(world: World) -> None:
    reservation = world.reserve(*range(8))
    world.release(reservation, 3)
    for tier in ("community", "verified"):
        refused(world.ask(world.buyer, tier=tier), 503, "INSUFFICIENT_GPU_CAPACITY")
    assert world.units(world.vm(world.buyer, tier="spot")) == [3]
    refused(world.ask(world.buyer, tier="spot"), 503, "INSUFFICIENT_GPU_CAPACITY")


def test_the_tenant_preempts_the_youngest_spot_workload_on_its_units(world: World) -> None:
    reservation = world.reserve(*range(8))
    world.release(reservation, 0, 1)
    old, young = world.running(world.buyer, tier="spot"), world.running(world.buyer, tier="spot")
    for _ in range(6):
        world.vm(world.tenant, nodeId=str(world.node.pk))
    made = world.vm(world.tenant, nodeId=str(world.node.pk))
    assert state(young) == ("terminated", "spot_preempted_for_reservation_tenant")
    assert state(old)[0] == "running"
    assert made.status == "pending"
    assert world.units(made) == [1]
    work = world.work()
    assert work[str(young.pk)]["desired"] == "gone"
    assert work[str(made.pk)]["waitsFor"] == [work[str(young.pk)]["runId"]]
    assert AuditEvent.objects.filter(event="vm.terminated", target_id=str(young.pk)).count() == 1
    world.says((young, "gone"))
    assert state(made)[0] == "deploying"
    assert world.work()[str(made.pk)]["waitsFor"] == []
    consistent()


def test_a_spot_workload_from_before_the_term_is_preempted_too(world: World) -> None:
    (early,) = fill(world, 1, tier="spot")
    world.reserve(*range(8))
    for _ in range(7):
        world.vm(world.tenant, nodeId=str(world.node.pk))
    assert state(early)[0] == "deploying"
    world.vm(world.tenant, nodeId=str(world.node.pk))
    assert state(early) == ("terminated", "spot_preempted_for_reservation_tenant")


def test_an_ordinary_workload_on_reserved_units_stays(world: World) -> None:
    (ordinary,) = fill(world, 1)
    world.reserve(*range(8))
    for _ in range(7):
        world.vm(world.tenant, nodeId=str(world.node.pk))
    refused(world.ask(world.tenant, nodeId=str(world.node.pk)), 503, "INSUFFICIENT_GPU_CAPACITY")
    assert state(ordinary)[0] == "deploying"


def test_the_tenant_has_open_units_only_for_what_reserved_ones_cannot_cover(world: World) -> None:
    world.reserve(6, 7)
    assert world.units(world.vm(world.tenant, nodeId=str(world.node.pk), gpuCount=3)) == [0, 6, 7]


def test_draining_serves_the_audience_and_nobody_else(world: World) -> None:
    world.reserve(*range(8))
    first = world.running(world.tenant, nodeId=str(world.node.pk), gpuCount=8)
    world.terminate(world.tenant, first)
    second = world.vm(world.tenant, nodeId=str(world.node.pk), gpuCount=8)
    assert second.status == "pending"
    refused(world.ask(world.tenant, nodeId=str(world.node.pk)), 503, "INSUFFICIENT_GPU_CAPACITY")


def test_a_draining_unit_that_is_not_reserved_is_nobodys(world: World) -> None:
    made = world.running(world.buyer, gpuCount=8)
    world.terminate(world.buyer, made)
    for tier in ("community", "spot"):
        refused(world.ask(world.buyer, tier=tier), 503, "INSUFFICIENT_GPU_CAPACITY")
    world.says((made, "gone"))
    world.vm(world.buyer, gpuCount=8)


def test_in_review_nobody_places_and_the_node_is_not_hidden_from_its_audience(world: World) -> None:
    reservation = world.reserve(*range(7))
    world.release(reservation, 0)
    factories.inventory(world.node, [factories.unit_report(n) for n in range(7)])
    for org, tier in ((world.tenant, "community"), (world.tenant, "spot"), (world.provider, "spot")):
        refused(world.ask(org, tier=tier, nodeId=str(world.node.pk)), 503, "INSUFFICIENT_GPU_CAPACITY")
    refused(world.ask(world.buyer, tier="spot"), 503, "INSUFFICIENT_GPU_CAPACITY")


def test_in_review_its_audience_has_not_even_what_is_open_to_others_there(world: World) -> None:
    world.reserve(0)
    factories.inventory(world.node, [factories.unit_report(n) for n in range(7)])
    refused(world.ask(world.tenant, nodeId=str(world.node.pk)), 503, "INSUFFICIENT_GPU_CAPACITY")
    assert world.units(world.vm(world.provider, nodeId=str(world.node.pk))) == [1]


@pytest.mark.parametrize("trouble", ["failed", "not sellable", "gone", "another class"])
def test_a_unit_in_trouble_is_nobodys(world: World, trouble: str) -> None:
    rows = [factories.unit_report(n) for n in range(2)]
    if trouble == "failed":
        rows[0]["gpus"][0]["healthy"] = False
    elif trouble == "not sellable":
        rows[0]["sellable"] = False
    elif trouble == "another class":
        rows[0]["allocClass"] = "mdev"
    else:
        del rows[0]
    factories.inventory(world.node, rows)
    assert world.units(world.vm(world.buyer, nodeId=None)) == [1]
    refused(world.ask(world.provider, nodeId=str(world.node.pk)), 503, "INSUFFICIENT_GPU_CAPACITY")


def test_a_node_without_rights_reads_as_one_that_never_was(world: World) -> None:
    real = world.ask(world.buyer, nodeId=str(world.node.pk))
    invented = world.ask(world.buyer, nodeId="0192f3a0-0000-7000-8000-000000000000")
    nonsense = world.ask(world.buyer, nodeId="not-an-id")
    refused(real, 400, "UNKNOWN_NODE")
    assert real.json() == invented.json() == nonsense.json()


def test_rights_end_with_the_term_to_the_microsecond(world: World, clock) -> None:  # type: ignore[no-untyped-def]
    start = clock.freeze()
    end = start + dt.timedelta(hours=1)
    world.reserve(*range(8), ends_at=end)
    clock.freeze(end - dt.timedelta(microseconds=1))
    factories.online(world.node)
    world.vm(world.tenant, nodeId=str(world.node.pk))
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_GPU_CAPACITY")
    clock.freeze(end)
    refused(world.ask(world.tenant, nodeId=str(world.node.pk)), 400, "UNKNOWN_NODE")
    world.vm(world.buyer)


@pytest.mark.parametrize("trouble", ["offline", "maintenance"])
def test_a_named_node_that_takes_no_work_refuses_and_the_pool_leaves_it_out(
    world: World, trouble: str
) -> None:
    if trouble == "offline":
        NodeHeartbeat.objects.filter(node=world.node).update(seen_at=Now() - dt.timedelta(hours=1))
    else:
        Node.objects.filter(pk=world.node.pk).update(owner_hold="maintenance")
    refused(world.ask(world.provider, nodeId=str(world.node.pk)), 503, "INSUFFICIENT_GPU_CAPACITY")
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_GPU_CAPACITY")


def test_a_named_node_that_was_removed_is_refused_for_good(world: World) -> None:
    Node.objects.filter(pk=world.node.pk).update(removed_at=Now())
    refused(world.ask(world.provider, nodeId=str(world.node.pk)), 400, "NODE_DECOMMISSIONED")


def test_preferred_regions_are_kept_to_unless_fallback_is_allowed(world: World) -> None:
    for region in ("eu", "us"):
        Location.objects.create(slug=region, name=region, city=region, country="DE", region=region)
    Node.objects.filter(pk=world.node.pk).update(location=Location.objects.get(slug="us"))
    refused(world.ask(world.buyer, preferredRegions=["mars"]), 400, "VALIDATION_ERROR", "mars")
    refused(world.ask(world.buyer, preferredRegions=["eu"]), 400, "GPU_COUNT_NOT_ALLOCATABLE")
    assert world.vm(world.buyer, preferredRegions=["us"]).node_id == world.node.pk
    assert world.vm(world.buyer, preferredRegions=["eu"], allowFallback=True).node_id == world.node.pk


@pytest.mark.parametrize("regions", [None, ["eu"]])
def test_spot_is_placed_where_most_of_it_is_on_its_market(world: World, regions: list[str] | None) -> None:
    eu = Location.objects.create(slug="eu", name="eu", city="eu", country="DE", region="eu")
    large, middle, small = world.node, factories.node(world.provider, 4), factories.node(world.provider, 2)
    Node.objects.update(location=eu)
    world.release(world.reserve(0, 1, 2), 0, 1, 2)
    world.release(world.reserve(0, node=middle), 0)

    def placed(org: Any, tier: str, gpus: int) -> Any:
        return world.vm(org, tier=tier, gpuCount=gpus, preferredRegions=regions).node_id

    # As ever: on whose node the fewest are left. Nobody buys on the market what is reserved to themselves.
    assert placed(world.buyer, "community", 1) == small.pk
    assert placed(world.tenant, "spot", 1) == small.pk
    # Of two that have it on the market, on the smaller; then where all of it is, and where most of it is.
    assert placed(world.buyer, "spot", 1) == middle.pk
    assert placed(world.buyer, "spot", 2) == large.pk
    assert placed(world.buyer, "spot", 2) == large.pk
    # With nothing on the market any more, as ever.
    assert placed(world.buyer, "spot", 2) == middle.pk


def test_memory_is_the_share_of_the_gpus_raised_to_the_floor_and_never_more(world: World) -> None:
    auto = world.vm(world.buyer, gpuCount=2)
    assert auto.guest_mem_mb is not None
    assert auto.guest_vcpu == 32
    floor = 80 * 1024 * 65 // 100
    raised = world.vm(world.buyer, guestMemMb=1024)
    assert raised.guest_mem_mb == floor
    assert raised.requested_guest_mem_mb == 1024
    refused(world.ask(world.buyer, guestMemMb=1024 * 1024), 400, "VM_SHAPE_NOT_PLACEABLE")
    refused(world.ask(world.buyer, diskSizeGb=15000), 400, "VM_SHAPE_NOT_PLACEABLE")
    assert world.vm(world.buyer, diskSizeGb=20).disk_size_gb == 20


def test_a_share_below_the_floor_is_nobodys(world: World) -> None:
    host = {**factories.report(0, sequence=1)["host"], "ramMb": 400 * 1024}
    factories.inventory(world.node, 8, host=host)
    # It could never be started again.
    refused(world.ask(world.buyer), 400, "VM_SHAPE_NOT_PLACEABLE")
    assert world.client(world.buyer).get("/v1/gpu-availability").json()[0]["vm"]["freeGpus"] == 0


def test_a_node_whose_host_is_too_small_for_one_of_its_models_gives_another(world: World) -> None:
    factories.gpu_model("nvidia-a100-sxm4-40gb", name="A100", vram_gb=40)
    units = [factories.unit_report(0), factories.unit_report(1, model="nvidia-a100-sxm4-40gb")]
    host = {"cpuCores": 16, "ramMb": 64 * 1024, "diskTotalGb": 400, "diskFreeGb": 400}
    factories.inventory(world.node, units, host=host)
    world.reserve(0)
    made = world.vm(world.tenant, nodeId=str(world.node.pk))
    assert world.units(made) == [1]
    refused(world.ask(world.tenant, nodeId=str(world.node.pk)), 503, "INSUFFICIENT_HOST_CAPACITY")


def test_who_is_preempted_leaves_its_disk_to_its_successor(world: World) -> None:
    host = {"cpuCores": 128, "ramMb": 1024 * 1024, "diskTotalGb": 200, "diskFreeGb": 200}
    factories.inventory(world.node, 2, host=host)
    world.release(world.reserve(0, 1), 0, 1)
    old, young = (world.vm(world.buyer, tier="spot", diskSizeGb=100) for _ in range(2))
    made = world.vm(world.tenant, nodeId=str(world.node.pk), diskSizeGb=100)
    assert (made.status, state(young)[0], state(old)[0]) == ("pending", "terminated", "deploying")
    world.says((young, "gone"))
    assert state(made)[0] == "deploying"


def test_who_is_preempted_leaves_what_it_wrote_on_a_full_disk(world: World) -> None:
    host = {"cpuCores": 128, "ramMb": 1024 * 1024, "diskTotalGb": 1000, "diskFreeGb": 300}
    factories.inventory(world.node, 2, host=host)
    world.release(world.reserve(0, 1), 0, 1)
    old, young = (world.running(world.buyer, tier="spot", diskSizeGb=100) for _ in range(2))
    factories.inventory(world.node, 2, host={**host, "diskFreeGb": 5})
    here = {"nodeId": str(world.node.pk), "diskSizeGb": 70}
    refused(world.ask(world.tenant, **here), 503, "INSUFFICIENT_HOST_CAPACITY")
    told = {"state": "running", "diskTotalBytes": 100 * 10**9}
    for made, used_gb in ((old, 90), (young, 64)):
        line = {"runId": run_of(made), **told, "diskUsedBytes": used_gb * 10**9}
        world.sequence += 1
        body = {"sequence": world.sequence, "complete": True, "guests": [line]}
        assert world.agent().post("/v1/agent/reports", body).status_code == 200
    refused(world.ask(world.tenant, **here), 503, "INSUFFICIENT_HOST_CAPACITY")
    made = world.vm(world.tenant, **{**here, "diskSizeGb": 69})
    assert (made.status, state(young)[0], state(old)[0]) == ("pending", "terminated", "running")
    # One that stops keeps its disk, and what is on it.
    world.client(world.buyer).post(f"/v1/vms/{old.pk}/stop")
    refused(world.ask(world.tenant, **here), 503, "INSUFFICIENT_HOST_CAPACITY")
    world.terminate(world.buyer, old)
    assert world.vm(world.tenant, **here).status == "pending"


@pytest.mark.parametrize("ram_mb", [None, MAX_RAM_MB])
def test_the_largest_hosts_and_guests_are_counted_like_others(world: World, ram_mb: int | None) -> None:
    def say(ram_mb: int | None) -> Any:
        host = {"ramMb": ram_mb} if ram_mb else {}
        unit = factories.unit_report(0)
        body = {"sequence": 1, "runtime": "qemu", "units": [unit], "host": {"diskTotalGb": 2**30, **host}}
        return world.agent(huge).post("/v1/agent/inventory", body)

    huge = enrol_node(actor=OPERATOR, organization_id=world.provider.pk, hostname="huge")
    refused(say(MAX_RAM_MB + 1), 400, "VALIDATION_ERROR", "ramMb")
    assert say(ram_mb).status_code == 200
    refused(world.ask(world.buyer, guestMemMb=MAX_RAM_MB + 1), 400, "VALIDATION_ERROR", "guestMemMb")
    made = world.vm(world.buyer, guestMemMb=None if ram_mb else MAX_RAM_MB)
    assert made.node_id == huge.pk
    assert made.guest_mem_mb is not None
    assert made.guest_mem_mb > MAX_RAM_MB * 9 // 10
    seen = world.client(world.buyer).get("/v1/gpu-availability")
    assert (seen.status_code, seen.json()[0]["vm"]["freeGpus"]) == (200, 8)
    assert world.vm(world.buyer).node_id == world.node.pk


def test_a_share_that_nobody_has_free_is_host_capacity(world: World) -> None:
    world.vm(world.buyer, gpuCount=4)
    Workload.objects.update(guest_mem_mb=1024 * 1024 - 80 * 1024)
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_HOST_CAPACITY")


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        ({"gpuCount": None}, "VALIDATION_ERROR", "gpuCount"),
        ({"gpuCount": 0}, "VALIDATION_ERROR", "gpuCount"),
        ({"gpuCount": True}, "VALIDATION_ERROR", "gpuCount"),
        ({"resourceSize": "small"}, "RESOURCE_SIZE_NOT_APPLICABLE", "resourceSize"),
        ({"templateId": "ubuntu"}, "VALIDATION_ERROR", "templateId"),
        ({"cloudInit": "#cloud-config"}, "VALIDATION_ERROR", "cloudInit"),
        ({"gpuModelId": "nope"}, "VALIDATION_ERROR", "gpuModelId"),
        ({"tier": "gold"}, "VALIDATION_ERROR", "tier"),
        ({"sshKeyIds": []}, "VALIDATION_ERROR", "sshKeyIds"),
        ({"sshKeyIds": ["nope"]}, "VALIDATION_ERROR", "sshKeyIds"),
        ({"name": ""}, "VALIDATION_ERROR", "name"),
        ({"colour": "red"}, "VALIDATION_ERROR", "colour"),
        ({"healthCheckPort": 0}, "VALIDATION_ERROR", "healthCheckPort"),
        ({"envVars": {"A=B": "c"}}, "VALIDATION_ERROR", "envVars"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(world: World, body: dict, code: str, word: str) -> None:  # type: ignore[type-arg]
    refused(world.ask(world.buyer, **body), 400, code, word)
    assert not Workload.objects.exists()


def test_a_key_of_another_organization_is_no_key(world: World) -> None:
    foreign = factories.ssh_key(world.tenant)
    refused(world.ask(world.buyer, sshKeyIds=[str(foreign.pk)]), 400, "VALIDATION_ERROR", "sshKeyIds")


def test_every_input_reaches_the_node(world: World) -> None:
    body = {
        "cloudInit": "#!/bin/sh\ntrue",
        "envVars": {"A": "b"},
        "containerCommand": ["sleep", "1"],
        "containerPort": 8080,
        "healthCheckPath": "/up",
        "healthCheckPort": 8081,
        "healthChecks": ["disk"],
        "imageUrl": "https://example.com/image.qcow2",
        "kernelModules": ["nvidia"],
        "privileged": True,
        "public": True,
    }
    made = world.vm(world.buyer, guestMemMb=100_000, diskSizeGb=50, **body)
    spec = world.work()[str(made.pk)]["spec"]
    assert {name: spec[name] for name in body} == body
    assert (spec["guestMemMb"], spec["diskSizeGb"]) == (100_000, 50)
    assert spec["sshKeys"] == [world.keys[world.buyer.pk].public_key]


def test_another_tier_needs_a_price(world: World) -> None:
    GpuPrice.objects.filter(tier="verified").delete()
    model = factories.gpu_model()
    refused(
        world.ask(world.buyer, tier="verified", gpuModelId=str(model.pk)), 400, "VALIDATION_ERROR", "verified"
    )


def test_one_key_sent_twice_makes_one_vm(world: World) -> None:
    headers = {"Idempotency-Key": "abc"}
    first = world.ask(world.buyer, headers)
    again = world.ask(world.buyer, headers)
    assert first.json() == again.json()
    assert Workload.objects.count() == 1
    refused(world.ask(world.buyer, headers, gpuCount=2), 422, "IDEMPOTENCY_KEY_REUSED")


def test_after_a_503_the_same_key_may_be_tried_again(world: World) -> None:
    made = world.vm(world.buyer, gpuCount=8)
    headers = {"Idempotency-Key": "later"}
    refused(world.ask(world.buyer, headers), 503, "INSUFFICIENT_GPU_CAPACITY")
    world.terminate(world.buyer, made)
    world.says((made, "never-started"))
    assert world.ask(world.buyer, headers).status_code == 200


def test_another_organizations_path_is_refused_whatever_is_in_the_body(world: World) -> None:
    world.keys[world.tenant.pk] = factories.ssh_key(world.tenant)
    answer = world.client(world.buyer).post(
        f"/v1/orgs/{world.tenant.pk}/vms/create",
        {"name": "x", "gpuCount": 1, "sshKeyIds": [str(world.keys[world.tenant.pk].pk)]},
    )
    refused(answer, 403, "FORBIDDEN")
    assert not Workload.objects.exists()


def test_the_database_refuses_a_second_claim_whatever_a_script_does(world: World) -> None:
    from django.db import IntegrityError, transaction  # noqa: PLC0415

    made = world.vm(world.buyer)
    unit = GpuUnit.objects.get(claims__workload=made)
    other = world.vm(world.buyer)
    run = other.runs.get()
    with pytest.raises(IntegrityError), transaction.atomic():
        Claim.objects.create(unit=unit, workload=other, run=run, node=world.node, created_at=Now())


def test_a_column_that_a_newer_release_added_keeps_its_default(world: World) -> None:
    """While one release replaces another, the older one's processes still place."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in ("compute_workload", "compute_run"):
            cursor.execute(f"ALTER TABLE {table} ADD COLUMN added text NOT NULL DEFAULT 'new'")
    assert world.ask(world.buyer).status_code == 200


def test_what_is_read_of_a_node_is_its_own_whichever_was_locked_last(world: World) -> None:
    two, five = [factories.node(world.buyer, units) for units in (2, 5)]
    about = snapshot_reading(world.buyer.pk, "community")

    def units(held: LockedNode) -> int:
        return len(read_snapshot(held, world.buyer.pk, "community").units)

    caller = factories.caller(world.buyer)
    with (
        locked_for(two.pk, caller, reading=about) as (first, _),
        locked_for(five.pk, caller, reading=about) as (second, _),
    ):
        assert (units(first), units(second)) == (2, 5)
    with locked(two.pk) as first, locked(five.pk) as second:
        assert (units(first), units(second)) == (2, 5)


def test_who_comes_takes_over_from_who_goes_first(world: World) -> None:
    """Whom a preemption ends and who waits for that are never there together: the rest is for others."""
    world.release(world.reserve(*range(8)), *range(8))
    spot = [world.running(world.buyer, tier="spot") for _ in range(8)]
    made = [world.vm(world.tenant, nodeId=str(world.node.pk)) for _ in range(8)]
    assert [state(vm)[0] for vm in spot] == ["terminated"] * 8
    assert [state(vm)[0] for vm in made] == ["pending"] * 8
    world.says(*((vm, "gone") for vm in spot))
    assert [state(vm)[0] for vm in made] == ["deploying"] * 8
    consistent()
