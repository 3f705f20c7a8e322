"""Equal events within a minute become one that carries their number, in a bounded number of rows."""

from typing import Any

import pytest
from django.db import connection, transaction

from openrelay.audit.actor import Actor
from openrelay.audit.models import AuditEvent, AuditRepeat
from openrelay.audit.services import repeats
from openrelay.audit.services.repeats import record_repeated, write_counted
from openrelay.core.ids import new_id
from tests.concurrency.conftest import together
from tests.support.travel import Clock

ACTOR = Actor("key:1", "203.0.113.7", "r")


def repeat(target: object = "t", *, actor: Actor = ACTOR, same: str = "", **after: Any) -> bool:
    return record_repeated(
        actor, "thing.refused", same=same, target_type="thing", target_id=target, after=after
    )


def written() -> list[int]:
    """For how many each event stands, the oldest first."""
    events = AuditEvent.objects.filter(event="thing.refused").order_by("created_at", "id")
    return [event.after.get("times", 1) for event in events]


@pytest.mark.django_db
def test_the_first_is_written_at_once_and_equal_ones_within_a_minute_are_counted(clock: Clock) -> None:
    clock.freeze()
    assert [repeat(number=number) for number in range(5)] == [True, False, False, False, False]
    assert written() == [1]
    clock.advance(59)
    assert write_counted() == 0
    clock.advance(1)
    assert repeat(number=5)
    assert written() == [1, 5]
    event = AuditEvent.objects.latest("created_at", "id")
    assert (event.after["number"], event.source_ip, event.request_id) == (5, "203.0.113.7", "r")
    assert event.after["since"] == AuditEvent.objects.earliest("created_at").created_at.strftime(
        "%Y-%m-%dT%H:%M:%S.%fZ"
    )


@pytest.mark.django_db
def test_the_sweep_writes_what_no_later_one_did_and_forgets_what_is_over(clock: Clock) -> None:
    clock.freeze()
    for _ in range(4):
        repeat()
    clock.advance(61)
    assert (write_counted(), written()) == (1, [1, 3])
    # Not more often than once a minute, though the sweep has just been.
    assert not repeat()
    clock.advance(61)
    assert (write_counted(), written()) == (1, [1, 3, 1])
    clock.advance(61)
    assert (write_counted(), AuditRepeat.objects.count()) == (0, 0)
    assert repeat()
    assert sum(written()) == 6


@pytest.mark.django_db
def test_what_differs_in_anything_that_counts_is_an_event_of_its_own() -> None:
    assert repeat()
    assert repeat("another")
    assert repeat(same="another code")
    assert repeat(actor=Actor("key:2", "203.0.113.7"))
    assert repeat(actor=Actor("key:1", "203.0.113.8"))
    assert not repeat()


@pytest.mark.django_db
def test_a_caller_that_names_something_else_each_time_adds_a_bounded_number_of_rows(clock: Clock) -> None:
    clock.freeze()
    for _ in range(3 * repeats.TOLD_APART):
        repeat(new_id())
    assert len(written()) == repeats.TOLD_APART + 1
    assert AuditRepeat.objects.count() == repeats.TOLD_APART + 1
    assert repeat(new_id(), actor=Actor("key:2"))  # another's is its own
    clock.advance(61)
    write_counted()
    assert sum(written()) == 3 * repeats.TOLD_APART + 1
    several = AuditEvent.objects.filter(target_type="several").latest("created_at")
    assert (several.target_id, several.after["times"]) == ("", 2 * repeats.TOLD_APART - 1)


@pytest.mark.django_db
def test_counting_takes_one_statement(django_assert_num_queries: Any) -> None:
    for _ in range(2):
        with django_assert_num_queries(1):
            repeat()


@pytest.mark.django_db(transaction=True)
def test_many_at_once_are_all_counted_and_written_once(clock: Clock) -> None:
    clock.freeze()

    def ask() -> list[bool]:
        return [repeat() for _ in range(25)]

    outcomes = [outcome for caller in together(*[ask] * 8) for outcome in caller]
    assert (outcomes.count(True), len(outcomes)) == (1, 200)
    clock.advance(61)
    sweeps = together(*[write_counted] * 4, *[repeat] * 4)
    assert not [outcome for outcome in sweeps if isinstance(outcome, Exception)]
    clock.advance(61)
    write_counted()
    assert sum(written()) == 204


@pytest.mark.django_db(transaction=True)
def test_a_sweep_does_not_wait_for_one_that_is_being_counted(clock: Clock) -> None:
    clock.freeze()
    repeat("one")
    repeat("one")
    repeat("two")
    repeat("two")
    clock.advance(61)

    def sweep() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = '20s'")
        return write_counted()

    with transaction.atomic():
        AuditRepeat.objects.select_for_update().get(target_id="one")
        (outcome,) = together(sweep)
    assert outcome == 1


@pytest.mark.django_db
def test_an_event_that_is_undone_was_not_counted() -> None:
    with transaction.atomic():
        assert repeat()
        transaction.set_rollback(True)
    assert repeat()
