"""From a credential to a caller, and again from a caller to what it is now."""

import datetime as dt
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Any

from django.db import connection

from openrelay.audit.actor import Actor
from openrelay.core import clock
from openrelay.core.errors import Forbidden, NotFound, Unauthenticated
from openrelay.core.rows import NOTHING, Question, Reading, Row, ask
from openrelay.identity import secrets
from openrelay.identity.caller import FOREIGN_ORGANIZATION, Caller, serving
from openrelay.identity.lookups import KeyFacts, SessionFacts, key_by, person_by_id, session_by
from openrelay.identity.permissions import (
    EVERYONE,
    PLATFORM_ACTIONS,
    SESSION_ONLY_ACTIONS,
    actions_of,
)

#: For how many seconds a key's look-up may serve further requests.
REMEMBER_SECONDS = 1.0
LAST_USE_EVERY = dt.timedelta(minutes=1)
_REMEMBERED_AT_MOST = 10_000

_UNKNOWN = (
    "This credential is not known here. Send `Authorization: Bearer` with an API key or a session token."
)


@dataclass(frozen=True, slots=True)
class _Remembered:
    facts: KeyFacts
    monotonic: float


_remembered: dict[str, _Remembered] = {}
_remembered_lock = threading.Lock()


def forget_keys() -> None:
    """Drop this process's memory of keys, so that a change made here shows here at once."""
    with _remembered_lock:
        _remembered.clear()


def authenticate(secret: str, *, source_ip: str, request_id: str) -> Caller:
    """The caller that a bearer credential stands for.

    `source_ip` is where the request came from. A key's look-up of the last second may serve: what changes
    anything reads it again, in its own transaction.

    Raises Unauthenticated (UNAUTHORIZED, REVOKED_API_KEY, EXPIRED_API_KEY), AddressRefused (FORBIDDEN) when a
    key or role is used from an address outside its ranges.
    """
    if secret.startswith(secrets.API_KEY):
        return _from_key(secrets.digest(secret), source_ip, request_id)
    if secret.startswith(secrets.SESSION):
        session = ask(session_by("sha256", secrets.digest(secret)))
        if session is None:
            raise Unauthenticated(_UNKNOWN)
        return _session_caller(session, session.organization_id, source_ip, request_id)
    raise Unauthenticated(_UNKNOWN)


def console_caller(
    user_id: uuid.UUID, organization_id: uuid.UUID, *, source_ip: str, request_id: str
) -> Caller:
    """The caller that a person signed in to the console is, acting in one of their organizations.

    Raises Unauthenticated (UNAUTHORIZED) for someone no longer active, Forbidden for an organization not
    theirs, AddressRefused (FORBIDDEN) from an address outside their role's ranges.
    """
    person = ask(person_by_id(user_id))
    if person is None:
        raise Unauthenticated(_UNKNOWN)
    return _session_caller(person, organization_id, source_ip, request_id)


def reread(caller: Caller) -> tuple[Caller, dt.datetime]:
    """What `caller` may do now, and the database's time, read by one query in the current transaction.

    Call it right after taking the lock of what is changed: nothing that was revoked, expired or demoted
    before then passes. A node's or the platform's own caller stays as it is. Raises Unauthenticated
    (UNAUTHORIZED, REVOKED_API_KEY, EXPIRED_API_KEY), Forbidden for a person no longer in the organization.
    """
    caller, at, _ = ask(rereading(caller, NOTHING))
    return caller, at


def operating(caller: Caller, action: str) -> tuple[Caller, dt.datetime]:
    """What `reread` tells of an operator who may take `action`.

    Raises what `reread` raises, and NotFound for anybody else.
    """
    caller, at = reread(caller)
    if not caller.operates(action):
        raise NotFound()
    return caller, at


def rereading(caller: Caller, also: Reading) -> Question[tuple[Caller, dt.datetime, Any]]:
    """Asks what `reread` does, and what `also` reads. Its answer is read as `reread` raises."""
    actor = caller.actor
    asked: Question[Any]
    if caller.key_id is not None:
        asked = key_by("id", caller.key_id, also)
    elif caller.user_id is None:
        asked = clock.asking(also)
    elif caller.session_id:
        asked = session_by("id", caller.session_id, also)
    else:
        asked = person_by_id(caller.user_id, also)

    def read(rows: list[Row]) -> tuple[Caller, dt.datetime, Any]:
        facts = asked.read(rows)
        if facts is None:
            raise Unauthenticated(_UNKNOWN)
        if isinstance(facts, KeyFacts):
            return _key_caller(facts, facts.at, actor.source_ip, actor.request_id), facts.at, facts.also
        if isinstance(facts, SessionFacts):
            now = _session_caller(facts, caller.organization_id, actor.source_ip, actor.request_id)
            return now, facts.at, facts.also
        return caller, *facts

    return Question(asked.sql, asked.params, read)


