"""The two queries every request begins with: what a key or a session stands for, and the database's time.

They are SQL by hand because they run on every request, and again in every change's own transaction.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from django.conf import settings

from openrelay.core.rows import NOTHING, Question, Reading, Row
from openrelay.identity.accounts import STATUS_SQL, Account
from openrelay.identity.caller import Place
from openrelay.identity.roles import HeldRole, builtin

T = TypeVar("T")

_ACCOUNT = f"{STATUS_SQL}, org.balance_cents"
# One of the organization's own roles, where that is what the place has.
_OWN = "own.id, own.name, own.permissions, own.ip_ranges, own.endpoints, own.model_ids"

_KEY = """
SELECT key.id, key.name, key.prefix, key.permissions, key.ip_ranges, key.expires_at,
       coalesce(key.revoked_at, org.deleted_at),
       key.last_used_at, org.id, org.name, org.is_platform_ops, key.created_by_id,
       maker.is_active, place.role, {own}, key.endpoints, key.model_ids, {account}, {now}, {also}
FROM identity_apikey key
JOIN identity_organization org ON org.id = key.organization_id
LEFT JOIN identity_user maker ON maker.id = key.created_by_id
LEFT JOIN identity_membership place ON place.user_id = key.created_by_id
     AND place.organization_id = key.organization_id AND place.joined_at IS NOT NULL
LEFT JOIN identity_role own ON own.id = place.custom_role_id
WHERE key.{column} = %s
"""

_SESSION = """
SELECT session.id, session.organization_id, session.expires_at, session.revoked_at,
       person.id, person.is_active, org.id, org.name, org.is_platform_ops, place.role, {own}, {account},
       {now}, {also}
FROM identity_sessiontoken session
JOIN identity_user person ON person.id = session.user_id
LEFT JOIN identity_membership place ON place.user_id = person.id AND place.joined_at IS NOT NULL
LEFT JOIN identity_organization org ON org.id = place.organization_id AND org.deleted_at IS NULL
LEFT JOIN identity_role own ON own.id = place.custom_role_id
WHERE session.{column} = %s
ORDER BY org.name, org.id
"""

_PERSON = """
SELECT NULL, NULL, NULL, NULL, person.id, person.is_active,
       org.id, org.name, org.is_platform_ops, place.role, {own}, {account}, {now}, {also}
FROM identity_user person
LEFT JOIN identity_membership place ON place.user_id = person.id AND place.joined_at IS NOT NULL
LEFT JOIN identity_organization org ON org.id = place.organization_id AND org.deleted_at IS NULL
LEFT JOIN identity_role own ON own.id = place.custom_role_id
WHERE person.{column} = %s
ORDER BY org.name, org.id
"""


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """A key as it is stored, with its organization and its maker's place there, at the time `at`.

    A key of a deleted organization is revoked since then. `also` is what was to be read along with it.
    """

    id: uuid.UUID
    name: str
    prefix: str
    permissions: tuple[str, ...]
    ip_ranges: tuple[str, ...]
    endpoints: tuple[str, ...]
    models: tuple[str, ...]
    expires_at: dt.datetime | None
    revoked_at: dt.datetime | None
    last_used_at: dt.datetime | None
    organization_id: uuid.UUID
    organization_name: str
    is_platform_ops: bool
    account: Account
    created_by: uuid.UUID | None
    maker_role: HeldRole | None
    at: dt.datetime
    also: Any = None


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """A person with every organization they have joined, and the session they came by, at the time `at`.

    A deleted organization is none of them. `also` is what was to be read along with them.
    """

    session_id: uuid.UUID | None
    organization_id: uuid.UUID | None
    expires_at: dt.datetime | None
    revoked_at: dt.datetime | None
    user_id: uuid.UUID
    user_is_active: bool
    places: tuple[Place, ...]
    at: dt.datetime
    also: Any = None


@cache
def _statement(template: str, column: str, now: str, also: str) -> str:
    return template.format(own=_OWN, account=_ACCOUNT, now=now, column=column, also=also)


def _asking(
    template: str, column: str, value: uuid.UUID | str, also: Reading, read: Callable[[list[Row]], T]
) -> Question[T]:
    statement = _statement(template, column, settings.CLOCK_SQL, also.sql)
    return Question(statement, [*also.params, value], read)


def key_by(column: str, value: uuid.UUID | str, also: Reading = NOTHING) -> Question[KeyFacts | None]:
    """Asks for the key whose `column` ("sha256" or "id") is `value`."""
    return _asking(_KEY, column, value, also, _key)


def session_by(column: str, value: uuid.UUID | str, also: Reading = NOTHING) -> Question[SessionFacts | None]:
    """Asks for the session whose `column` ("sha256" or "id") is `value`."""
    return _asking(_SESSION, column, value, also, _person)


def person_by_id(user_id: uuid.UUID, also: Reading = NOTHING) -> Question[SessionFacts | None]:
    """Asks for a person who came without a session token, by the console's own cookie."""
    return _asking(_PERSON, "id", user_id, also, _person)


def _key(rows: list[Row]) -> KeyFacts | None:
    if not rows:
        return None
    row = rows[0]
    (key_id, name, prefix, permissions, ip_ranges, expires_at, revoked_at, last_used_at) = row[:8]
    (organization_id, organization_name, is_platform_ops, created_by, maker_is_active) = row[8:13]
    endpoints, models, account_status, balance_cents, at, read = row[20:]
    return KeyFacts(
        id=key_id,
        name=name,
        prefix=prefix,
        permissions=tuple(permissions),
        ip_ranges=tuple(ip_ranges),
        endpoints=tuple(endpoints),
        models=tuple(models),
        expires_at=expires_at,
        revoked_at=revoked_at,
        last_used_at=last_used_at,
        organization_id=organization_id,
        organization_name=organization_name,
        is_platform_ops=is_platform_ops,
        account=Account(account_status, balance_cents),
        created_by=created_by,
        maker_role=_held(row[13:20]) if maker_is_active else None,
        at=at,
        also=read,
    )


def _person(rows: list[Row]) -> SessionFacts | None:
    if not rows:
        return None
    session_id, organization_id, expires_at, revoked_at, user_id, is_active = rows[0][:6]
    return SessionFacts(
        session_id=session_id,
        organization_id=organization_id,
        expires_at=expires_at,
        revoked_at=revoked_at,
        user_id=user_id,
        user_is_active=is_active,
        places=tuple(
            Place(row[6], row[7], row[8], held, Account(row[16], row[17]))
            for row in rows
            if row[6] is not None and (held := _held(row[9:16])) is not None
        ),
        at=rows[0][18],
        also=rows[0][19],
    )


def _held(columns: Sequence[Any]) -> HeldRole | None:
    """The role of a place as its columns tell; None when there is no place."""
    role, own_id, name, permissions, ip_ranges, endpoints, models = columns
    if own_id is None:
        return builtin(role) if role else None
    return HeldRole(
        id=str(own_id),
        name=name,
        custom=True,
        permissions=tuple(permissions),
        ip_ranges=tuple(ip_ranges),
        endpoints=tuple(endpoints),
        models=tuple(models),
    )
