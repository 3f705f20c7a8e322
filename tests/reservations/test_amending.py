"""Changing a reservation: which mixes are accepted, and that a refused one changes nothing at all."""

import datetime as dt
from typing import Any

import pytest

from nodes.models import Hold, HoldUnit
from openrelay.audit.models import AuditEvent
from openrelay.core import clock as database_clock
from openrelay.core.clock import rfc3339
from reservations.services.invariants import violations
from tests import factories
from tests.reservations import makers
from tests.reservations.conftest import Fleet, refused


def in_hours(hours: float) -> str:
    return rfc3339(database_clock.read() + dt.timedelta(hours=hours))


def test_the_end_moves_and_opens_and_closes_again(fleet: Fleet) -> None:
    made = fleet.reserved(0, endsAt=in_hours(1))
    later = in_hours(5)
    assert fleet.amend(made, endsAt=later).json()["endsAt"] == later
    assert "endsAt" not in fleet.amend(made, endsAt="").json()
    hold = Hold.objects.get(pk=made["id"])
    assert hold.term.upper is None
    assert fleet.amend(made, endsAt=later).json()["endsAt"] == later
    assert "endsAt" not in fleet.amend(made, endsAt=None).json()
    assert violations() == []


def test_an_amended_term_reaches_every_held_unit(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1, 2, endsAt=in_hours(1))
    fleet.amend(made, endsAt=in_hours(3))
    hold = Hold.objects.get(pk=made["id"])
    assert {unit.term for unit in HoldUnit.objects.filter(hold=hold)} == {hold.term}


def test_the_start_is_fixed(fleet: Fleet) -> None:
    made = fleet.reserved(0, startsAt=in_hours(1))
    refused(fleet.amend(made, startsAt=in_hours(2)), 400, "VALIDATION_ERROR", "startsAt")
    assert fleet.read(made) == made


