"""What is recorded of what runs, at which rate, and what that comes to."""

import datetime as dt
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

from compute import tasks
from compute.models import GpuPrice, ResourceSize, UsageSession, VmTemplate, Workload
from compute.services.billing import prices
from nodes.models import GpuModel, Location, Node, NodeHeartbeat
from openrelay.audit.actor import OPERATOR
from openrelay.core import clock as database_clock
from openrelay.identity.models import Organization
from reservations.services import amending, capacity
from tests import factories
from tests.compute.conftest import World, refused, state
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db


def sessions(made: Workload) -> list[UsageSession]:
    return list(UsageSession.objects.filter(workload=made).order_by("started_at"))


def burn(world: World, made: Workload) -> dict[str, Any]:
    org = Organization.objects.get(pk=made.organization_id)
    answer = world.client(org).get(f"/v1/vms/{made.pk}/burn")
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_session_lasts_exactly_as_long_as_the_vm_runs(world: World, clock: Clock) -> None:
    start = clock.freeze(database_clock.read().replace(microsecond=250_000))
    made = world.vm(world.buyer, gpuCount=2)
    assert sessions(made) == []
    clock.freeze(start + dt.timedelta(seconds=10))
    world.says((made, "running"))
    (session,) = sessions(made)
    assert (session.started_at, session.ended_at) == (clock.now(), None)
    assert (session.cents_per_hour, session.gpu_count, session.tier) == (400, 2, "community")
    assert (session.organization_id, session.node_owner_id) == (world.buyer.pk, world.provider.pk)
    assert session.run == made.runs.get()
    assert [(row.hold_id, row.released) for row in session.units.all()] == [(None, False)] * 2
    clock.freeze(start + dt.timedelta(seconds=10 + 5400, microseconds=1))
    factories.online(world.node)
    assert burn(world, made)["accruedSessionCents"] == 600
    world.terminate(world.buyer, made)
    (session,) = sessions(made)
    assert session.ended_at - session.started_at == dt.timedelta(seconds=5400, microseconds=1)
    assert session.end_reason == "user_terminated"


@pytest.mark.parametrize("kind", ["GPUs", "CPUs", "an organization's own price"])
def test_what_does_not_run_shows_the_rate_that_it_would_run_at(world: World, kind: str) -> None:
    def detail() -> dict[str, Any]:
        answer = world.client(world.buyer).get(f"/v1/vms/{made.pk}/detail")
        assert answer.status_code == 200, answer.content
        found: dict[str, Any] = answer.json()
        assert found["gpuInfo"]["pricePerHourCents"] * 2 == found["pricePerHourCents"] if each else True
        return found

    cpu, each = kind == "CPUs", kind != "CPUs"
    asked = {"gpuCount": None, "resourceSize": "cpu-small"} if cpu else {"gpuCount": 2}
    made = world.running(world.buyer, **asked)
    model = GpuModel.objects.get()
    before = detail()["pricePerHourCents"]
    if cpu:
        ResourceSize.objects.filter(slug="cpu-small").update(cents_per_hour=300)
    else:
        to = world.buyer if kind == "an organization's own price" else None
        prices.set_price(
            actor=OPERATOR, gpu_model=model, tier="community", cents_per_gpu_hour=150, organization=to
        )
    assert detail()["pricePerHourCents"] == before
    world.client(world.buyer).post(f"/v1/vms/{made.pk}/stop")
    assert detail()["pricePerHourCents"] == burn(world, made)["pricePerHourCents"] == 300
    # Where it is for sale no more, what it last cost.
    GpuPrice.objects.all().delete()
    ResourceSize.objects.filter(slug="cpu-small").delete()
    assert detail()["pricePerHourCents"] == before
    world.terminate(world.buyer, made)
    assert detail()["pricePerHourCents"] == before


def test_the_rate_is_the_one_of_the_moment_it_comes_to_run(world: World, clock: Clock) -> None:
    made = world.vm(world.buyer, gpuCount=2)
    model = GpuModel.objects.get()
    shown = burn(world, made)
    assert (shown["rateSource"], shown["pricePerHourCents"], shown["perGpuCents"]) == ("catalog", 400, 200)
    assert "sessionStartedAt" not in shown
    assert "accruedSessionCents" not in shown
    prices.set_price(actor=OPERATOR, gpu_model=model, tier="community", cents_per_gpu_hour=300)
    assert burn(world, made)["pricePerHourCents"] == 600
    world.says((made, "running"))
    prices.set_price(actor=OPERATOR, gpu_model=model, tier="community", cents_per_gpu_hour=900)
    shown = burn(world, made)
    assert (shown["rateSource"], shown["pricePerHourCents"], shown["perGpuCents"]) == ("locked", 600, 300)
    seen = world.client(world.buyer).get(f"/v1/vms/{made.pk}").json()
    assert seen["pricePerHourCents"] == 600


