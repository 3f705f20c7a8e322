"""One audit event for each object changed, in the transaction that changed it: both are there, or neither."""

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core import serializers
from django.db import DatabaseError, connection

from compute.models import Claim, Occupancy, Run, Workload
from nodes.models import GpuUnit, Hold, HoldAudience, HoldUnit, InventoryReport, Node, TopologyGeneration
from openrelay.audit.models import AuditEvent
from openrelay.core import clock
from openrelay.core.clock import rfc3339
from reservations import tasks
from reservations.models import Announcement, Reservation, ReservationManager
from tests.reservations import makers
from tests.reservations.conftest import Fleet, refused
from tests.reservations.test_capacity import units

INVENTED = "0198c0de-0000-7000-8000-000000000000"
FACTS = (
    *(Hold, HoldAudience, HoldUnit, Node, GpuUnit, InventoryReport, TopologyGeneration),
    *(Reservation, ReservationManager, Announcement, Workload, Claim, Occupancy, Run),
)


def everything() -> str:
    """All that is stored, audit apart."""
    return "".join(serializers.serialize("json", model.objects.order_by("pk")) for model in FACTS)


class Scene:
    """A reservation with two spot workloads on what it released, and each change there is to make to it."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.made = fleet.reserved(0, 1, 2, endsAt=rfc3339(clock.read() + dt.timedelta(hours=1)))
        fleet.act("release", self.made, unitIds=units(0, 1))
        self.guests = [makers.workload(fleet.node, fleet.outsider, [unit]) for unit in (0, 1)]
        self.events = set(AuditEvent.objects.values_list("pk", flat=True))

    def new_events(self) -> list[str]:
        events = AuditEvent.objects.exclude(pk__in=self.events)
        return sorted(f"{event.event} {event.target_id}" for event in events)


CHANGES: dict[str, tuple[Callable[[Fleet, Scene], Any], list[str]]] = {
    "reserve": (lambda fleet, scene: fleet.reserve(5, 6), ["reservation.created {new}"]),
    "amend": (
        lambda fleet, scene: fleet.amend(scene.made, endsAt="", managingOrgIds=[str(fleet.manager.pk)]),
        ["reservation.amended {made}"],
    ),
    "cancel": (lambda fleet, scene: fleet.act("cancel", scene.made), ["reservation.cancelled {made}"]),
    "release": (
        lambda fleet, scene: fleet.act("release", scene.made, unitIds=units(2)),
        ["reservation.units_released {made}"],
    ),
    "reclaim": (
        lambda fleet, scene: fleet.act("reclaim", scene.made, unitIds=units(0, 1)),
        ["reservation.units_reclaimed {made}", "vm.terminated {guest0}", "vm.terminated {guest1}"],
    ),
    "reclaim_spot": (
        lambda fleet, scene: fleet.reclaim_spot(),
        ["node.spot_reclaimed {node}", "vm.terminated {guest0}", "vm.terminated {guest1}"],
    ),
    "report": (lambda fleet, scene: fleet.reports(7), ["node.topology_changed {node}"]),
}


def named(templates: list[str], scene: Scene) -> list[str]:
    latest = Reservation.objects.order_by("-created_at", "-hold_id").first()
    names = {
        "made": scene.made["id"],
        "new": latest.pk if latest else "",
        "node": scene.fleet.node.pk,
        "guest0": scene.guests[0].pk,
        "guest1": scene.guests[1].pk,
    }
    return sorted(template.format(**names) for template in templates)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_writes_one_event_for_each_object(fleet: Fleet, change: str) -> None:
    scene = Scene(fleet)
    act, events = CHANGES[change]
    answer = act(fleet, scene)
    assert getattr(answer, "status_code", 200) == 200
    assert scene.new_events() == named(events, scene)


@contextmanager
def full_audit_log() -> Iterator[None]:
    """The log takes no more rows, whoever writes them."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
        cursor.execute(
            "CREATE FUNCTION audit_full() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RAISE 'the disk of the audit log is full'; END$$"
        )
        cursor.execute(
            "CREATE TRIGGER audit_full BEFORE INSERT ON audit_auditevent EXECUTE FUNCTION audit_full()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION audit_full CASCADE")


@pytest.mark.parametrize("change", CHANGES)
def test_what_cannot_be_audited_does_not_happen(fleet: Fleet, change: str) -> None:
    scene = Scene(fleet)
    act, _ = CHANGES[change]
    client = fleet.client("platform"), fleet.client("provider")
    for each in client:
        each.raise_request_exception = False
    before = everything()

    with full_audit_log():
        try:
            answer = act(fleet, scene)
        except DatabaseError:
            pass
        else:
            assert answer.status_code == 500
    assert everything() == before
    assert scene.new_events() == []


def test_an_announcement_that_cannot_be_audited_is_not_made(fleet: Fleet) -> None:
    scene = Scene(fleet)
    fleet.reports(7)

    with full_audit_log():
        tasks.announce_all_due()
    assert not Announcement.objects.exists()
    tasks.announce_all_due()
    assert f"reservation.needs_review {scene.made['id']}" in scene.new_events()
    assert Announcement.objects.count() == 1


def test_what_is_refused_changes_nothing_and_is_on_record(fleet: Fleet) -> None:
    """A key of one organization with another's ids, on every route that changes anything."""
    scene = Scene(fleet)
    victim = fleet.provider
    before = everything()
    attempts = [
        fleet.reserve(5, by="outsider"),
        fleet.amend(scene.made, by="outsider", endsAt=""),
        fleet.act("cancel", scene.made, by="outsider"),
        fleet.act("release", scene.made, by="outsider", unitIds=units(2)),
        fleet.act("reclaim", scene.made, by="outsider", unitIds=units(0)),
        fleet.reclaim_spot("outsider"),
    ]
    for answer in attempts:
        refused(answer, 404, "NOT_FOUND")
    for org in (victim.pk, INVENTED):
        path = f"/v1/orgs/{org}/provider/nodes/{fleet.node.pk}/reclaim-spot"
        refused(fleet.client("outsider").post(path, {}, format="json"), 403, "FORBIDDEN")
    assert everything() == before
    events = AuditEvent.objects.exclude(pk__in=scene.events)
    assert {event.event for event in events} == {"request.refused"}
    assert {event.organization_id for event in events} == {fleet.outsider.pk}
    assert events.count() == len(attempts) + 2
