"""Write audit events, in the transaction that made the change."""

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openrelay.audit.actor import OPERATOR, SYSTEM, Actor
from openrelay.audit.models import AuditEvent
from openrelay.clock import Now

__all__ = ["OPERATOR", "SYSTEM", "Actor", "AuditEntry", "record", "record_all"]


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
    AuditEvent.objects.bulk_create(
        [
            AuditEvent(
                created_at=entry.at or Now(),
                actor=entry.actor.name,
                organization_id=entry.org_id,
                event=entry.event,
                target_type=entry.target_type,
                target_id=str(entry.target_id)[:200],
                before=entry.before,
                after=entry.after,
                reason=entry.reason,
                source_ip=entry.actor.source_ip,
                request_id=entry.actor.request_id,
            )
            for entry in entries
        ]
    )
