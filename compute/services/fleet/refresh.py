"""Refreshing the node survey: which nodes are stale, and surveying them again.

Triggers record, for each node, the last transaction that changed it. A node is stale when that transaction is
not visible in the snapshot of the survey, when the node fell silent or reported again since, or when a hold
began or ended there. So a reader knows exactly which nodes are stale, and surveys those few itself.
"""

from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from compute.models.availability import EVERY_NODE
from compute.services.fleet.node_survey import survey_sql
from openrelay.core import shared_connection
from openrelay.core.ids import new_id

# A reader surveys up to this many stale nodes itself; with more it refreshes the survey first.
MOST_STALE = 2000
# With more stale nodes than this, surveying the whole fleet is cheaper.
MOST_APART = 5000
_LOCK = 0x0FFE25
_GRACE = f"interval '{settings.NODE_OFFLINE_GRACE_SECONDS} seconds'"


@dataclass(frozen=True, slots=True)
class Freshness:
    """The version of the survey, its stale nodes, and the nodes where something is reserved to the reader."""

    version: UUID
    stale: frozenset[UUID]
    # The transactions that changed them: they tell one change of a node from the next.
    marks: dict[UUID, int]
    other: frozenset[UUID]  # stale for another reason than a change
    own: frozenset[UUID]
    usable: bool  # false: they are to be brought up to date before anything is read


def freshness(organization_id: UUID) -> Freshness | None:
    """The state of the survey now; None when there is no survey. One query."""
    row = shared_connection.fetchone(
        "SELECT version, worthless OR due, stale, marks, own FROM compute_freshness("  # noqa: S608
        f"%s::uuid, {settings.CLOCK_SQL}, {_GRACE}, {MOST_STALE + 1}, false)",
        [organization_id],
    )
    if row is None or row[0] is None:
        return None
    version, unusable, stale, marks, own = row
    return Freshness(
        version=version,
        stale=frozenset(stale),
        marks=dict(zip(stale, marks, strict=False)),
        other=frozenset(stale[len(marks) :]),
        own=frozenset(own),
        usable=not unusable and len(stale) <= MOST_STALE and EVERY_NODE not in stale,
    )


def refresh() -> bool:
    """Survey what is stale again, or everything when there is nothing to start from.

    One process at a time: the others wait and find little to do. Returns whether anything was surveyed.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        # Read before the survey: later commits count as stale, whether or not the survey sees them.
        cursor.execute(f"SELECT pg_current_snapshot()::text, {settings.CLOCK_SQL}")
        snapshot, at = cursor.fetchone()
        cursor.execute(
            f"SELECT worthless, stale FROM compute_freshness(NULL, %s, {_GRACE}, 2147483647, true)",  # noqa: S608
            [at],
        )
        row = cursor.fetchone()
        stale: list[UUID] | None = None
        if row is not None and row[0] is False:
            stale = sorted(set(row[1]))
            if not stale:
                cursor.execute(
                    "UPDATE compute_availabilitystate SET checked_at = %s, surveyed_at = %s, snapshot = %s",
                    [at, at, snapshot],
                )
                return False
        some = stale is not None and len(stale) <= MOST_APART
        cursor.execute(
            f"DELETE FROM compute_nodeoffer WHERE {'node_id = ANY(%(nodes)s)' if some else 'true'}",  # noqa: S608
            {"nodes": stale},
        )
        cursor.execute(
            "INSERT INTO compute_nodeoffer (node_id, gpu_model_id, online, shape) "
            + survey_sql(some=some, organization=False),
            {"nodes": stale},
        )
        cursor.execute(_SUMMARY, {"version": new_id(), "snapshot": snapshot, "at": at})
    return True


_SUMMARY = """
WITH shapes AS (
    SELECT gpu_model_id, json_agg(json_build_array(shape, nodes) ORDER BY shape) AS shapes
    FROM (SELECT gpu_model_id, shape, count(*) AS nodes FROM compute_nodeoffer GROUP BY 1, 2) one
    GROUP BY gpu_model_id
), moment AS (
    SELECT min(moment) AS next_term_at FROM (
        SELECT lower(term) AS moment FROM nodes_hold WHERE lower(term) > %(at)s
        UNION ALL SELECT upper(term) FROM nodes_hold WHERE upper(term) > %(at)s) both_ends
)
INSERT INTO compute_availabilitystate
    (id, version, snapshot, surveyed_at, checked_at, next_term_at, silent, offers)
SELECT 1, %(version)s, %(snapshot)s, %(at)s, %(at)s, moment.next_term_at,
       (SELECT count(*) FROM compute_nodeoffer WHERE NOT online),
       coalesce((SELECT json_object_agg(gpu_model_id, shapes)::text FROM shapes), '{}')
FROM moment
ON CONFLICT (id) DO UPDATE SET
    version = excluded.version, snapshot = excluded.snapshot, surveyed_at = excluded.surveyed_at,
    checked_at = excluded.checked_at, next_term_at = excluded.next_term_at, silent = excluded.silent,
    offers = excluded.offers
"""