def test_an_organization_may_have_a_rate_of_its_own(world: World) -> None:
    model = GpuModel.objects.get()
    prices.set_price(
        actor=OPERATOR, gpu_model=model, tier="community", cents_per_gpu_hour=150, organization=world.buyer
    )
    for org, cents in ((world.buyer, 150), (world.tenant, 200)):
        listed = world.client(org).get("/v1/pricing").json()
        rates = {row["tier"]: row["pricePerHourCents"] for row in listed["gpu"]}
        assert rates == {"community": cents, "verified": 250, "spot": 90}
        assert sessions(world.running(org))[0].cents_per_hour == cents
    assert prices.drop_org_price(actor=OPERATOR, organization=world.buyer, gpu_model=model, tier="community")
    assert not prices.drop_org_price(
        actor=OPERATOR, organization=world.buyer, gpu_model=model, tier="community"
    )
    assert prices.rate(model.pk, "community", world.buyer.pk) == 200


def test_a_provider_on_its_own_node_under_its_own_reservation_pays_nothing(
    world: World, clock: Clock
) -> None:
    own = World(world.node, world.provider, world.provider, world.buyer)
    own.reserve(0, 1)
    made = own.running(world.provider, gpuCount=2, nodeId=str(world.node.pk))
    open_too = own.running(world.provider, gpuCount=1)
    clock.advance(3600)
    factories.online(world.node)
    shown = burn(own, made)
    assert (shown["nonBillable"], shown["pricePerHourCents"], shown["accruedSessionCents"]) == (True, 400, 0)
    shown = burn(own, open_too)
    assert shown["nonBillable"] is False
    assert (shown["orgBurnPerHourCents"], shown["orgAccruedCents"] // 10) == (200, 20)


def test_a_provider_pays_from_the_next_start_on_once_its_reservation_is_cancelled(
    world: World, clock: Clock
) -> None:
    clock.freeze()
    own = World(world.node, world.provider, world.provider, world.buyer)
    reservation = own.reserve(0)
    made = own.running(world.provider, gpuCount=1, nodeId=str(world.node.pk))
    amending.cancel(caller=factories.operator(), node_id=world.node.pk, reservation_id=reservation.pk)
    assert burn(own, made)["nonBillable"] is True
    clock.advance(91)
    tasks.sweep_lost_nodes()
    assert state(made) == ("interrupted", "node_lost")
    own.says((made, "running"))
    assert [session.non_billable for session in sessions(made)] == [True, False]
    shown = burn(own, made)
    assert (shown["nonBillable"], shown["orgBurnPerHourCents"]) == (False, 200)


def test_a_spot_sale_on_released_units_names_the_hold_it_was_in(world: World) -> None:
    reservation = world.reserve(*range(8))
    world.release(reservation, 3)
    made = world.running(world.buyer, tier="spot")
    (session,) = sessions(made)
    (unit,) = session.units.all()
    assert (unit.hold_id, unit.released, unit.own) == (reservation.pk, True, False)
    capacity.reclaim(
        caller=factories.operator(),
        node_id=world.node.pk,
        reservation_id=reservation.pk,
        unit_ids=[factories.address(3)],
    )
    (session,) = sessions(made)
    assert session.end_reason == "spot_reclaimed_by_capacity_owner"
    (unit,) = session.units.all()
    assert unit.released


@pytest.mark.parametrize("notices", ["sweep", "user"])
def test_nobody_pays_for_a_silent_node_however_late_that_is_noticed(
    world: World, clock: Clock, notices: str
) -> None:
    made = world.running(world.buyer)
    factories.online(world.node)
    seen_at = NodeHeartbeat.objects.get(node=world.node).seen_at
    assert seen_at is not None
    clock.advance(7200)
    if notices == "sweep":
        tasks.sweep_lost_nodes()
        assert state(made) == ("interrupted", "node_lost")
        assert made.interrupted_at == seen_at + dt.timedelta(seconds=90)
    else:
        world.terminate(world.buyer, made)
        assert state(made) == ("terminated", "user_terminated")
    (session,) = sessions(made)
    assert session.ended_at == seen_at + dt.timedelta(seconds=90)
    world.says((made, "running"))
    assert len(sessions(made)) == (2 if notices == "sweep" else 1)


def test_nobody_pays_past_a_nodes_announced_end(world: World, clock: Clock) -> None:
    made = world.running(world.buyer)
    end = clock.now() + dt.timedelta(minutes=5)
    Node.objects.filter(pk=world.node.pk).update(terminate_at=end)
    clock.advance(3600)
    factories.online(world.node)
    tasks.sweep_leaving_nodes()
    assert state(made) == ("terminated", "node_removed")
    assert [session.ended_at for session in sessions(made)] == [end]


def test_a_session_that_is_closed_at_once_is_of_no_length(world: World, clock: Clock) -> None:
    made = world.running(world.buyer)
    (session,) = sessions(made)
    # A heartbeat that was never written, as if the node had been lost before.
    NodeHeartbeat.objects.filter(node=world.node).update(seen_at=session.started_at - dt.timedelta(hours=1))
    world.terminate(world.buyer, made)
    (session,) = sessions(made)
    assert session.ended_at == session.started_at


def test_two_sessions_of_a_workload_never_overlap(world: World) -> None:
    made = world.running(world.buyer)
    (session,) = sessions(made)
    session.pk = None
    session.started_at += dt.timedelta(hours=1)
    with pytest.raises(IntegrityError, match="one_session_at_a_time"), transaction.atomic():
        UsageSession(**{f.attname: getattr(session, f.attname) for f in session._meta.fields[1:]}).save()


def test_many_short_sessions_cost_what_one_long_one_does(world: World, clock: Clock) -> None:
    start = clock.freeze(database_clock.read())
    made = world.vm(world.buyer, gpuCount=1)
    api = world.client(world.buyer)
    for turn in range(10):
        world.says((made, "running"))
        clock.freeze(
            start + dt.timedelta(seconds=17.5 * (turn + 1))
        )  # 200 cents an hour: a cent is 18 seconds
        assert api.post(f"/v1/vms/{made.pk}/stop").status_code == 200
        world.says((made, "gone"))
        assert api.post(f"/v1/vms/{made.pk}/restart").status_code == 200
    assert len(sessions(made)) == 10
    assert burn(world, made)["orgAccruedCents"] == 9


def test_runway_is_what_is_left_over_what_is_spent(world: World, clock: Clock) -> None:
    idle = world.vm(world.buyer)
    shown = burn(world, idle)
    assert shown["projectedRunwayHours"] is None
    assert (shown["orgBurnPerHourCents"], shown["orgAvailableCents"]) == (0, 0)
    Organization.objects.filter(pk=world.buyer.pk).update(balance_cents=10_000)
    clock.freeze(database_clock.read())
    world.says((idle, "running"))
    shown = burn(world, idle)
    assert (shown["projectedRunwayHours"], shown["orgAvailableCents"]) == (50.0, 10_000)
    clock.freeze(clock.now() + dt.timedelta(hours=60))
    shown = burn(world, idle)
    assert (shown["projectedRunwayHours"], shown["orgAvailableCents"]) == (0.0, -2000)
    assert (shown["orgAccruedCents"], shown["orgAccruedMonthCents"]) == (12_000, 12_000)


def test_the_price_list_for_everybody_takes_no_credential(world: World, client: Any) -> None:
    factories.gpu_model("amd-mi300x", name="AMD MI300X", manufacturer="AMD", vram_gb=192)
    GpuPrice.objects.filter(gpu_model__slug="amd-mi300x", tier="verified").delete()
    answer = client.get("/v1/public/pricing")
    assert answer.status_code == 200
    (row,) = answer.json()["gpu"]
    assert (row["communityCents"], row["verifiedCents"], row["vramGb"]) == (200, 250, 80)
    assert answer.json()["model"] == []


def test_locations_sizes_and_disk_limits_are_told(world: World) -> None:
    Location.objects.create(
        slug="oslo-1", name="Oslo 1", city="Oslo", country="NO", region="eu-north", latitude=59.9
    )
    (place,) = world.client(world.buyer).get("/v1/locations").json()
    assert place["region"] == "eu-north"
    assert "longitude" not in place
    told = world.client(world.buyer).get("/v1/pricing").json()
    assert told["vmDisk"] == {"minGb": 10, "maxGb": 1_000_000}
    assert told["cpu"][0] == {"resourceSize": "cpu-small", "vcpu": 2, "ramMb": 4096, "pricePerHourCents": 4}


def test_a_vm_that_names_no_image_starts_from_the_default_template(world: World) -> None:
    default = VmTemplate.objects.get(is_default=True)

    def starts_from(**body: Any) -> str | None:
        made = world.vm(world.buyer, **body)
        detail = world.client(world.buyer).get(f"/v1/vms/{made.pk}/detail").json()
        found: str | None = world.work()[str(made.pk)]["spec"].get("template")
        assert (made.template.filename if made.template else None) == found
        assert detail.get("templateInfo", {}).get("name") == (made.template.name if made.template else None)
        world.terminate(world.buyer, made)
        world.says((made, "gone"))
        return found

    sized: dict[str, Any] = {"gpuCount": None, "resourceSize": "cpu-small"}
    for body in ({}, {"gpuModelId": str(factories.gpu_model().pk)}, {"nodeId": None}, sized):
        assert starts_from(**body) == default.filename
    assert starts_from(imageUrl="https://images.example.com/a.qcow2") is None
    other = VmTemplate.objects.get(slug="ubuntu-24-04-cuda")
    model_id = str(factories.gpu_model().pk)
    assert starts_from(templateId=str(other.pk), gpuModelId=model_id) == other.filename
    # What does not suit the VM is nothing to start it from.
    VmTemplate.objects.filter(pk=default.pk).update(requires_gpu=True, manufacturer="NVIDIA")
    assert starts_from(gpuModelId=model_id) == default.filename
    for body in ({}, sized):
        assert starts_from(**body) is None
    VmTemplate.objects.filter(pk=default.pk).update(requires_gpu=False, manufacturer="AMD")
    assert starts_from(**sized) == default.filename
    assert starts_from(gpuModelId=model_id) is None
    default.gpu_models.add(factories.gpu_model())
    assert starts_from(gpuModelId=model_id) == default.filename
    VmTemplate.objects.filter(pk=default.pk).update(offered=False)
    for body in ({"gpuModelId": model_id}, sized):
        assert starts_from(**body) is None


def test_a_template_must_suit_the_gpu_and_reaches_the_node(world: World) -> None:
    listed = {row["slug"]: row for row in world.client(world.buyer).get("/v1/vm-templates").json()}
    model = GpuModel.objects.get()
    cuda, rocm, plain = (listed[f"ubuntu-24-04{end}"] for end in ("-cuda", "-rocm", ""))
    assert cuda["compatibleGpuModelIds"] == [str(model.pk)]
    assert rocm["compatibleGpuModelIds"] == []
    assert plain["compatibleGpuModelIds"] is None
    assert plain["isDefault"]
    model_id = str(model.pk)
    made = world.vm(world.buyer, templateId=cuda["id"], gpuModelId=model_id)
    assert world.work()[str(made.pk)]["spec"]["template"] == cuda["filename"]
    world.vm(world.buyer, templateId=plain["id"])
    for body, words in (
        ({"templateId": rocm["id"], "gpuModelId": model_id}, ("does not suit", model.name)),
        ({"templateId": cuda["id"]}, ("gpuModelId",)),
        ({"templateId": str(model.pk)}, ("names no VM template",)),
        ({"templateId": plain["id"], "imageUrl": "https://example.com/a.img"}, ("imageUrl",)),
    ):
        refused(world.ask(world.buyer, **body), 400, "VALIDATION_ERROR", *words)
    VmTemplate.objects.filter(pk=plain["id"]).update(offered=False)
    refused(world.ask(world.buyer, templateId=plain["id"]), 400, "VALIDATION_ERROR", "templateId")


def test_a_manufacturer_is_the_same_however_it_is_spelled(world: World) -> None:
    GpuModel.objects.update(manufacturer="NVIDIA")
    model_id = str(GpuModel.objects.get().pk)
    listed = {row["slug"]: row for row in world.client(world.buyer).get("/v1/vm-templates").json()}
    cuda = listed["ubuntu-24-04-cuda"]
    assert cuda["compatibleGpuModelIds"] == [model_id]
    assert world.vm(world.buyer, templateId=cuda["id"], gpuModelId=model_id).template is not None


def test_operators_set_prices_by_command(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    model, slug = GpuModel.objects.get(), world.buyer.slug
    call_command("set_price", model.slug, "spot", "70")
    call_command("set_price", model.slug, "spot", "60", org=slug)
    assert prices.rate(model.pk, "spot", world.tenant.pk) == 70
    assert prices.rate(model.pk, "spot", world.buyer.pk) == 60
    call_command("set_price", model.slug, "spot", "drop", org=slug)
    assert prices.rate(model.pk, "spot", world.buyer.pk) == 70
    assert "70 cents" in capsys.readouterr().out
    for wrong in (["none", "spot", "1"], [model.slug, "spot", "-1"], [model.slug, "spot", "drop"]):
        with pytest.raises(CommandError):
            call_command("set_price", *wrong)
    with pytest.raises(CommandError, match="no organization"):
        call_command("set_price", model.slug, "spot", "1", org="none")
