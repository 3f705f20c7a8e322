"""Release and reclaim: by whom, in which state, and exactly whom a reclaim ends."""

import datetime as dt
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from compute.models import Occupancy, Workload
from nodes.models import HoldUnit
from openrelay.audit.models import AuditEvent
from openrelay.core import clock as database_clock
from openrelay.core.clock import rfc3339
from reservations.services import booking, capacity
from reservations.services.invariants import violations
from tests import factories
from tests.reservations import makers
from tests.reservations.conftest import Fleet, refused

RECLAIMED = ("terminated", "spot_reclaimed_by_capacity_owner")
LISTS = {"terminated", "skipped", "wouldTerminate", "wouldSkip"}


def units(*numbers: int) -> list[str]:
    return [factories.address(number) for number in numbers]


def in_hours(hours: float) -> str:
    return rfc3339(database_clock.read() + dt.timedelta(hours=hours))


def ids(*workloads: Workload) -> list[str]:
    return sorted(str(workload.pk) for workload in workloads)


# Release


def test_released_units_show_and_are_the_reservations_still(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1, 2)
    answer = fleet.act("release", made, unitIds=units(1, 0, 1), reason="idle")
    assert answer.status_code == 200, answer.content
    released = answer.json()
    assert released["releasedUnitIds"] == units(0, 1)
    assert released["reservedUnitIds"] == units(0, 1, 2)
    assert released["updatedAt"] > made["updatedAt"]
    assert not LISTS & released.keys()
    listed = fleet.units()
    assert [listed[unit].get("released") for unit in units(0, 1, 2, 3)] == [True, True, False, None]
    event = AuditEvent.objects.get(target_id=made["id"], event="reservation.units_released")
    assert event.after == {"units": units(0, 1)}
    assert event.reason == "idle"


def test_release_is_safe_to_repeat(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1)
    first = fleet.act("release", made, unitIds=units(0)).json()
    assert fleet.act("release", made, unitIds=units(0)).json() == first
    fleet.act("release", made, unitIds=units(0, 1))
    events = AuditEvent.objects.filter(event="reservation.units_released").order_by("id")
    # A repeat that changes nothing is no event, and one that changes some tells of those.
    assert [event.after["units"] for event in events] == [units(0), units(1)]


@pytest.mark.parametrize("verb", ["release", "reclaim"])
@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"unitIds": []}, "VALIDATION_ERROR", "unitIds"),
        ({}, "VALIDATION_ERROR", "unitIds"),
        ({"unitIds": None}, "VALIDATION_ERROR", "unitIds"),
        ({"unitIds": [7]}, "VALIDATION_ERROR", "unitIds[0]"),
        ({"unitIds": units(0, 5)}, "UNIT_NOT_IN_RESERVATION", factories.address(5)),
        ({"unitIds": ["0000:ff:00.0"]}, "UNIT_NOT_IN_RESERVATION", "0000:ff:00.0"),
        ({"unitIds": units(0), "reason": "x" * 501}, "VALIDATION_ERROR", "reason"),
        ({"unitIds": units(0), "dryrun": True}, "VALIDATION_ERROR", "dryrun"),
    ],
)
def test_bad_units_are_named_and_nothing_moves(
    fleet: Fleet, verb: str, body: dict[str, Any], code: str, words: str
) -> None:
    made = fleet.reserved(0, 1)
    fleet.act("release", made, unitIds=units(1))
    before = fleet.read(made)
    refused(fleet.act(verb, made, **body), 400, code, words)
    assert fleet.read(made) == before


