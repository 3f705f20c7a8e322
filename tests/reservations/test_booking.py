"""Making reservations: what is accepted, what is refused and in which words."""

import datetime as dt
from typing import Any

import pytest

from nodes.models import HoldUnit
from openrelay.audit.models import AuditEvent
from openrelay.core import clock
from openrelay.core.clock import rfc3339
from reservations.models import Reservation
from tests import factories
from tests.reservations.conftest import Fleet


def in_hours(hours: float) -> str:
    return rfc3339(clock.read() + dt.timedelta(hours=hours))


def test_a_reservation_shows_its_contract(fleet: Fleet) -> None:
    made = fleet.reserved(
        1, 0, 1, managingOrgIds=[str(fleet.outsider.pk)], contractRef="C-7", reason="training"
    )
    assert made["status"] == "active"
    assert made["reservedUnitIds"] == [factories.address(0), factories.address(1)]
    assert made["releasedUnitIds"] == []
    assert set(made["allowedOrgIds"]) == {str(fleet.tenant.pk), str(fleet.platform.pk)}
    assert made["managingOrgIds"] == [str(fleet.outsider.pk)]
    assert made["contractRef"] == "C-7"
    assert made["reason"] == "training"
    assert made["topologyGen"] == 1
    assert "endsAt" not in made
    read = fleet.client("platform").get(f"{fleet.path}/{made['id']}")
    assert read.json() == made


def test_a_reservation_is_audited_once(fleet: Fleet) -> None:
    made = fleet.reserved(0, reason="because")
    event = AuditEvent.objects.get(target_id=made["id"])
    assert event.event == "reservation.created"
    assert event.reason == "because"
    assert event.organization_id == fleet.provider.pk
    assert event.after["units"] == [factories.address(0)]


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"unitIds": []}, "VALIDATION_ERROR", "unitIds"),
        ({"allowedOrgIds": []}, "VALIDATION_ERROR", "allowedOrgIds"),
        ({"unitIds": ["0000:ff:00.0"]}, "UNKNOWN_UNIT", "0000:ff:00.0"),
        ({"allowedOrgIds": ["nobody"]}, "UNKNOWN_ORG", "nobody"),
        ({"managingOrgIds": ["00000000-0000-0000-0000-000000000001"]}, "UNKNOWN_ORG", "0000-000000000001"),
        ({"startsAt": "2026-01-01T00:00:00Z"}, "VALIDATION_ERROR", "startsAt"),
        ({"startsAt": "2126-01-01T00:00:00"}, "VALIDATION_ERROR", "startsAt"),
        ({"endsAt": "2026-01-01T00:00:00Z"}, "VALIDATION_ERROR", "endsAt"),
        (
            {"startsAt": "2126-01-01T00:00:00Z", "endsAt": "2126-01-01T00:00:00Z"},
            "VALIDATION_ERROR",
            "endsAt",
        ),
        ({"endsAt": "9999-12-31T23:59:59-14:00"}, "VALIDATION_ERROR", "endsAt"),
        ({"unitIds": "0000:10:00.0"}, "VALIDATION_ERROR", "unitIds"),
        ({"colour": "red"}, "VALIDATION_ERROR", "colour"),
    ],
)
def test_bad_input_names_the_field_and_changes_nothing(
    fleet: Fleet, body: dict[str, Any], code: str, words: str
) -> None:
    answer = fleet.reserve(0, **body)
    assert answer.status_code == 400, answer.content
    assert answer.json()["code"] == code
    assert words in answer.json()["error"]
    assert not Reservation.objects.exists()


def test_a_start_of_a_moment_ago_reads_as_now(fleet: Fleet) -> None:
    before = clock.read()
    made = fleet.reserved(0, startsAt=rfc3339(before - dt.timedelta(seconds=50)))
    assert dt.datetime.fromisoformat(made["startsAt"]) >= before
    assert made["status"] == "active"