def test_any_mix_is_applied_at_once_and_audited_once(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    fleet.reports(7)
    end = in_hours(9)
    answer = fleet.amend(
        made,
        endsAt=end,
        allowedOrgIds=[str(fleet.outsider.pk)],
        managingOrgIds=[str(fleet.manager.pk)],
        reaffirm=True,
    )
    assert answer.status_code == 200, answer.content
    changed = answer.json()
    assert changed["endsAt"] == end
    assert set(changed["allowedOrgIds"]) == {str(fleet.outsider.pk), str(fleet.platform.pk)}
    assert changed["managingOrgIds"] == [str(fleet.manager.pk)]
    assert changed["topologyGen"] == 2
    assert changed["status"] == "active"
    assert changed["updatedAt"] > made["updatedAt"]
    assert changed["createdAt"] == made["createdAt"]
    events = AuditEvent.objects.filter(target_id=made["id"], event__in=AMENDED)
    event = events.get()
    assert event.before["topologyGen"] == 1
    assert event.after["topologyGen"] == 2
    assert "units" not in event.after  # only what changed


AMENDED = ("reservation.amended", "reservation.reaffirmed")


@pytest.mark.parametrize(
    "body",
    [
        {"reaffirm": False},
        {"reaffirm": True},
        {"endsAt": ""},
        {"endsAt": None},
        {"managingOrgIds": []},
    ],
)
def test_a_change_of_nothing_is_refused(fleet: Fleet, body: dict[str, Any]) -> None:
    made = fleet.reserved(0)
    refused(fleet.amend(made, **body), 400, "VALIDATION_ERROR")
    refused(fleet.amend(made, **body, allowedOrgIds=made["allowedOrgIds"]), 400, "VALIDATION_ERROR")
    # The platform's organization is there whether or not it is named.
    refused(fleet.amend(made, **body, allowedOrgIds=[str(fleet.tenant.pk)]), 400, "VALIDATION_ERROR")
    assert fleet.read(made) == made
    assert not AuditEvent.objects.filter(event__in=AMENDED).exists()


def test_an_empty_body_is_refused(fleet: Fleet) -> None:
    refused(fleet.amend(fleet.reserved(0)), 400, "VALIDATION_ERROR", "endsAt", "reaffirm")


def test_the_platform_joins_a_changed_audience(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    changed = fleet.amend(made, allowedOrgIds=[str(fleet.outsider.pk)]).json()
    assert set(changed["allowedOrgIds"]) == {str(fleet.outsider.pk), str(fleet.platform.pk)}


def test_managers_are_replaced_and_taken_away(fleet: Fleet) -> None:
    made = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
    changed = fleet.amend(made, managingOrgIds=[str(fleet.outsider.pk), str(fleet.outsider.pk)]).json()
    assert changed["managingOrgIds"] == [str(fleet.outsider.pk)]
    assert fleet.amend(made, managingOrgIds=[]).json()["managingOrgIds"] == []


def test_removing_an_organization_leaves_its_workloads_running(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    guest = makers.workload(fleet.node, fleet.tenant, [0], tier=makers.ORDINARY)
    fleet.amend(made, allowedOrgIds=[str(fleet.outsider.pk)])
    assert makers.status(guest) == ("running", "")
    assert makers.claimed(fleet.node) == {factories.address(0): str(guest.pk)}


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"allowedOrgIds": []}, "VALIDATION_ERROR", "allowedOrgIds"),
        ({"allowedOrgIds": None}, "VALIDATION_ERROR", "allowedOrgIds"),
        ({"allowedOrgIds": ["0198c0de-0000-7000-8000-000000000000"]}, "UNKNOWN_ORG", "0198c0de"),
        ({"managingOrgIds": ["nobody"]}, "UNKNOWN_ORG", "nobody"),
        ({"endsAt": "2001-01-01T00:00:00Z"}, "VALIDATION_ERROR", "endsAt"),
        ({"endsAt": "2127-01-01T00:00:00"}, "VALIDATION_ERROR", "endsAt"),
        ({"endsAt": 5}, "VALIDATION_ERROR", "endsAt"),
        ({"reaffirm": "yes"}, "VALIDATION_ERROR", "reaffirm"),
        ({"unitIds": []}, "VALIDATION_ERROR", "unitIds"),
    ],
)
def test_one_bad_field_leaves_all_as_it_was(
    fleet: Fleet, body: dict[str, Any], code: str, words: str
) -> None:
    made = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
    good = {"endsAt": in_hours(7), "allowedOrgIds": [str(fleet.outsider.pk)], "managingOrgIds": []}
    refused(fleet.amend(made, **{**good, **body}), 400, code, words)
    assert fleet.read(made) == made


def test_a_clash_leaves_every_field_as_it_was(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1, endsAt=in_hours(2))
    other = fleet.reserved(1, startsAt=in_hours(3))
    answer = fleet.amend(made, endsAt=in_hours(4), allowedOrgIds=[str(fleet.outsider.pk)])
    sentence = refused(answer, 409, "RESERVATION_OVERLAP", factories.address(1), other["id"])
    assert factories.address(0) not in sentence
    assert fleet.read(made) == made


def test_an_end_exactly_where_the_next_begins_is_no_clash(fleet: Fleet) -> None:
    start = in_hours(3)
    made = fleet.reserved(0, endsAt=in_hours(2))
    fleet.reserved(0, startsAt=start)
    assert fleet.amend(made, endsAt=start).json()["endsAt"] == start
    later = rfc3339(dt.datetime.fromisoformat(start) + dt.timedelta(microseconds=1))
    refused(fleet.amend(made, endsAt=later), 409, "RESERVATION_OVERLAP")