def _from_key(sha256: str, source_ip: str, request_id: str) -> Caller:
    entry = _remembered.get(sha256)
    if entry is not None:
        elapsed = time.monotonic() - entry.monotonic
        if elapsed < REMEMBER_SECONDS:
            at = entry.facts.at + dt.timedelta(seconds=elapsed)
            return _key_caller(entry.facts, at, source_ip, request_id)
    # Before the query: what it tells can only be younger than this.
    started = time.monotonic()
    facts = ask(key_by("sha256", sha256))
    if facts is None:
        raise Unauthenticated(_UNKNOWN)
    caller = _key_caller(facts, facts.at, source_ip, request_id)
    with _remembered_lock:
        if len(_remembered) >= _REMEMBERED_AT_MOST:
            _remembered.clear()
        _remembered[sha256] = _Remembered(facts, started)
    if facts.last_used_at is None or facts.at - facts.last_used_at >= LAST_USE_EVERY:
        _note_use(facts)
    return caller


def _note_use(facts: KeyFacts) -> None:
    # The condition again in the statement: of many requests at once, one writes.
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE identity_apikey SET last_used_at = %s "
            "WHERE id = %s AND (last_used_at IS NULL OR last_used_at <= %s)",
            [facts.at, facts.id, facts.at - LAST_USE_EVERY],
        )


def _key_caller(facts: KeyFacts, at: dt.datetime, source_ip: str, request_id: str) -> Caller:
    if facts.revoked_at is not None:
        raise Unauthenticated("This API key was revoked. Use another one.", code="REVOKED_API_KEY")
    if facts.expires_at is not None and facts.expires_at <= at:
        raise Unauthenticated("This API key has expired. Use another one.", code="EXPIRED_API_KEY")
    ceiling = actions_of(facts.permissions) | EVERYONE
    caller = Caller(
        kind="api_key",
        organization_id=facts.organization_id,
        organization_name=facts.organization_name,
        is_operator=facts.is_platform_ops,
        account=facts.account,
        actions=key_actions(facts),
        actor=Actor(f"key:{facts.id}", source_ip, request_id, facts.organization_id, facts.is_platform_ops),
        key_id=facts.id,
        ceiling=ceiling,
    )
    return serving(caller, facts.maker_role, facts.ip_ranges)


def key_actions(facts: KeyFacts) -> frozenset[str]:
    """What a live key may do: its ceiling, within its organization's reach and its maker's role of now."""
    actions = (actions_of(facts.permissions) | EVERYONE) - SESSION_ONLY_ACTIONS
    if not facts.is_platform_ops:
        actions -= PLATFORM_ACTIONS
    if facts.created_by is not None:
        if facts.maker_role is None:
            return frozenset()
        actions &= facts.maker_role.actions(platform_ops=facts.is_platform_ops)
    return actions


def _session_caller(
    session: SessionFacts, organization_id: uuid.UUID | None, source_ip: str, request_id: str
) -> Caller:
    if session.revoked_at is not None or (
        session.expires_at is not None and session.expires_at <= session.at
    ):
        raise Unauthenticated("This session has ended. Sign in again.")
    if not session.user_is_active:
        raise Unauthenticated("This account is not active. Ask an operator.")
    place = next((place for place in session.places if place.organization_id == organization_id), None)
    if place is None:
        # The organization that a session was made for is gone for this person, and the session with it.
        if organization_id == session.organization_id:
            raise Unauthenticated("You are no longer a member of this session's organization. Sign in again.")
        raise Forbidden(FOREIGN_ORGANIZATION)
    caller = Caller(
        kind="user",
        organization_id=place.organization_id,
        organization_name=place.organization_name,
        is_operator=place.is_platform_ops,
        account=place.account,
        actions=place.actions,
        actor=Actor(
            f"user:{session.user_id}",
            source_ip,
            request_id,
            place.organization_id,
            place.is_platform_ops,
        ),
        user_id=session.user_id,
        session_id=session.session_id,
        held=place.held,
        places=session.places,
    )
    return serving(caller, place.held)
