"""What the review screen compares, what it says would happen, and what it refuses."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from compute.models import Occupancy, Run
from nodes.models import Node
from openrelay.audit.models import AuditEvent
from openrelay.console.forms import ReasonForm
from openrelay.core import clock
from reservations.models import Reservation
from reservations.services import booking, effects
from reservations.services.review import Change, Shape, compare, review
from tests import factories
from tests.console.world import World
from tests.reservations import makers

H100 = Shape("vfio-group", UUID(int=1), "H100", 1)
H200 = Shape("vfio-group", UUID(int=2), "H200", 1)
PAIR = Shape("vfio-group", UUID(int=1), "H100", 2)
POD = Shape("device-request", UUID(int=1), "H100", 1)


@pytest.mark.parametrize(
    ("now", "differences"),
    [
        (H100, ()),
        (H200, ("model H100 → H200",)),
        (PAIR, ("1 → 2 GPUs",)),
        (POD, ("class vfio-group → device-request",)),
        (Shape("device-request", UUID(int=2), "H200", 4), 3),
    ],
)
def test_a_unit_changed_by_class_model_or_count(now: Shape, differences: Any) -> None:
    (found,) = compare({"a": H100}, {"a": now})
    if isinstance(differences, int):
        assert len(found.differences) == differences
    else:
        assert found.differences == differences
    assert found.change is (Change.CHANGED if found.differences else Change.SAME)
    assert found.class_changed == (now.alloc_class != H100.alloc_class)


def test_units_are_gone_new_or_were_never_reserved() -> None:
    found = compare({"a": H100, "b": H100}, {"b": H100, "c": H100, "d": H100}, {"a", "b", "d"})
    assert [(unit.address, unit.change) for unit in found] == [
        ("a", Change.GONE),
        ("b", Change.SAME),
        ("c", Change.NEW),
        ("d", Change.OTHER),
    ]


def test_a_model_renamed_is_the_same_model() -> None:
    renamed = Shape("vfio-group", UUID(int=1), "NVIDIA H100", 1)
    assert compare({"a": H100}, {"a": renamed})[0].change is Change.SAME


def test_the_review_shows_each_generation_since_with_its_report(world: World) -> None:
    reservation = world.reserve(0, 2, 7)
    world.change()
    factories.inventory(world.node, 8)
    shown = review(reservation.pk)
    assert [generation.number for generation in shown.history] == [2, 3]
    assert [generation.report.sequence for generation in shown.history if generation.report] == [2, 3]
    # Everything is as it was, and needs review all the same.
    assert {row.compared.change for row in shown.reserved} == {Change.SAME}
    assert shown.in_review
    assert shown.obstacles == ()


def test_gone_and_reclassed_units_keep_it_from_being_reaffirmed(world: World) -> None:
    reservation = world.reserve(0, 1, 2)
    units = [factories.unit_report(0), factories.unit_report(1, allocClass="device-request")]
    factories.inventory(world.node, units)
    shown = review(reservation.pk)
    assert len(shown.obstacles) == 2
    assert "0000:12:00.0 is gone" in shown.obstacles


def test_cancelling_is_told_unit_by_unit(world: World) -> None:
    reservation = world.reserve(0, 1, 2, 3, 4)
    world.workload(world.other, 0, name="notebook")
    gone = world.workload(world.other, 1, name="leaving")
    makers.terminate(gone)
    units = [factories.unit_report(number) for number in range(4)]
    units[2]["gpus"][0]["healthy"] = False
    factories.inventory(world.node, units)
    told = effects.of_cancelling(review(reservation.pk))
    assert told == [
        "The reservation ends now, for good.",
        "0000:13:00.0 becomes free to the public now.",
        "0000:10:00.0 and 0000:11:00.0: free to the public once what runs there has stopped.",
        "0000:12:00.0 stays unusable: GPU 0000:12:00.0 failed.",
        "0000:14:00.0 is gone from the node; nobody can place there.",
        "1 workload of other orgs keeps running; nothing is stopped.",
    ]


def test_cancelling_before_the_start_frees_nothing_that_was_not_kept(world: World) -> None:
    start = clock.read() + timedelta(days=2)
    reservation = world.reserve(0, starts_at=start, ends_at=start + timedelta(days=1))
    told = effects.of_cancelling(review(reservation.pk))
    assert told[0] == f"The reservation never begins; it was to begin {clock.rfc3339(start)}."
    assert not any("public now" in sentence for sentence in told)


def test_an_audience_that_shrinks_leaves_workloads_running(world: World) -> None:
    reservation = world.reserve(0, audience=[str(world.tenant.pk), str(world.other.pk)])
    world.workload(world.tenant, 0, name="trainer")
    told = effects.of_audience(review(reservation.pk), [], [world.tenant])
    assert told[1] == (
        "trainer of Acme Research keeps running; "
        "once it stops, only the audience places on 0000:10:00.0 again."
    )
    assert "The audience is then Bystander Labs and Platform." in told


def test_the_review_takes_as_many_queries_however_large_the_node(world: World) -> None:
    few = world.reserve(0)
    world.workload(world.other, 0)
    with CaptureQueriesContext(connection) as small:
        review(few.pk)
    big = Node.objects.get(pk=factories.node(world.provider, units=64).pk)
    larger = World(**{**world.__dict__, "node": big}).reserve(*range(40))
    for number in range(20):
        makers.workload(big, world.other, [number], name=f"w{number}")
    with CaptureQueriesContext(connection) as large:
        review(larger.pk)
    assert len(large) == len(small) <= 16


def decide(client: Client, reservation: Reservation, choice: str, **fields: Any) -> Any:
    """Post a decision on the reservation as it is now, unless `fields` say what was shown."""
    shown = review(reservation.pk).shown
    data = {
        "choice": choice,
        "generation": shown.generation,
        "updated_at": shown.updated_at.isoformat(),
        "reason": "because",
        **fields,
    }
    return client.post(reverse("admin:reservations_reservation_confirm", args=[reservation.pk]), data)


def status(reservation: Reservation) -> str:
    return str(Reservation.objects.with_status(clock.Now()).get(pk=reservation.pk).status)


def test_two_operators_do_not_undo_each_other_unseen(console: Client, world: World) -> None:
    reservation = world.reserve(0)
    before = review(reservation.pk).shown.updated_at.isoformat()
    answer = decide(console, reservation, "audience", add=world.other.slug)
    assert answer.status_code == 302
    answer = decide(console, reservation, "audience", add=world.provider.slug, updated_at=before)
    assert answer.status_code == 409
    assert "changed meanwhile" in answer.content.decode()
    found = Reservation.objects.with_facts(clock.Now()).get(pk=reservation.pk)
    assert set(found.audience_ids) == {world.tenant.pk, world.other.pk, world.platform.pk}


@pytest.mark.parametrize("choice", ["reaffirm", "cancel", "audience", "end"])
def test_no_decision_on_an_older_generation_is_taken(console: Client, world: World, choice: str) -> None:
    reservation = world.reserve(0, 1)
    world.change()
    extra = {"audience": {"add": world.other.slug}, "end": {"no_end": "on"}}.get(choice, {})
    answer = decide(console, reservation, choice, generation=1, **extra)
    assert answer.status_code == 409
    assert "The node changed meanwhile" in answer.content.decode()
    assert status(reservation) == "needs-review"
    event = AuditEvent.objects.get(target_id=str(reservation.pk), actor__startswith="user:")
    assert (event.event, event.after["status"]) == ("request.refused", 409)


def test_what_cannot_be_reaffirmed_is_refused_with_the_reason(console: Client, world: World) -> None:
    reservation = world.reserve(0, 7)
    world.change()
    answer = decide(console, reservation, "reaffirm")
    assert answer.status_code == 409
    assert "0000:17:00.0 is gone" in answer.content.decode()
    assert status(reservation) == "needs-review"


def test_an_end_that_clashes_is_refused_with_the_other_reservation(console: Client, world: World) -> None:
    end = clock.read() + timedelta(days=2)
    first = world.reserve(0, ends_at=end)
    second = world.reserve(0, starts_at=end, ends_at=end + timedelta(days=1))
    answer = decide(console, first, "end", no_end="on")
    assert answer.status_code == 409
    assert str(second.pk) in answer.content.decode()


def test_a_viewer_is_refused_and_the_attempt_is_noted(world: World) -> None:
    reservation = world.reserve(0)
    client = Client()
    client.force_login(world.viewer)
    answer = decide(client, reservation, "cancel")
    assert answer.status_code == 403
    assert "reservation.manage" in answer.content.decode()
    assert status(reservation) == "active"
    refused = AuditEvent.objects.get(event="request.refused")
    assert (refused.actor, refused.target_id) == (f"user:{world.viewer.pk}", str(reservation.pk))


def test_an_operator_elsewhere_than_their_role_serves_from_is_refused_and_it_is_noted(
    console: Client, world: World
) -> None:
    reservation = world.reserve(0)
    role = factories.role(
        world.platform, world.operator, ip_ranges=["192.0.2.0/24"], permissions=factories.EVERYTHING
    )
    world.operator.memberships.update(role="", custom_role=role)
    answer = decide(console, reservation, "cancel")
    assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/console/login/")
    assert status(reservation) == "active"
    refused = AuditEvent.objects.get(event="request.refused")
    assert (refused.actor, refused.source_ip) == (f"user:{world.operator.pk}", "127.0.0.1")
    assert str(reservation.pk) in refused.target_id
    assert (refused.after["deniedBy"], refused.after["status"]) == ("role", 403)


def test_a_role_narrowed_between_the_page_and_the_decision_refuses_and_it_is_noted(
    console: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = world.reserve(0)
    role = factories.role(
        world.platform, world.operator, ip_ranges=["192.0.2.0/24"], permissions=factories.EVERYTHING
    )
    asked = ReasonForm.is_valid

    def narrowed(form: ReasonForm) -> bool:
        world.operator.memberships.update(role="", custom_role=role)
        return asked(form)

    monkeypatch.setattr(ReasonForm, "is_valid", narrowed)
    answer = decide(console, reservation, "cancel")
    assert answer.status_code == 403
    assert status(reservation) == "active"
    refused = AuditEvent.objects.get(event="request.refused")
    assert (refused.actor, refused.target_id) == (f"user:{world.operator.pk}", str(reservation.pk))
    assert refused.after["deniedBy"] == "role"


def test_a_decision_without_a_token_of_the_form_is_refused(world: World) -> None:
    reservation = world.reserve(0)
    client = Client(enforce_csrf_checks=True)
    client.force_login(world.operator)
    assert decide(client, reservation, "cancel").status_code == 403
    assert status(reservation) == "active"


def test_a_decision_on_what_has_ended_changes_nothing(console: Client, world: World) -> None:
    reservation = world.reserve(0)
    assert decide(console, reservation, "cancel").status_code == 302
    answer = decide(console, reservation, "cancel")
    assert answer.status_code == 200
    assert "Nothing is left to decide" in answer.content.decode()
    assert AuditEvent.objects.filter(event="reservation.cancelled").count() == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"choice": "explode"},
        {"generation": "many"},
        {"generation": "99999999999999999999"},
        {"updated_at": "yesterday"},
        {"updated_at": "0001-01-01T00:00:00+14:00"},
        {"reason": "x\x00y"},
        {"reason": "x" * 501},
    ],
)
def test_odd_input_is_refused(console: Client, world: World, fields: dict[str, str]) -> None:
    reservation = world.reserve(0)
    answer = decide(console, reservation, fields.pop("choice", "cancel"), **fields)
    assert answer.status_code in (400, 409)
    assert status(reservation) == "active"


def test_an_invented_reservation_leads_back_to_the_queue(console: Client) -> None:
    url = reverse("admin:reservations_reservation_review", args=[UUID(int=5)])
    answer = console.get(url, follow=True)
    assert "There is no such reservation" in answer.content.decode()


def test_an_operators_word_frees_a_unit_whose_node_is_silent(console: Client, world: World) -> None:
    made = world.workload(world.other, 0)
    makers.terminate(made)
    run = Run.objects.get(workload=made)
    url = reverse("admin:compute_run_override", args=[run.pk])
    assert "0000:10:00.0" in console.get(url).content.decode()
    assert console.post(url, {"reason": " "}).status_code == 400
    answer = console.post(url, {"reason": "The host burnt down"})
    assert answer.status_code == 302
    occupancy = Occupancy.objects.get(run=run)
    assert occupancy.closed_at is not None
    assert occupancy.override_reason == "The host burnt down"
    assert console.post(url, {"reason": "Again"}).status_code == 409


def test_a_viewer_cannot_override(world: World) -> None:
    made = world.workload(world.other, 0)
    makers.terminate(made)
    run = Run.objects.get(workload=made)
    client = Client()
    client.force_login(world.viewer)
    answer = client.post(reverse("admin:compute_run_override", args=[run.pk]), {"reason": "I say so"})
    assert answer.status_code == 403
    assert AuditEvent.objects.filter(event="request.refused", target_id=str(run.pk)).exists()
    assert Occupancy.objects.get(run=run).closed_at is None


@pytest.mark.django_db
def test_the_review_shows_a_card_that_changed() -> None:
    provider, tenant = factories.organization(is_provider=True), factories.organization()
    units = [factories.unit_report(0), factories.unit_report(1)]
    units[0]["gpus"][0]["serial"] = "old"
    node = factories.node(provider, units)
    made = booking.reserve(
        caller=factories.operator(),
        node_id=node.pk,
        unit_ids=[factories.address(0)],
        allowed_org_ids=[str(tenant.pk)],
    )
    units[0]["gpus"][0]["serial"] = "new"
    factories.inventory(node, units)
    shown = {row.address: row.cards for row in review(made.pk).rows}
    assert shown == {
        factories.address(0): ("card changed at 0000:10:00.0: serial old → new",),
        factories.address(1): (),
    }