def test_an_extended_reservation_keeps_its_units_past_the_old_end(fleet: Fleet, clock: Any) -> None:
    end = database_clock.read() + dt.timedelta(hours=1)
    made = fleet.reserved(0, 1, 2, 3, endsAt=rfc3339(end))
    fleet.amend(made, endsAt=rfc3339(end + dt.timedelta(hours=1)))
    clock.freeze(end)
    assert fleet.read(made)["status"] == "active"
    assert sum("reservationId" in unit for unit in fleet.units().values()) == 4
    clock.freeze(end + dt.timedelta(hours=1))
    assert fleet.read(made)["status"] == "expired"
    assert not any("reservationId" in unit for unit in fleet.units().values())


def test_a_term_of_24_hours_lasts_24_hours_over_a_change_of_clocks(fleet: Fleet) -> None:
    made = fleet.reserved(0, startsAt="2127-10-25T12:00:00+02:00", endsAt="2127-10-26T11:00:00+01:00")
    start, end = (dt.datetime.fromisoformat(made[name]) for name in ("startsAt", "endsAt"))
    assert end - start == dt.timedelta(hours=24)


def test_an_end_before_a_pending_start_is_refused(fleet: Fleet) -> None:
    start = in_hours(2)
    made = fleet.reserved(0, startsAt=start)
    refused(fleet.amend(made, endsAt=start), 400, "VALIDATION_ERROR", "endsAt")
    refused(fleet.amend(made, endsAt=in_hours(1)), 400, "VALIDATION_ERROR", "endsAt")


def test_what_has_ended_cannot_be_changed_or_ended_again(fleet: Fleet, clock: Any) -> None:
    cancelled = fleet.reserved(0)
    fleet.act("cancel", cancelled)
    expired = fleet.reserved(1, endsAt=in_hours(1))
    clock.advance(3600)
    for reservation, status in ((cancelled, "cancelled"), (expired, "expired")):
        before = fleet.read(reservation)
        assert before["status"] == status
        refused(fleet.amend(reservation, endsAt=in_hours(9)), 409, "RESERVATION_ENDED", status)
        refused(fleet.amend(reservation, reaffirm=True), 409, "RESERVATION_ENDED", status)
        refused(fleet.act("cancel", reservation), 409, "RESERVATION_ENDED", status)
        assert fleet.read(reservation) == before


# Re-affirm


def test_reaffirming_pins_to_the_new_hardware(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1)
    factories.gpu_model("amd-mi300x", name="AMD MI300X", manufacturer="AMD", vram_gb=192)
    changed = [factories.unit_report(0, model="amd-mi300x", gpus=2), factories.unit_report(1)]
    fleet.reports(changed)
    assert fleet.read(made)["status"] == "needs-review"
    again = fleet.amend(made, reaffirm=True).json()
    assert again["status"] == "active"
    assert again["topologyGen"] == 2
    pinned = HoldUnit.objects.get(hold_id=made["id"], unit__address=factories.address(0))
    assert pinned.pinned_model.slug == "amd-mi300x"
    assert pinned.pinned_gpu_count == 2
    event = AuditEvent.objects.get(target_id=made["id"], event="reservation.reaffirmed")
    assert (event.before["topologyGen"], event.after["topologyGen"]) == (1, 2)


def test_reaffirming_with_units_gone_or_of_another_class_names_them(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1, 2)
    fleet.reports([factories.unit_report(0), factories.unit_report(1, allocClass="device-request")])
    before = fleet.read(made)
    sentence = refused(
        fleet.amend(made, reaffirm=True, endsAt=in_hours(1)),
        409,
        "TOPOLOGY_UNITS_MISSING",
        factories.address(1),
        "device-request",
        factories.address(2),
        "gone",
    )
    assert factories.address(0) not in sentence
    assert fleet.read(made) == before
    # The unit's return is a change of its own, after which the reservation can be affirmed.
    fleet.reports(3)
    assert fleet.read(made)["status"] == "needs-review"
    assert fleet.amend(made, reaffirm=True).json()["topologyGen"] == 3