def test_an_overlap_is_refused_and_names_units_and_reservation(fleet: Fleet) -> None:
    first = fleet.reserved(0, 1)
    answer = fleet.reserve(1, 2)
    assert answer.status_code == 409
    assert answer.json()["code"] == "RESERVATION_OVERLAP"
    assert factories.address(1) in answer.json()["error"]
    assert factories.address(2) not in answer.json()["error"]
    assert first["id"] in answer.json()["error"]


def test_back_to_back_terms_do_not_overlap_and_a_microsecond_does(fleet: Fleet) -> None:
    middle = clock.read() + dt.timedelta(hours=5)
    fleet.reserved(0, startsAt=in_hours(1), endsAt=rfc3339(middle))
    overlapping = fleet.reserve(0, startsAt=rfc3339(middle - dt.timedelta(microseconds=1)))
    assert overlapping.status_code == 409
    assert fleet.reserved(0, startsAt=rfc3339(middle))["status"] == "pending"


def test_two_wall_clocks_of_one_reading_are_two_instants(fleet: Fleet) -> None:
    summer = fleet.reserved(0, startsAt="2127-10-31T02:30:00+02:00", endsAt="2127-10-31T02:30:00+01:00")
    assert summer["startsAt"] == "2127-10-31T00:30:00Z"
    assert summer["endsAt"] == "2127-10-31T01:30:00Z"


def test_a_unit_that_is_not_for_sale_is_refused_with_the_reason(fleet: Fleet) -> None:
    factories.inventory(
        fleet.node,
        [
            factories.unit_report(0),
            factories.unit_report(1, sellable=False, notSellableReason="it drives the display"),
            factories.unit_report(2, allocClass="shared", sellable=False),
        ],
    )
    for unit, words in ((1, "it drives the display"), (2, "its class shared"), (3, "gone")):
        answer = fleet.reserve(0, unit)
        assert answer.status_code == 400
        assert answer.json()["code"] == "UNIT_NOT_RESERVABLE"
        assert factories.address(unit) in answer.json()["error"]
        assert words in answer.json()["error"]


def test_a_node_that_sells_two_classes_is_refused(fleet: Fleet) -> None:
    factories.inventory(
        fleet.node, [factories.unit_report(0), factories.unit_report(1, allocClass="device-request")]
    )
    answer = fleet.reserve(0)
    assert answer.status_code == 400
    assert answer.json()["code"] == "NODE_NOT_SINGLE_CLASS"
    for unit in fleet.get("/units").json():
        assert unit["reservable"] is False
        assert "more than one class (device-request, vfio-group)" in unit["notReservableReason"]


def test_a_removed_node_is_refused_and_a_draining_or_offline_one_is_not(fleet: Fleet) -> None:
    fleet.node.owner_hold = "draining"
    fleet.node.save()
    fleet.node.heartbeat.seen_at = None
    fleet.node.heartbeat.save()
    fleet.reserved(0)
    fleet.node.removed_at = clock.read()
    fleet.node.save()
    answer = fleet.reserve(1)
    assert answer.status_code == 400
    assert answer.json()["code"] == "NODE_DECOMMISSIONED"


def test_only_operators_reserve(fleet: Fleet) -> None:
    for name in ("provider", "tenant", "outsider"):
        answer = fleet.reserve(0, by=name)
        assert answer.status_code == 404
    assert not HoldUnit.objects.exists()


def test_one_idempotency_key_makes_one_reservation(fleet: Fleet) -> None:
    body = {"unitIds": [factories.address(0)], "allowedOrgIds": [str(fleet.tenant.pk)]}
    client = fleet.client("platform")
    first = client.post(fleet.path, body, format="json", headers={"Idempotency-Key": "k1"})
    again = client.post(fleet.path, body, format="json", headers={"Idempotency-Key": "k1"})
    other = client.post(fleet.path, {**body, "reason": "x"}, format="json", headers={"Idempotency-Key": "k1"})
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert other.status_code == 422
    assert other.json()["code"] == "IDEMPOTENCY_KEY_REUSED"
    assert Reservation.objects.count() == 1
