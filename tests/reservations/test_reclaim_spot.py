"""Reclaim-spot on a node: how far the owner and a managing organization reach, and whom it ends."""

from typing import Any

import pytest

from compute.models import Workload
from nodes.models import HoldUnit
from openrelay.audit.models import AuditEvent
from tests import factories
from tests.reservations import makers
from tests.reservations.conftest import Fleet, refused
from tests.reservations.test_capacity import RECLAIMED, ids, units


def test_the_owner_reaches_every_spot_workload_of_the_node(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1)
    fleet.act("release", made, unitIds=units(0))
    on_released = makers.workload(fleet.node, fleet.outsider, [0])
    on_reserved = makers.workload(fleet.node, fleet.outsider, [1])
    on_open = makers.workload(fleet.node, fleet.outsider, [2, 3])
    ordinary = makers.workload(fleet.node, fleet.tenant, [4], tier=makers.ORDINARY)
    elsewhere = makers.workload(factories.node(fleet.provider), fleet.outsider, [0])
    answer = fleet.reclaim_spot(reason="heat")
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"terminated": ids(on_released, on_reserved, on_open), "skipped": ids(ordinary)}
    for gone in (on_released, on_reserved, on_open):
        assert makers.status(gone) == RECLAIMED
    for there in (ordinary, elsewhere):
        assert makers.status(there) == ("running", "")
    # The boundary did not move.
    assert fleet.read(made)["releasedUnitIds"] == units(0)
    events = AuditEvent.objects.filter(request_id=answer.headers["X-Request-Id"])
    assert sorted(event.event for event in events) == ["node.spot_reclaimed", *["vm.terminated"] * 3]
    assert {event.reason for event in events} == {"heat"}


def test_a_managing_organization_reaches_only_released_units_of_what_it_manages(fleet: Fleet) -> None:
    managed = fleet.reserved(0, 1, managingOrgIds=[str(fleet.manager.pk)])
    other = fleet.reserved(2)
    for reservation, unit in ((managed, 0), (other, 2)):
        fleet.act("release", reservation, unitIds=units(unit))
    reached = makers.workload(fleet.node, fleet.outsider, [0])
    unreleased, foreign, open_one = (makers.workload(fleet.node, fleet.outsider, [n]) for n in (1, 2, 3))
    assert fleet.reclaim_spot("manager").json() == {"terminated": ids(reached), "skipped": []}
    assert makers.status(reached) == RECLAIMED
    for there in (unreleased, foreign, open_one):
        assert makers.status(there) == ("running", "")


def test_skipped_are_the_ordinary_ones_within_the_same_reach(fleet: Fleet) -> None:
    managed = fleet.reserved(0, 1, managingOrgIds=[str(fleet.manager.pk)])
    fleet.act("release", managed, unitIds=units(0))
    within = makers.workload(fleet.node, fleet.tenant, [0], tier=makers.ORDINARY)
    makers.workload(fleet.node, fleet.tenant, [1], tier=makers.ORDINARY)
    makers.workload(fleet.node, fleet.tenant, [2], tier=makers.ORDINARY)
    assert fleet.reclaim_spot("manager").json() == {"terminated": [], "skipped": ids(within)}


def test_a_workload_that_spans_the_reach_goes_whole(fleet: Fleet) -> None:
    managed = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
    fleet.act("release", managed, unitIds=units(0))
    wide = makers.workload(fleet.node, fleet.outsider, [0, 5])
    assert fleet.reclaim_spot("manager").json()["terminated"] == ids(wide)
    assert makers.claimed(fleet.node) == {}


def test_a_list_narrows_and_never_widens(fleet: Fleet) -> None:
    managed = fleet.reserved(0, 1, managingOrgIds=[str(fleet.manager.pk)])
    fleet.act("release", managed, unitIds=units(0, 1))
    zero, one, two = (makers.workload(fleet.node, fleet.outsider, [n]) for n in (0, 1, 2))
    assert fleet.reclaim_spot("manager", unitIds=units(1, 2)).json()["terminated"] == ids(one)
    assert fleet.reclaim_spot("provider", unitIds=units(2)).json()["terminated"] == ids(two)
    assert makers.status(zero) == ("running", "")


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"unitIds": []}, "VALIDATION_ERROR", "unitIds"),
        ({"unitIds": None}, "VALIDATION_ERROR", "unitIds"),
        ({"unitIds": ["0000:ff:00.0"]}, "UNKNOWN_UNIT", "0000:ff:00.0"),
        ({"dryRun": "true"}, "VALIDATION_ERROR", "dryRun"),
        ({"units": []}, "VALIDATION_ERROR", "units"),
    ],
)
def test_an_empty_list_is_never_all(fleet: Fleet, body: dict[str, Any], code: str, words: str) -> None:
    guest = makers.workload(fleet.node, fleet.outsider, [0])
    refused(fleet.reclaim_spot(**body), 400, code, words)
    assert makers.status(guest) == ("running", "")


