"""Sign people in to the API, and out."""

import datetime as dt
import uuid

from django.db import transaction

from openrelay.audit.services.record import Actor, record
from openrelay.core import clock
from openrelay.core.errors import Conflict, NotFound
from openrelay.identity import secrets
from openrelay.identity.caller import Caller
from openrelay.identity.models import Membership, SessionToken
from openrelay.identity.services.callers import operating
from openrelay.identity.services.memberships import OPERATORS_ACTION, check_reason

LIFETIME = dt.timedelta(hours=12)


def mint_session(*, actor: Actor, user_id: uuid.UUID, organization_id: uuid.UUID) -> tuple[SessionToken, str]:
    """A session for a person in one of their organizations, and its secret, shown this once.

    Raises Conflict (INVALID_STATE) when the person is not active or not a member there.
    """
    with transaction.atomic():
        at = clock.read()
        member = Membership.objects.joined().filter(
            user_id=user_id,
            organization_id=organization_id,
            organization__deleted_at=None,
            user__is_active=True,
        )
        if not member.exists():
            raise Conflict("This person is not active, or not a member of that organization.")
        secret, sha256 = secrets.make(secrets.SESSION)
        session = SessionToken.objects.create(
            sha256=sha256,
            user_id=user_id,
            organization_id=organization_id,
            created_at=at,
            expires_at=at + LIFETIME,
        )
        record(
            actor,
            "session.created",
            target_type="session",
            target_id=session.id,
            org_id=organization_id,
            after={"userId": user_id, "expiresAt": clock.rfc3339(session.expires_at)},
            at=at,
        )
    return session, secret


def revoke_session(*, actor: Actor, session_id: uuid.UUID) -> None:
    """End a session now; repeating it changes nothing. Raises NotFound for one that never was."""
    with transaction.atomic():
        session = _locked(session_id)
        _revoke(actor, session, "", clock.read())


def revoke_session_as_operator(*, caller: Caller, session_id: uuid.UUID, reason: str) -> None:
    """End anybody's session now; see `revoke_session`.

    Raises NotFound for no such session or who is not an operator with member.manage, Invalid
    (VALIDATION_ERROR) without a reason.
    """
    check_reason(reason)
    with transaction.atomic():
        session = _locked(session_id)
        caller, at = operating(caller, OPERATORS_ACTION)
        _revoke(caller.actor, session, reason, at)


def _locked(session_id: uuid.UUID) -> SessionToken:
    session: SessionToken | None = SessionToken.objects.select_for_update().filter(pk=session_id).first()
    if session is None:
        raise NotFound()
    return session


def _revoke(actor: Actor, session: SessionToken, reason: str, at: dt.datetime) -> None:
    if session.revoked_at is not None:
        return
    session.revoked_at = at
    session.save(update_fields=["revoked_at"])
    record(
        actor,
        "session.revoked",
        target_type="session",
        target_id=session.id,
        org_id=session.organization_id,
        before={"userId": session.user_id},
        reason=reason,
        at=at,
    )
