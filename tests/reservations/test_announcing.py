"""Announcing: each step once, in order, with the moment it was taken, whoever was down meanwhile."""

import datetime as dt
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, transaction

from openrelay.audit.models import AuditEvent
from openrelay.core import clock as database_clock
from openrelay.core import jobs
from openrelay.core.clock import rfc3339
from reservations import tasks
from reservations.models import Announcement
from reservations.services import announcing
from reservations.services.invariants import violations
from tests import factories
from tests.reservations.conftest import Fleet

MICROSECOND = dt.timedelta(microseconds=1)
HOUR = dt.timedelta(hours=1)
ACTIVATED, REVIEW, EXPIRED = (
    "reservation.activated",
    "reservation.needs_review",
    "reservation.expired",
)


def told(reservation: dict[str, Any]) -> list[tuple[str, int]]:
    """What was announced of it, in the order of the audit log, which must tell the same."""
    rows = Announcement.objects.filter(reservation_id=reservation["id"]).order_by("announced_at", "id")
    events = AuditEvent.objects.filter(target_id=reservation["id"], event__in=(ACTIVATED, REVIEW, EXPIRED))
    logged = [
        (event.event, int(event.after.get("topologyGen", 0))) for event in events.order_by("created_at", "id")
    ]
    announced = [(row.event, row.key) for row in rows]
    assert announced == logged
    return announced


def occurred(reservation: dict[str, Any]) -> list[dt.datetime]:
    """When each of them occurred, in the order of announcing."""
    rows = Announcement.objects.filter(reservation_id=reservation["id"]).order_by("announced_at", "id")
    return [row.occurred_at for row in rows]


def sweep() -> None:
    tasks.announce_all_due()


def pending(fleet: Fleet, *units: int, start: dt.datetime, end: dt.datetime | None = None) -> dict[str, Any]:
    body = {"startsAt": rfc3339(start), **({"endsAt": rfc3339(end)} if end else {})}
    return fleet.reserved(*units, **body)


@pytest.fixture
def start(clock: Any) -> dt.datetime:
    """A moment two hours from now."""
    return database_clock.read() + 2 * HOUR


def test_start_and_end_are_announced_once_at_their_moments(
    fleet: Fleet, clock: Any, start: dt.datetime
) -> None:
    made = pending(fleet, 0, start=start, end=start + HOUR)
    clock.freeze(start - MICROSECOND)
    sweep()
    assert told(made) == []
    clock.freeze(start)
    sweep()
    sweep()
    assert told(made) == [(ACTIVATED, 0)]
    clock.freeze(start + HOUR - MICROSECOND)
    sweep()
    assert told(made) == [(ACTIVATED, 0)]
    clock.freeze(start + HOUR)
    sweep()
    sweep()
    assert told(made) == [(ACTIVATED, 0), (EXPIRED, 0)]
    assert occurred(made) == [start, start + HOUR]
    assert violations() == []


def test_a_reservation_born_active_has_no_activation(fleet: Fleet, clock: Any) -> None:
    made = fleet.reserved(0)
    recent = fleet.reserved(1, startsAt=rfc3339(database_clock.read() - dt.timedelta(seconds=30)))
    clock.advance(10)
    sweep()
    assert told(made) == told(recent) == []


def test_steps_missed_while_workers_were_down_are_told_in_order(
    fleet: Fleet, clock: Any, start: dt.datetime
) -> None:
    made = pending(fleet, 0, start=start, end=start + 5 * HOUR)
    clock.freeze(start + HOUR)
    fleet.reports(7)
    clock.freeze(start + 2 * HOUR)
    fleet.reports(8)
    clock.freeze(start + 6 * HOUR)
    sweep()
    assert told(made) == [(ACTIVATED, 0), (REVIEW, 2), (REVIEW, 3), (EXPIRED, 0)]
    assert occurred(made) == [start, start + HOUR, start + 2 * HOUR, start + 5 * HOUR]
    assert {row.announced_at for row in Announcement.objects.all()} == {start + 6 * HOUR}
    events = AuditEvent.objects.filter(target_id=made["id"], event=REVIEW).order_by("id")
    assert [event.after["occurredAt"] for event in events] == [
        rfc3339(start + HOUR),
        rfc3339(start + 2 * HOUR),
    ]
    sweep()
    assert len(told(made)) == 4


