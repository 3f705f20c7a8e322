"""Keeping the fleet's offers: what has changed since they were surveyed, and surveying that again.

Triggers note, for each node, the last transaction that changed what it has to give. What the offers do not
have yet is every node whose transaction is not visible in the snapshot that they were taken with, every node
that fell silent or spoke again since, and every node where a hold began or ended. So a reader can always
know what is stale, exactly, and survey those few nodes itself.
"""

import datetime as dt
from dataclasses import dataclass
from functools import cache
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from compute.models.availability import EVERY_NODE
from compute.services.offers import survey_sql
from openrelay.ids import new_id

# A reader surveys up to so many stale nodes itself; beyond, it has the offers brought up to date first.
MOST_STALE = 2000
# Without a task that does so, a reader does it at this age.
READERS_REFRESH_AFTER = dt.timedelta(seconds=15)
_LOCK = 0x0FFE25
# A clock that was set back by more than this makes the offers worthless.
_SET_BACK = dt.timedelta(seconds=1)

# Its own transaction's changes are in no snapshot of its own, so they are named apart.
_CHANGED = """
SELECT c.node_id FROM compute_nodechange c
WHERE c.xid >= pg_snapshot_xmin(s.snapshot::pg_snapshot)::text::bigint
  AND (c.xid = pg_current_xact_id_if_assigned()::text::bigint
       OR NOT pg_visible_in_snapshot(c.xid::text::xid8, s.snapshot::pg_snapshot))
"""
_SILENT = """
SELECT beat.node_id FROM nodes_nodeheartbeat beat
WHERE beat.seen_at > s.surveyed_at - {grace} AND beat.seen_at <= {now} - {grace}
"""
_BACK = """
SELECT offer.node_id FROM compute_nodeoffer offer
JOIN nodes_nodeheartbeat beat ON beat.node_id = offer.node_id
WHERE NOT offer.online AND beat.seen_at > {now} - {grace}
"""
_TERMS = """
SELECT hold.node_id FROM nodes_hold hold
WHERE (lower(hold.term) > s.surveyed_at AND lower(hold.term) <= {now})
   OR (upper(hold.term) > s.surveyed_at AND upper(hold.term) <= {now})
"""
# Few silent nodes are looked after at every reading, many only when the offers are brought up to date.
_FRESHNESS = f"""
SELECT s.version, s.surveyed_at, s.checked_at, s.next_term_at, {{now}},
       pg_snapshot_xmax(s.snapshot::pg_snapshot)::text::bigint
           > pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
       ARRAY(SELECT node_id FROM ({_CHANGED} UNION ALL {_SILENT}
             UNION ALL (SELECT node_id FROM ({_BACK}) b WHERE s.silent BETWEEN 1 AND 200)) stale
             LIMIT {MOST_STALE + 1}),
       ARRAY(SELECT DISTINCT hold.node_id FROM nodes_holdaudience audience
             JOIN nodes_hold hold ON hold.id = audience.hold_id
             WHERE audience.organization_id = %s AND hold.term @> {{now}})
FROM compute_availabilitystate s
"""  # noqa: S608  (statements of our own)


@dataclass(frozen=True, slots=True)
class Freshness:
    """Which offers there are, what of them is stale, and where something is reserved to the asker."""

    version: UUID
    stale: frozenset[UUID]
    own: frozenset[UUID]
    usable: bool  # false: they are to be brought up to date before anything is read


def freshness(organization_id: UUID | None) -> Freshness | None:
    """How the offers stand now, in one query; None when there are none."""
    with connection.cursor() as cursor:
        cursor.execute(_sql(_FRESHNESS), [organization_id])
        row = cursor.fetchone()
    if row is None:
        return None
    version, surveyed_at, checked_at, next_term_at, now, foreign, stale, own = row
    return Freshness(
        version=version,
        stale=frozenset(stale),
        own=frozenset(own),
        usable=not foreign
        and surveyed_at <= now + _SET_BACK
        and now - checked_at <= READERS_REFRESH_AFTER
        and (next_term_at is None or next_term_at > now)
        and len(stale) <= MOST_STALE
        and EVERY_NODE not in stale,
    )


def refresh() -> bool:
    """Survey what is stale again, or everything when there is nothing to start from.

    One at a time; who waited for another finds little left to do. Returns whether any offer changed hands.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        # Read before anything is surveyed: what commits from here on counts as stale, seen or not.
        cursor.execute(_sql("SELECT pg_current_snapshot()::text, {now}"))
        snapshot, at = cursor.fetchone()
        cursor.execute(
            _sql(
                f"""
                SELECT s.surveyed_at,
                       pg_snapshot_xmax(s.snapshot::pg_snapshot)::text::bigint
                           > pg_snapshot_xmax(%s::pg_snapshot)::text::bigint,
                       ARRAY(SELECT DISTINCT node_id FROM ({_CHANGED} UNION ALL {_SILENT}
                             UNION ALL {_BACK} UNION ALL {_TERMS}) stale)
                FROM compute_availabilitystate s
                """  # noqa: S608
            ),
            [snapshot],
        )
        row = cursor.fetchone()
        if row is None or row[1] or row[0] > at + _SET_BACK:
            stale: list[UUID] | None = None
        else:
            stale = row[2]
            if not stale:
                cursor.execute(
                    "UPDATE compute_availabilitystate SET checked_at = %s, surveyed_at = %s, snapshot = %s",
                    [at, at, snapshot],
                )
                return False
        some = stale is not None
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


@cache
def _sql(statement: str) -> str:
    grace = f"make_interval(secs => {settings.NODE_OFFLINE_GRACE_SECONDS})"
    return statement.format(now=settings.CLOCK_SQL, grace=grace)