def test_release_takes_no_dry_run(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    refused(fleet.act("release", made, unitIds=units(0), dryRun=True), 400, "VALIDATION_ERROR", "dryRun")


@pytest.mark.parametrize("verb", ["release", "reclaim"])
def test_who_may_move_the_boundary(fleet: Fleet, verb: str) -> None:
    made = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
    for name, expected in (
        ("platform", 200),
        ("provider", 200),
        ("manager", 200),
        ("tenant", 404),
        ("outsider", 404),
    ):
        assert fleet.act(verb, made, by=name, unitIds=units(0)).status_code == expected, name


def test_managing_one_reservation_says_nothing_of_another_there(fleet: Fleet) -> None:
    fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
    other = fleet.reserved(1)
    for verb in ("release", "reclaim"):
        refused(fleet.act(verb, other, by="manager", unitIds=units(1)), 404, "NOT_FOUND")


@pytest.mark.parametrize("verb", ["release", "reclaim"])
@pytest.mark.parametrize("state", ["pending", "needs-review", "cancelled", "expired"])
def test_the_wrong_state_is_told_to_owner_and_operator_and_hidden_from_a_manager(
    fleet: Fleet, clock: Any, verb: str, state: str
) -> None:
    term = {"pending": {"startsAt": in_hours(1)}, "expired": {"endsAt": in_hours(1)}}.get(state, {})
    made = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)], **term)
    if state == "needs-review":
        fleet.reports(7)
    elif state == "cancelled":
        fleet.act("cancel", made)
    elif state == "expired":
        clock.advance(3600)
    code = "RESERVATION_ENDED" if state in ("cancelled", "expired") else "RESERVATION_NOT_ACTIVE"
    for name in ("platform", "provider"):
        refused(fleet.act(verb, made, by=name, unitIds=units(0)), 409, code, state)
    refused(fleet.act(verb, made, by="manager", unitIds=units(0)), 404, "NOT_FOUND")


