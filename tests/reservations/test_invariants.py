"""The checker of invariants finds what a careless hand broke, and nothing on a sound database."""

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection

from compute.models import Workload
from nodes.models import Hold
from reservations.services.invariants import PROMISES, violations
from tests.reservations.conftest import Fleet
from tests.reservations.makers import workload

pytestmark = pytest.mark.django_db

# What a hand breaks past the constraints, and words of the sentence that must say so.
BREAKAGE = {
    "two platforms": ("UPDATE identity_organization SET is_platform_ops = false", "0 organizations"),
    "a generation skipped": ("UPDATE nodes_node SET topology_gen = 9", "is at generation 9"),
    "a unit held twice": (
        """
        WITH other AS (
            INSERT INTO nodes_hold (id, node_id, term, topology_gen)
            SELECT gen_random_uuid(), node_id, term, topology_gen FROM nodes_hold RETURNING id)
        INSERT INTO nodes_holdunit (hold_id, node_id, unit_id, term, released, pinned_class, pinned_model_id,
                                    pinned_gpu_count)
        SELECT other.id, node_id, unit_id, term, released, pinned_class, pinned_model_id, pinned_gpu_count
        FROM nodes_holdunit, other
        """,
        "at once",
    ),
    "a unit's term of its own": (
        "UPDATE nodes_holdunit SET term = tstzrange('2001-01-01', '2001-01-02')",
        "differs from it in node or term",
    ),
    "no operators in the audience": ("DELETE FROM nodes_holdaudience", "lacks its operators"),
    "another term than the contract's": (
        "UPDATE reservations_reservation SET ends_at = starts_at + interval '1 hour'",
        "its contract says",
    ),
    "a generation to come": ("UPDATE nodes_hold SET topology_gen = 7", "is pinned to generation 7"),
    "a claim lost": ("DELETE FROM compute_claim", "holds 0 GPUs by its claims, and should hold 1"),
    "a claim kept": (
        "UPDATE compute_workload SET status = 'stopped'",
        "holds 1 GPUs by its claims, and should hold 0",
    ),
    "an occupancy closed early": (
        "UPDATE compute_occupancy SET closed_at = now(), closed_by = 'agent'",
        "has no open occupancy",
    ),
    "a run closed early": (
        "UPDATE compute_run SET closed_at = clock_timestamp()",
        "of its occupancies are open",
    ),
    "a wanted run of what ended": (
        "UPDATE compute_workload SET status = 'terminated', terminated_at = now()",
        "that is still wanted",
    ),
    "a bystander on reserved units": (
        "UPDATE compute_claim SET created_at = created_at + interval '1 second'; "
        "UPDATE nodes_holdunit SET released = false",
        "withheld from it by reservation",
    ),
    "an end nobody audited": (
        "UPDATE compute_workload SET status = 'terminated', terminated_at = now()",
        "is terminated, and 0 events say so",
    ),
    "a cancelling nobody audited": (
        "UPDATE reservations_reservation SET cancelled_at = now()",
        "1 events of its creation and 0 of its cancelling",
    ),
    "an announcement nobody audited": (
        """
        INSERT INTO reservations_announcement (id, reservation_id, event, key, occurred_at, announced_at)
        SELECT gen_random_uuid(), hold_id, 'reservation.expired', 0, now(), now()
        FROM reservations_reservation
        """,
        "has 0 audit events",
    ),
}


@pytest.fixture
def sold(fleet: Fleet) -> Workload:
    """A reservation with a released unit, and a spot VM on it."""
    made = fleet.reserved(0)
    assert fleet.act("release", made, unitIds=made["reservedUnitIds"]).status_code == 200
    return workload(fleet.node, fleet.outsider, [0])


def test_a_sound_database_has_no_violations(sold: Workload) -> None:
    assert violations() == []
    out = StringIO()
    call_command("check_invariants", stdout=out)
    assert f"All {len(PROMISES)} invariants hold" in out.getvalue()


@pytest.mark.parametrize("breakage", BREAKAGE)
def test_what_is_broken_is_found_and_said(sold: Workload, breakage: str) -> None:
    statement, words = BREAKAGE[breakage]
    assert Hold.objects.exists()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        if breakage == "a unit held twice":
            cursor.execute("ALTER TABLE nodes_holdunit DROP CONSTRAINT one_hold_at_a_time")
        cursor.execute("SET LOCAL session_replication_role = replica")  # past triggers and foreign keys
        cursor.execute(statement)
        cursor.execute("SET LOCAL session_replication_role = origin")
    found = violations()
    assert any(words in sentence for sentence in found), found
    with pytest.raises(SystemExit) as left:
        call_command("check_invariants", stdout=StringIO(), stderr=StringIO())
    assert left.value.code == 1