def test_a_review_is_announced_once_a_generation(fleet: Fleet, clock: Any) -> None:
    made = fleet.reserved(0)
    fleet.reports(7)
    sweep()
    fleet.reports(6)
    sweep()
    sweep()
    assert told(made) == [(REVIEW, 2), (REVIEW, 3)]


def test_a_review_begun_and_settled_unseen_is_announced_before_what_settled_it(
    fleet: Fleet, clock: Any
) -> None:
    made = fleet.reserved(0)
    fleet.reports(7)
    assert fleet.amend(made, reaffirm=True).status_code == 200
    sweep()
    assert told(made) == [(REVIEW, 2)]
    log = AuditEvent.objects.filter(target_id=made["id"]).order_by("created_at", "id")
    assert [event.event for event in log] == ["reservation.created", REVIEW, "reservation.reaffirmed"]


def test_a_start_missed_before_a_cancellation_is_told_before_it(
    fleet: Fleet, clock: Any, start: dt.datetime
) -> None:
    made = pending(fleet, 0, start=start)
    clock.freeze(start + HOUR)
    fleet.reports(7)
    fleet.act("cancel", made)
    sweep()
    log = AuditEvent.objects.filter(target_id=made["id"]).order_by("created_at", "id")
    assert [event.event for event in log] == [
        "reservation.created",
        ACTIVATED,
        REVIEW,
        "reservation.cancelled",
    ]


def test_a_cancelled_reservation_takes_no_further_step(fleet: Fleet, clock: Any, start: dt.datetime) -> None:
    made = pending(fleet, 0, start=start, end=start + HOUR)
    fleet.act("cancel", made)
    fleet.reports(7)
    clock.freeze(start + 2 * HOUR)
    sweep()
    announcing.announce_due(UUID(made["id"]))
    assert told(made) == []


def test_what_happens_to_the_node_after_the_end_is_not_announced(
    fleet: Fleet, clock: Any, start: dt.datetime
) -> None:
    made = pending(fleet, 0, start=start, end=start + HOUR)
    clock.freeze(start + HOUR)
    fleet.reports(7)
    clock.freeze(start + 2 * HOUR)
    sweep()
    assert told(made) == [(ACTIVATED, 0), (EXPIRED, 0)]


def test_a_start_in_review_is_an_activation_only_when_affirmed(
    fleet: Fleet, clock: Any, start: dt.datetime
) -> None:
    made = pending(fleet, 0, start=start)
    clock.freeze(start - HOUR)
    fleet.reports(7)
    clock.freeze(start + HOUR)
    sweep()
    assert told(made) == [(REVIEW, 2)]
    clock.freeze(start + 2 * HOUR)
    fleet.amend(made, reaffirm=True)
    sweep()
    assert told(made) == [(REVIEW, 2), (ACTIVATED, 0)]
    assert occurred(made) == [start - HOUR, start + 2 * HOUR]


def test_a_pending_reservation_affirmed_before_its_start_is_activated_at_its_start(
    fleet: Fleet, clock: Any, start: dt.datetime
) -> None:
    made = pending(fleet, 0, start=start)
    fleet.reports(7)
    fleet.amend(made, reaffirm=True)
    clock.freeze(start)
    sweep()
    assert told(made) == [(REVIEW, 2), (ACTIVATED, 0)]
    assert occurred(made)[-1] == start


def test_the_old_end_of_an_extended_term_does_nothing(fleet: Fleet, clock: Any, start: dt.datetime) -> None:
    made = pending(fleet, 0, start=start, end=start + HOUR)
    clock.freeze(start + dt.timedelta(minutes=59))
    fleet.amend(made, endsAt=rfc3339(start + 3 * HOUR))
    clock.freeze(start + HOUR)
    announcing.announce_due(UUID(made["id"]))  # the message armed for the old end
    sweep()
    assert told(made) == [(ACTIVATED, 0)]
    clock.freeze(start + 3 * HOUR)
    sweep()
    assert told(made) == [(ACTIVATED, 0), (EXPIRED, 0)]
    assert occurred(made)[-1] == start + 3 * HOUR


