"""Database constraints of holds, and the computed phase."""

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from nodes.models import GpuUnit, Hold, HoldUnit
from nodes.querysets import Phase
from openrelay.core import clock
from tests import factories

pytestmark = pytest.mark.django_db

HOUR = dt.timedelta(hours=1)


def hold(node: Any, term: DateTimeTZRange, *units: int) -> Hold:
    """Create a hold without the services, as a script could."""
    made = Hold.objects.create(node=node, term=term, topology_gen=node.topology_gen)
    for unit in GpuUnit.objects.filter(node=node, address__in=[factories.address(n) for n in units]):
        HoldUnit.objects.create(
            hold=made,
            node=node,
            unit=unit,
            term=term,
            pinned_class=unit.alloc_class,
            pinned_model=unit.gpu_model,
            pinned_gpu_count=unit.gpu_count,
        )
    return made


@pytest.fixture
def node() -> Any:
    return factories.node(factories.organization(), 2)


@pytest.fixture
def now() -> dt.datetime:
    return clock.read()


def test_two_holds_of_one_unit_cannot_overlap(node: Any, now: dt.datetime) -> None:
    hold(node, DateTimeTZRange(now, now + HOUR), 0)
    hold(node, DateTimeTZRange(now + HOUR, None), 0)
    hold(node, DateTimeTZRange(now, None), 1)
    late = now + HOUR - dt.timedelta(microseconds=1)
    with pytest.raises(IntegrityError, match="one_hold_at_a_time"), transaction.atomic():
        hold(node, DateTimeTZRange(late, now + HOUR), 0)


def test_moving_a_term_onto_another_is_refused_by_the_cascade(node: Any, now: dt.datetime) -> None:
    first = hold(node, DateTimeTZRange(now, now + HOUR), 0)
    hold(node, DateTimeTZRange(now + HOUR, None), 0)
    with pytest.raises(IntegrityError, match="one_hold_at_a_time"), transaction.atomic():
        Hold.objects.filter(pk=first.pk).update(term=DateTimeTZRange(now, now + 2 * HOUR))
    assert HoldUnit.objects.get(hold=first).term == DateTimeTZRange(now, now + HOUR)


def test_a_held_units_term_cannot_differ_from_its_holds(node: Any, now: dt.datetime) -> None:
    made = hold(node, DateTimeTZRange(now, None), 0)
    with pytest.raises(IntegrityError, match="held_unit_has_the_holds_term"), transaction.atomic():
        HoldUnit.objects.filter(hold=made).update(term=DateTimeTZRange(now, now + HOUR))


def test_a_held_unit_is_of_its_holds_node(node: Any, now: dt.datetime) -> None:
    made = hold(node, DateTimeTZRange(now, None), 0)
    other = factories.node(factories.organization(), 1)
    unit = GpuUnit.objects.get(node=other)
    with pytest.raises(IntegrityError, match="held_unit_of_node"), transaction.atomic():
        HoldUnit.objects.filter(hold=made).update(unit=unit)


def test_what_is_cut_to_nothing_excludes_nothing(node: Any, now: dt.datetime) -> None:
    first = hold(node, DateTimeTZRange(now + HOUR, None), 0)
    Hold.objects.filter(pk=first.pk).update(term=DateTimeTZRange(empty=True))
    hold(node, DateTimeTZRange(now, None), 0)
    assert HoldUnit.objects.get(hold=first).term.isempty


@pytest.mark.parametrize(
    ("lower", "upper", "generation", "expected"),
    [
        (-1, 1, 1, Phase.ACTIVE),
        (-1, None, 1, Phase.ACTIVE),
        (0, None, 1, Phase.ACTIVE),
        (1, None, 1, Phase.PENDING),
        (-2, 0, 1, Phase.ENDED),
        (-2, -1, 1, Phase.ENDED),
        (-1, None, 2, Phase.NEEDS_REVIEW),
        (1, None, 2, Phase.NEEDS_REVIEW),
        (-2, 0, 2, Phase.ENDED),
    ],
)
def test_the_phase_follows_from_term_generation_and_clock(
    node: Any, now: dt.datetime, lower: int, upper: int | None, generation: int, expected: str
) -> None:
    end = None if upper is None else now + upper * HOUR
    made = hold(node, DateTimeTZRange(now + lower * HOUR, end), 0)
    type(node).objects.filter(pk=node.pk).update(topology_gen=generation)
    assert Hold.objects.with_phase(now).get(pk=made.pk).phase == expected


def test_an_empty_term_has_ended(node: Any, now: dt.datetime) -> None:
    made = hold(node, DateTimeTZRange(empty=True), 0)
    assert Hold.objects.with_phase(now).get(pk=made.pk).phase == Phase.ENDED
