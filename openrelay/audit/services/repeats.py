"""Write an event that repeats itself once a minute, with the number of times it happened.

The first is written at once. An equal one within a minute after it is counted in its row of `AuditRepeat`;
the next that comes later, or the sweep, writes one event for all that were counted. So no event is written
more often than once a minute, and none is lost: the counts are rows, shared by all processes, and survive a
crash.
"""

import hashlib
import json
import uuid
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from openrelay.audit.actor import Actor
from openrelay.audit.services.record import AuditEntry, insert_values
from openrelay.core.rows import query

WINDOW_SECONDS = 60
#: So many different repeatable events of one actor are told apart within a minute; the rest of an operation's
#: are counted together, as events of target "several". It bounds the rows that a hostile caller can add.
TOLD_APART = 100
_SEVERAL = "several"
_SWEPT_AT_ONCE = 500


def record_repeated(
    actor: Actor,
    event: str,
    *,
    same: str = "",
    target_type: str,
    target_id: object,
    org_id: uuid.UUID | None = None,
    after: dict[str, Any] | None = None,
    reason: str = "",
) -> bool:
    """Add an event, or count it when an equal one was written less than a minute ago; see `record` for the
    fields. Returns whether it was added now.

    Two are equal when actor, source address, organization, event, target and `same` are: `same` is whatever
    else has to differ for an event of its own, such as a code. What differs between equal ones, such as a
    sequence number, belongs in `after` and not in `same`. An event that stands for several carries `times`,
    how many it stands for, and `since`, when the one before it was written.

    One statement. Outside a transaction it commits by itself, as a refusal needs; inside one it is undone
    with it. Something kept beside the event, such as a whole report, is kept only when this returns True:

        if record_repeated(actor, "node.report_refused", same=code, target_type="node", ...):
            FlaggedReport.objects.create(...)
    """
    shared = [actor.name, actor.source_ip, str(org_id or ""), event]
    entry = AuditEntry(
        actor=actor,
        event=event,
        target_type=target_type,
        target_id=target_id,
        org_id=org_id,
        after=after or {},
        reason=reason,
    )
    ((written,),) = query(
        _COUNT,
        {
            **insert_values(entry),
            "digest": _digest(*shared, same, target_type, str(target_id)),
            "together": _digest(*shared, same, _SEVERAL),
        },
    )
    return bool(written)


def write_counted() -> int:
    """Write an event for each one that was counted and not written for a minute, and forget those that no
    longer repeat themselves; returns how many events were written.
    """
    total: int = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_SWEEP, {"limit": _SWEPT_AT_ONCE})
            due, written = map(int, cursor.fetchone())
        total += written
        if due < _SWEPT_AT_ONCE:
            return total


def _digest(*parts: str) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()


_NOW = settings.CLOCK_SQL
_DUE = f"written_at <= {_NOW} - interval '{WINDOW_SECONDS} seconds'"
# The facts that an event for several has beside its own. Its own are those of the latest, except for a target
# that several differ in.
_TIMES = """
after || CASE WHEN {times} > 1 THEN jsonb_build_object('times', {times}, 'since',
    to_char({since} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) ELSE '{{}}' END
"""
_ADD = f"""
INSERT INTO audit_auditevent (id, created_at, actor, organization_id, event, target_type, target_id, after,
                              reason, source_ip, request_id, shown_actor, server_request_id)
SELECT {{id}}, {_NOW}, actor, organization_id, event, target_type, target_id, {_TIMES}, reason, source_ip,
       request_id, shown_actor, server_request_id
"""
_COUNT = f"""
WITH asked AS (
    SELECT EXISTS (SELECT FROM audit_auditrepeat WHERE digest = %(digest)s::bytea)
           OR (SELECT count(*) FROM (
                   SELECT FROM audit_auditrepeat WHERE actor = %(audit_2)s::text LIMIT {TOLD_APART}
               ) AS known) < {TOLD_APART} AS told_apart
), counted AS (
    INSERT INTO audit_auditrepeat AS known (
        digest, actor, organization_id, event, target_type, target_id, after, reason, source_ip, request_id,
        shown_actor, server_request_id, written_at, written_before_at, pending, writes
    )
    SELECT CASE WHEN told_apart THEN %(digest)s::bytea ELSE %(together)s::bytea END,
           %(audit_2)s::text, %(audit_3)s::uuid, %(audit_4)s::text,
           CASE WHEN told_apart THEN %(audit_5)s::text ELSE '{_SEVERAL}' END,
           CASE WHEN told_apart THEN %(audit_6)s::text ELSE '' END,
           %(audit_8)s::jsonb, %(audit_9)s::text, %(audit_10)s::text, %(audit_11)s::text,
           %(audit_12)s::text, %(audit_13)s::uuid, {_NOW}, NULL, 0, 1
    FROM asked
    ON CONFLICT (digest) DO UPDATE SET
        after = excluded.after, reason = excluded.reason, request_id = excluded.request_id,
        server_request_id = excluded.server_request_id,
        writes = CASE WHEN known.{_DUE} THEN known.pending + 1 ELSE 0 END,
        pending = CASE WHEN known.{_DUE} THEN 0 ELSE known.pending + 1 END,
        written_before_at = CASE WHEN known.{_DUE} THEN known.written_at ELSE known.written_before_at END,
        written_at = CASE WHEN known.{_DUE} THEN {_NOW} ELSE known.written_at END
    RETURNING *
), added AS (
    {_ADD.format(id="%(audit_0)s::uuid", times="writes", since="written_before_at")}
    FROM counted WHERE writes > 0
    RETURNING id
)
SELECT count(*) FROM added
"""  # noqa: S608
# Rows that a request is counting in just now are left to the next sweep. A row stays for another minute after
# its event, so that events of one kind keep their distance.
_SWEEP = f"""
WITH due AS MATERIALIZED (
    SELECT digest FROM audit_auditrepeat WHERE {_DUE} ORDER BY written_at LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), counted AS (
    UPDATE audit_auditrepeat known
    SET writes = pending, pending = 0, written_before_at = written_at, written_at = {_NOW}
    FROM due WHERE known.digest = due.digest AND pending > 0
    RETURNING known.*
), forgotten AS (
    DELETE FROM audit_auditrepeat known USING due WHERE known.digest = due.digest AND pending = 0
), added AS (
    {_ADD.format(id="gen_random_uuid()", times="writes", since="written_before_at")}
    FROM counted
    RETURNING id
)
SELECT (SELECT count(*) FROM due), (SELECT count(*) FROM added)
"""  # noqa: S608