def test_a_topology_change_is_announced_to_each_live_reservation_of_that_node(
    fleet: Fleet, clock: Any
) -> None:
    first, second = fleet.reserved(0), fleet.reserved(1)
    ended = fleet.reserved(2)
    fleet.act("cancel", ended)
    other = factories.node(fleet.provider)
    fleet.reports(7)
    assert fleet.node.topology_gen == 2
    assert other.topology_gen == 1
    sweep()
    assert told(first) == told(second) == [(REVIEW, 2)]
    assert told(ended) == []


def test_a_crash_between_row_and_event_leaves_neither(
    fleet: Fleet, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fleet.reserved(0)
    fleet.reports(7)

    def crash(*_args: Any, **_kwargs: Any) -> None:
        assert Announcement.objects.exists()
        raise RuntimeError("the power went")

    with monkeypatch.context() as patched:
        patched.setattr(announcing, "record", crash)
        with pytest.raises(RuntimeError):
            announcing.announce_due(UUID(made["id"]))
    assert told(made) == []
    sweep()
    assert told(made) == [(REVIEW, 2)]


def test_one_that_fails_does_not_silence_the_others(
    fleet: Fleet, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [fleet.reserved(unit) for unit in range(3)]
    fleet.reports(7)
    announce = announcing.announce_due

    def fails_for_the_first(reservation_id: Any) -> Any:
        if str(reservation_id) == made[0]["id"]:
            raise RuntimeError("this one cannot be read")
        return announce(reservation_id)

    with monkeypatch.context() as patched:
        patched.setattr(announcing, "announce_due", fails_for_the_first)
        sweep()
    assert [told(reservation) for reservation in made] == [[], [(REVIEW, 2)], [(REVIEW, 2)]]
    sweep()
    assert told(made[0]) == [(REVIEW, 2)]


def test_the_database_refuses_a_second_announcement(fleet: Fleet, clock: Any) -> None:
    made = fleet.reserved(0)
    fleet.reports(7)
    sweep()
    row = Announcement.objects.get(reservation_id=made["id"])
    with pytest.raises(IntegrityError), transaction.atomic():
        Announcement(
            reservation_id=made["id"],
            event=row.event,
            key=row.key,
            occurred_at=row.occurred_at,
            announced_at=row.announced_at,
        ).save(force_insert=True)


def test_announcing_what_is_not_there_does_nothing(fleet: Fleet, clock: Any) -> None:
    assert announcing.announce_due(fleet.node.pk) == []


def test_a_near_start_and_end_are_queued_at_their_exact_moment(
    fleet: Fleet,
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    queued: list[tuple[str, tuple[Any, ...], Any]] = []
    monkeypatch.setattr(jobs, "_send", lambda task, args, eta: queued.append((task, args, eta)))
    now = clock.freeze()
    near, far = now + dt.timedelta(seconds=90), now + 2 * HOUR
    with django_capture_on_commit_callbacks(execute=True):
        made = pending(fleet, 0, start=near, end=far)
    assert queued == [("reservations.announce", (made["id"],), near)]
    ids = {str(pk): moment for pk, moment in announcing.near_moments(now)}
    assert ids == {made["id"]: near}
    queued.clear()
    with django_capture_on_commit_callbacks(execute=True):
        fleet.amend(made, endsAt=rfc3339(near + dt.timedelta(seconds=5)))
    assert sorted(moment for _, _, moment in queued) == [near, near + dt.timedelta(seconds=5)]
    clock.freeze(far - dt.timedelta(seconds=10))
    assert announcing.near_moments(clock.now()) == []


def test_the_sweep_finds_exactly_what_has_something_to_announce(
    fleet: Fleet, clock: Any, start: dt.datetime
) -> None:
    made = [
        pending(fleet, 0, start=start),
        pending(fleet, 1, start=start, end=start + HOUR),
        fleet.reserved(2),
        fleet.reserved(3, endsAt=rfc3339(start)),
    ]
    for at, due in (
        (start - MICROSECOND, set()),
        (start, {0, 1, 3}),
        (start + HOUR, {1}),
    ):
        clock.freeze(at)
        found = {str(pk) for pk in announcing.due(database_clock.read())}
        assert found == {made[number]["id"] for number in due}
        sweep()
        assert announcing.due(database_clock.read()) == []
