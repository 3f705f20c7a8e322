"""End API sessions."""

import datetime as dt

from django.db.models import QuerySet

from openrelay.audit.services.record import Actor, AuditEntry, record_all
from openrelay.identity.models import SessionToken


def end_sessions(actor: Actor, sessions: "QuerySet[SessionToken]", *, reason: str, at: dt.datetime) -> int:
    """End those of the sessions that are live, in the caller's transaction; returns how many there were."""
    # In one order, so that two transactions that end the same sessions do not deadlock.
    live = list(sessions.select_for_update().filter(revoked_at=None, expires_at__gt=at).order_by("pk"))
    SessionToken.objects.filter(pk__in=[session.pk for session in live]).update(revoked_at=at)
    record_all(
        [
            AuditEntry(
                actor=actor,
                event="session.revoked",
                target_type="session",
                target_id=session.pk,
                org_id=session.organization_id,
                before={"userId": session.user_id},
                reason=reason,
                at=at,
            )
            for session in live
        ]
    )
    return len(live)
