"""Write audit events, in the transaction that made the change."""

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection

from openrelay.audit.actor import OPERATOR, SYSTEM, Actor, current_server_request_id
from openrelay.core.ids import new_id
from openrelay.core.rows import query

__all__ = ["INSERT_ONE", "OPERATOR", "SYSTEM", "Actor", "AuditEntry", "insert_values", "record", "record_all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One event to write; see `record` for the fields."""

    actor: Actor
    event: str
    target_type: str
    target_id: object
    org_id: uuid.UUID | None = None
    before: Any = None
    after: Any = None
    reason: str = ""
    at: dt.datetime | None = None


def record(
    actor: Actor,
    event: str,
    *,
    target_type: str,
    target_id: object,
    org_id: uuid.UUID | None = None,
    before: Any = None,
    after: Any = None,
    reason: str = "",
    at: dt.datetime | None = None,
) -> None:
    """Add one event ("reservation.created") to the log of `org_id`, or to the platform's alone when it is
    None.

    `before` and `after` are JSON values, or None where there is no such side. `at` is the database's time as
    the caller's transaction read it; without it the event carries the time of its own statement.
    """
    record_all(
        [
            AuditEntry(
                actor=actor,
                event=event,
                target_type=target_type,
                target_id=target_id,
                org_id=org_id,
                before=before,
                after=after,
                reason=reason,
                at=at,
            )
        ]
    )


def record_all(entries: Sequence[AuditEntry]) -> None:
    """Add many events in one statement; see `record`. Nothing to add costs no query."""
    # By hand, since every change waits for it under its lock.
    if len(entries) == 1:
        query(f"{INSERT_ONE} RETURNING id", insert_values(entries[0]))
    elif entries:
        rows = ", ".join([_ROW % (("%s",) * len(_NAMES))] * len(entries))
        with connection.cursor() as cursor:
            cursor.execute(_INSERT + rows, [value for entry in entries for value in _values(entry)])


_INSERT = """
INSERT INTO audit_auditevent (id, created_at, actor, organization_id, event, target_type, target_id,
                              before, after, reason, source_ip, request_id, shown_actor, server_request_id)
VALUES
"""
_ROW = f"(%s, coalesce(%s, {settings.CLOCK_SQL})" + ", %s" * 12 + ")"
_NAMES = tuple(f"audit_{number}" for number in range(14))

#: Inserts one event with `insert_values`; a change's own statement may have it as one of its parts.
INSERT_ONE = _INSERT + _ROW % tuple(f"%({name})s" for name in _NAMES)


def insert_values(entry: AuditEntry) -> dict[str, Any]:
    """What `INSERT_ONE` takes for `entry`."""
    return dict(zip(_NAMES, _values(entry), strict=True))


def _values(entry: AuditEntry) -> tuple[Any, ...]:
    return (
        new_id(),
        entry.at,
        entry.actor.name,
        entry.org_id,
        entry.event,
        entry.target_type,
        str(entry.target_id)[:200],
        _json(entry.before),
        _json(entry.after),
        entry.reason,
        entry.actor.source_ip,
        entry.actor.request_id,
        entry.actor.name_for(entry.org_id),
        current_server_request_id(),
    )


def _json(value: Any) -> str | None:
    return None if value is None else _encode(value)


_encode = DjangoJSONEncoder().encode