def test_a_key_without_the_action_gets_404_on_its_own_node(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    secret = factories.api_key(fleet.provider, ["reservation.read", "provider.write", "compute.write"])
    client = fleet.client("provider")
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    assert fleet.get(by="provider").status_code == 200
    for verb in ("release", "reclaim"):
        refused(fleet.act(verb, made, by="provider", unitIds=units(0)), 404, "NOT_FOUND")


# Reclaim


def test_reclaim_ends_exactly_the_spot_workloads_on_the_named_units(fleet: Fleet) -> None:
    made = fleet.reserved(*range(8))
    fleet.act("release", made, unitIds=units(*range(8)))
    one, two = (makers.workload(fleet.node, fleet.outsider, [unit]) for unit in (0, 1))
    pair = makers.workload(fleet.node, fleet.outsider, [2, 3])
    four = makers.workload(fleet.node, fleet.outsider, [4, 5, 6, 7])
    answer = fleet.act("reclaim", made, by="provider", unitIds=units(1, 2), reason="ours")
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert body["terminated"] == ids(two, pair)
    assert body["skipped"] == []
    assert LISTS & body.keys() == {"terminated", "skipped"}
    # The boundary moves for what was named, not for what the evicted workload also had.
    assert body["releasedUnitIds"] == units(0, 3, 4, 5, 6, 7)
    assert makers.status(two) == makers.status(pair) == RECLAIMED
    assert makers.status(one) == makers.status(four) == ("running", "")
    assert makers.claimed(fleet.node).keys() == set(units(0, 4, 5, 6, 7))
    # The right is gone at once, the fact stays until the agent says so.
    assert Occupancy.objects.filter(closed_at=None).count() == 8
    assert violations() == []


def test_a_reclaim_of_three_is_four_events_of_one_request(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1, 2)
    fleet.act("release", made, unitIds=units(0, 1, 2))
    guests = [makers.workload(fleet.node, fleet.outsider, [unit]) for unit in (0, 1, 2)]
    before = set(AuditEvent.objects.values_list("pk", flat=True))
    answer = fleet.act("reclaim", made, unitIds=units(0, 1, 2), reason="back")
    events = list(AuditEvent.objects.exclude(pk__in=before))
    assert sorted(event.event for event in events) == ["reservation.units_reclaimed", *["vm.terminated"] * 3]
    assert {event.request_id for event in events} == {answer.headers["X-Request-Id"]}
    assert {event.reason for event in events} == {"back"}
    assert {event.target_id for event in events} == {made["id"], *ids(*guests)}
    # A workload's event is in the log of its own organization.
    assert {event.organization_id for event in events if event.target_type == "vm"} == {fleet.outsider.pk}


def test_reclaim_reaches_spot_on_units_that_were_never_released(fleet: Fleet) -> None:
    early = makers.workload(fleet.node, fleet.outsider, [0])
    made = fleet.reserved(0)
    body = fleet.act("reclaim", made, unitIds=units(0)).json()
    assert body["terminated"] == ids(early)
    assert makers.status(early) == RECLAIMED


def test_ordinary_workloads_are_skipped_and_run_on(fleet: Fleet) -> None:
    ordinary = makers.workload(fleet.node, fleet.outsider, [0], tier=makers.ORDINARY)
    tenants = makers.workload(fleet.node, fleet.tenant, [1, 2], tier="verified")
    made = fleet.reserved(0, 1, 2)
    body = fleet.act("reclaim", made, unitIds=units(0, 1, 2)).json()
    assert body["terminated"] == []
    assert body["skipped"] == ids(ordinary, tenants)
    assert makers.status(ordinary) == makers.status(tenants) == ("running", "")


def test_a_workload_spanning_reserved_and_open_units_goes_whole(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    wide = makers.workload(fleet.node, fleet.outsider, [0, 5])
    body = fleet.act("reclaim", made, unitIds=units(0)).json()
    assert body["terminated"] == ids(wide)
    assert makers.claimed(fleet.node) == {}


@pytest.mark.parametrize("state", ["pending", "deploying", "interrupted"])
def test_whatever_lives_with_a_claim_is_reclaimed(fleet: Fleet, state: str) -> None:
    made = fleet.reserved(0)
    guest = makers.workload(fleet.node, fleet.outsider, [0], status=state)
    fleet.act("reclaim", made, unitIds=units(0))
    assert makers.status(guest) == RECLAIMED


def test_a_dry_run_names_the_same_and_changes_nothing(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1, 2)
    fleet.act("release", made, unitIds=units(0, 1))
    guest = makers.workload(fleet.node, fleet.outsider, [0, 4])
    ordinary = makers.workload(fleet.node, fleet.tenant, [1], tier=makers.ORDINARY)
    before, events = fleet.read(made), AuditEvent.objects.count()
    dry = fleet.act("reclaim", made, unitIds=units(0, 1, 2), dryRun=True).json()
    assert LISTS & dry.keys() == {"wouldTerminate", "wouldSkip"}
    assert dry["wouldTerminate"] == ids(guest)
    assert dry["wouldSkip"] == ids(ordinary)
    assert {name: value for name, value in dry.items() if name not in LISTS} == before
    assert fleet.read(made) == before
    assert AuditEvent.objects.count() == events
    assert makers.status(guest) == ("running", "")
    real = fleet.act("reclaim", made, unitIds=units(0, 1, 2), dryRun=False).json()
    assert (real["terminated"], real["skipped"]) == (dry["wouldTerminate"], dry["wouldSkip"])


def test_an_empty_dry_run_shows_both_lists(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    dry = fleet.act("reclaim", made, unitIds=units(0), dryRun=True).json()
    assert (dry["wouldTerminate"], dry["wouldSkip"]) == ([], [])


def test_a_victim_already_gone_costs_nothing_and_a_repeat_is_empty(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1)
    fleet.act("release", made, unitIds=units(0, 1))
    gone = makers.workload(fleet.node, fleet.outsider, [0])
    there = makers.workload(fleet.node, fleet.outsider, [1])
    makers.terminate(gone)
    first = fleet.act("reclaim", made, unitIds=units(0, 1)).json()
    assert first["terminated"] == ids(there)
    again = fleet.act("reclaim", made, unitIds=units(0, 1))
    assert again.status_code == 200
    assert again.json()["terminated"] == []
    assert again.json()["updatedAt"] == first["updatedAt"]
    assert makers.status(gone) == ("terminated", "user_terminated")
    for workload in (gone, there):
        assert AuditEvent.objects.filter(target_id=workload.pk, event="vm.terminated").count() == 1
    assert AuditEvent.objects.filter(event="reservation.units_reclaimed").count() == 1


def test_no_other_answer_carries_the_four_lists(fleet: Fleet) -> None:
    made = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
    makers.workload(fleet.node, fleet.outsider, [0])
    fleet.act("release", made, unitIds=units(0))
    fleet.act("reclaim", made, unitIds=units(0))
    answers = [
        fleet.read(made),
        *fleet.get().json(),
        *fleet.client("tenant").get(f"/v1/orgs/{fleet.tenant.pk}/reservations").json(),
        fleet.amend(made, endsAt=in_hours(1)).json(),
        fleet.act("release", made, unitIds=units(0)).json(),
        fleet.act("cancel", made).json(),
    ]
    assert all(not LISTS & answer.keys() for answer in answers)


def test_a_cancelled_release_does_not_come_back_with_the_next_reservation(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    fleet.act("release", made, unitIds=units(0))
    fleet.act("cancel", made)
    again = fleet.reserved(0)
    assert again["releasedUnitIds"] == []
    assert fleet.units()[factories.address(0)]["released"] is False


# Dry run and real run, over random fleets


@st.composite
def scenes(draw: st.DrawFn) -> dict[str, Any]:
    """A node of eight units: what is reserved and released, who is where, what is to be taken back."""
    split = draw(st.permutations(range(8)))
    workloads, at = [], 0
    while at < 8:
        size = draw(st.integers(0, 3))
        if size:
            workloads.append((sorted(split[at : at + size]), draw(st.sampled_from(["spot", "community"]))))
        at += size or 1
    reserved = draw(st.sets(st.integers(0, 7), min_size=1))
    return {
        "workloads": workloads,
        "ended": draw(st.sets(st.integers(0, max(0, len(workloads) - 1)))),
        "reserved": sorted(reserved),
        "released": sorted(draw(st.sets(st.sampled_from(sorted(reserved))))),
        "named": sorted(draw(st.sets(st.sampled_from(sorted(reserved)), min_size=1))),
    }


class DryRun(TestCase):
    """What a dry run says is what the real run does, and what the rule says."""

    @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(scenes())
    def test_dry_run_and_reclaim_choose_the_same(self, scene: dict[str, Any]) -> None:
        provider, tenant = factories.organization(), factories.organization()
        node, operator = factories.node(provider), factories.operator()
        guests = [
            (makers.workload(node, tenant, place, tier=tier), set(place), tier)
            for place, tier in scene["workloads"]
        ]
        for number in scene["ended"]:
            if number < len(guests):
                makers.terminate(guests[number][0])
        live = [guest for number, guest in enumerate(guests) if number not in scene["ended"]]
        made = booking.reserve(
            caller=operator,
            node_id=node.pk,
            unit_ids=units(*scene["reserved"]),
            allowed_org_ids=[str(tenant.pk)],
        )
        if scene["released"]:
            HoldUnit.objects.filter(hold_id=made.pk, unit__address__in=units(*scene["released"])).update(
                released=True
            )
        call = {
            "caller": operator,
            "node_id": node.pk,
            "reservation_id": made.pk,
            "unit_ids": units(*scene["named"]),
        }
        claimed = makers.claimed(node)
        _, plan = capacity.reclaim(**call, dry_run=True)
        assert makers.claimed(node) == claimed
        _, real = capacity.reclaim(**call)
        named = set(scene["named"])
        on_named = [(guest.pk, tier) for guest, place, tier in live if place & named]
        spot = {pk for pk, tier in on_named if tier == "spot"}
        ordinary = {pk for pk, tier in on_named if tier != "spot"}
        assert {w.pk for w in plan.victims} == {w.pk for w in real.victims} == spot
        assert {w.pk for w in plan.skipped} == {w.pk for w in real.skipped} == ordinary
        ended = set(
            Workload.objects.filter(node=node, status_reason=RECLAIMED[1]).values_list("pk", flat=True)
        )
        assert ended == spot
        assert set(makers.claimed(node).values()) == {
            str(guest.pk) for guest, _, _ in live if guest.pk not in spot
        }
        assert violations() == []