def test_no_body_is_all_in_reach(fleet: Fleet) -> None:
    guest = makers.workload(fleet.node, fleet.outsider, [0])
    path = f"/v1/orgs/{fleet.provider.pk}/provider/nodes/{fleet.node.pk}/reclaim-spot"
    answer = fleet.client("provider").post(path)
    assert answer.json() == {"terminated": ids(guest), "skipped": []}


def test_a_dry_run_lists_and_changes_nothing(fleet: Fleet) -> None:
    guest = makers.workload(fleet.node, fleet.outsider, [0])
    ordinary = makers.workload(fleet.node, fleet.outsider, [1], tier="verified")
    events = AuditEvent.objects.count()
    assert fleet.reclaim_spot(dryRun=True).json() == {"terminated": ids(guest), "skipped": ids(ordinary)}
    assert makers.status(guest) == ("running", "")
    assert AuditEvent.objects.count() == events


def test_a_repeat_is_empty_and_writes_no_event(fleet: Fleet) -> None:
    makers.workload(fleet.node, fleet.outsider, [0])
    fleet.reclaim_spot()
    events = AuditEvent.objects.count()
    assert fleet.reclaim_spot().json() == {"terminated": [], "skipped": []}
    assert AuditEvent.objects.count() == events


@pytest.mark.parametrize("state", ["pending", "needs-review", "cancelled", "expired"])
def test_a_managers_reach_ends_with_the_reservations_activity(fleet: Fleet, clock: Any, state: str) -> None:
    now = clock.now()
    term = {
        "pending": {"startsAt": f"{now.year + 1}-01-01T00:00:00Z"},
        "expired": {"endsAt": f"{now.year + 1}-01-01T00:00:00Z"},
    }.get(state, {})
    managed = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)], **term)
    HoldUnit.objects.filter(hold_id=managed["id"]).update(released=True)
    guest = makers.workload(fleet.node, fleet.outsider, [0])
    if state == "needs-review":
        fleet.reports(7)
    elif state == "cancelled":
        fleet.act("cancel", managed)
    elif state == "expired":
        clock.set(now.replace(year=now.year + 2, month=1, day=1))
    refused(fleet.reclaim_spot("manager"), 404, "NOT_FOUND")
    assert makers.status(guest) == ("running", "")


def test_who_has_no_relation_gets_404_and_another_organizations_path_403(fleet: Fleet) -> None:
    fleet.reserved(0)
    guest = makers.workload(fleet.node, fleet.outsider, [0])
    for name in ("tenant", "outsider", "manager", "platform"):
        refused(fleet.reclaim_spot(name), 404, "NOT_FOUND")
    path = f"/v1/orgs/{fleet.provider.pk}/provider/nodes/{fleet.node.pk}/reclaim-spot"
    real = fleet.client("tenant").post(path, {}, format="json")
    invented = fleet.client("tenant").post(
        path.replace(str(fleet.provider.pk), "0198c0de-0000-7000-8000-000000000000"), {}, format="json"
    )
    refused(real, 403, "FORBIDDEN")
    assert real.json() == invented.json()
    assert makers.status(guest) == ("running", "")
    # The attempts were noted, in the log of who made them.
    assert AuditEvent.objects.filter(event="request.refused", organization_id=fleet.tenant.pk).count() == 3


def test_a_key_without_provider_write_is_told_so(fleet: Fleet) -> None:
    secret = factories.api_key(fleet.provider, ["provider.read", "reservation.capacity"])
    fleet.client("provider").credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    answer = fleet.reclaim_spot()
    refused(answer, 403, "FORBIDDEN", "provider.write")
    assert answer.json()["permission"] == "provider.write"
    assert answer.json()["deniedBy"] == "key"


def test_no_workload_is_ended_twice(fleet: Fleet) -> None:
    guest = makers.workload(fleet.node, fleet.outsider, [0])
    fleet.reclaim_spot()
    fleet.reclaim_spot()
    assert AuditEvent.objects.filter(target_id=guest.pk, event="vm.terminated").count() == 1
    assert Workload.objects.get(pk=guest.pk).terminated_at is not None