def test_a_set_that_came_back_still_needs_review(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    fleet.reports(7)
    fleet.reports(8)
    shown = fleet.read(made)
    assert shown["status"] == "needs-review"
    assert shown["topologyGen"] == 1
    assert fleet.amend(made, reaffirm=True).json()["topologyGen"] == 3


def test_a_new_topology_after_reaffirming_needs_a_new_review(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    fleet.reports(7)
    fleet.amend(made, reaffirm=True)
    fleet.reports(6)
    assert fleet.read(made)["status"] == "needs-review"


def test_a_reservation_in_review_can_change_its_end_without_being_affirmed(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    fleet.reports(7)
    changed = fleet.amend(made, endsAt=in_hours(1)).json()
    assert changed["status"] == "needs-review"
    assert changed["topologyGen"] == 1


def test_health_is_no_reason_for_a_review(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    failed = factories.unit_report(0)
    failed["gpus"][0] |= {"healthy": False, "failure": "Xid 79"}
    fleet.reports([failed, *(factories.unit_report(n) for n in range(1, 8))])
    assert fleet.read(made)["status"] == "active"


# Cancel


@pytest.mark.parametrize("state", ["pending", "active", "needs-review"])
def test_a_live_reservation_is_cancelled_now(fleet: Fleet, state: str) -> None:
    made = fleet.reserved(0, 1, **({"startsAt": in_hours(1)} if state == "pending" else {}))
    if state == "needs-review":
        fleet.reports(7)
    assert fleet.read(made)["status"] == state
    answer = fleet.act("cancel", made)
    assert answer.status_code == 200
    ended = answer.json()
    assert ended["status"] == "cancelled"
    assert ended["reservedUnitIds"] == made["reservedUnitIds"]
    assert "endsAt" not in ended  # the contract is what it was
    assert ended["updatedAt"] > made["updatedAt"]
    hold = Hold.objects.get(pk=made["id"])
    assert hold.term.isempty == (state == "pending")
    event = AuditEvent.objects.get(target_id=made["id"], event="reservation.cancelled")
    assert event.before == {"status": state}
    # Its units are free for the next at once, for any term.
    fleet.reserved(1)
    assert violations() == []


def test_cancelling_leaves_workloads_running(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1)
    guests = [
        makers.workload(fleet.node, fleet.tenant, [0], tier=makers.ORDINARY),
        makers.workload(fleet.node, fleet.outsider, [1]),
    ]
    fleet.act("cancel", made)
    assert [makers.status(guest) for guest in guests] == [("running", "")] * 2
    assert len(makers.claimed(fleet.node)) == 2


def test_cancelling_at_the_very_start_leaves_an_empty_term(fleet: Fleet, clock: Any) -> None:
    start = database_clock.read() + dt.timedelta(hours=1)
    made = fleet.reserved(0, startsAt=rfc3339(start))
    clock.freeze(start)
    assert fleet.read(made)["status"] == "active"
    assert fleet.act("cancel", made).json()["status"] == "cancelled"
    assert Hold.objects.get(pk=made["id"]).term.isempty
    assert violations() == []


def test_only_operators_amend_and_cancel(fleet: Fleet) -> None:
    made = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
    for name in ("provider", "tenant", "manager", "outsider"):
        refused(fleet.amend(made, by=name, endsAt=in_hours(1)), 404, "NOT_FOUND")
        refused(fleet.act("cancel", made, by=name), 404, "NOT_FOUND")
    assert fleet.read(made) == made
    assert AuditEvent.objects.filter(event="request.refused").count() == 8


def test_a_reservation_is_found_only_under_its_own_node(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    other = factories.node(fleet.provider)
    path = f"/v1/nodes/{other.pk}/reservations/{made['id']}"
    client = fleet.client("platform")
    refused(client.get(path), 404, "NOT_FOUND")
    refused(client.patch(path, {"endsAt": in_hours(1)}, format="json"), 404, "NOT_FOUND")
    for verb in ("cancel", "release", "reclaim"):
        answer = client.post(f"{path}/{verb}", {"unitIds": [factories.address(0)]}, format="json")
        refused(answer, 404, "NOT_FOUND")
    assert fleet.read(made) == made
