"""Make, list, revoke and edit API keys."""

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import transaction

from openrelay.audit.services.record import Actor, record
from openrelay.core import clock
from openrelay.core.errors import Invalid, NotFound
from openrelay.identity import secrets
from openrelay.identity.addresses import checked_ranges
from openrelay.identity.caller import Caller
from openrelay.identity.models import ApiKey
from openrelay.identity.permissions import KEY_TEMPLATES, PERMISSIONS, permissions_held
from openrelay.identity.services.callers import forget_keys, reread
from openrelay.identity.services.escalation import checked_permissions, refuse_escalation

PERIODS = ("lifetime", "daily", "monthly")
# "or_" and eight more: enough to tell keys apart, far too little to guess one.
_PREFIX_LENGTH = 11
#: What the older scopes stand for today.
_SCOPES = {
    "clusters:read": (
        "compute.read",
        "catalog.read",
        "provider.read",
        "sshkey.read",
        "org.read",
        "usage.read",
    ),
    "clusters:write": (
        "compute.write",
        "catalog.read",
        "provider.write",
        "sshkey.write",
        "org.read",
        "usage.read",
    ),
    "vms:read": (),
    "vms:write": (),
    "inference": ("catalog.read", "usage.read"),
}
_SCOPE_NEEDS = {"vms:read": "clusters:read", "vms:write": "clusters:write"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Restrictions:
    """What narrows a key: address ranges (CIDRs), and the endpoints and models it may call."""

    ip_ranges: Sequence[str] = field(default_factory=tuple)
    endpoints: Sequence[str] = field(default_factory=tuple)
    models: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a key may spend a period: `limit` in nano-USD, `period` one of PERIODS; None leaves as it is."""

    limit: int | None = None
    period: str | None = None


def ceiling_of(
    caller: Caller, *, permissions: Sequence[str] | None, template: str | None, scopes: Sequence[str]
) -> list[str]:
    """The permission ids a new key is to hold: `permissions`, else a template's, else the scopes', else the
    maker's.

    The maker's leave reservations out: a key has those only when they are asked for. Raises Invalid
    (VALIDATION_ERROR) for a permission, template or scope that does not exist.
    """
    for scope in scopes:
        if scope not in _SCOPES:
            raise Invalid(f"scopes: {scope[:60]!a} is not a scope of this API. Use {', '.join(_SCOPES)}.")
        if scope in _SCOPE_NEEDS and _SCOPE_NEEDS[scope] not in scopes:
            raise Invalid(f"scopes: {scope} requires {_SCOPE_NEEDS[scope]}.")
    if permissions is not None:
        return checked_permissions(permissions)
    if template is not None:
        known = KEY_TEMPLATES.get(template)
        if known is None:
            raise Invalid(f"template must be one of {', '.join(KEY_TEMPLATES)}.")
        return sorted(known.permissions)
    if scopes:
        return sorted({permission for scope in scopes for permission in _SCOPES[scope]})
    return sorted(p for p in permissions_held(caller.actions) if not p.startswith("reservation."))


def create_key(
    *,
    caller: Caller,
    name: str,
    note: str = "",
    permissions: Sequence[str] | None = None,
    template: str | None = None,
    scopes: Sequence[str] = (),
    restrictions: Restrictions = Restrictions(),
    budget: Budget | None = None,
    expires_in_seconds: int | None = None,
) -> tuple[ApiKey, str]:
    """Make a key of the caller's organization, and its secret, shown this once.

    `expires_in_seconds` of zero or less, or None, is never. Raises Forbidden (FORBIDDEN, ESCALATION_REFUSED
    for more than the caller holds), Invalid (VALIDATION_ERROR).
    """
    with transaction.atomic():
        caller, at = reread(caller)
        caller.require("apikey.create")
        ceiling = ceiling_of(caller, permissions=permissions, template=template, scopes=scopes)
        refuse_escalation(caller, ceiling, of="key")
        key, secret = _store(
            at=at,
            organization_id=caller.organization_id,
            created_by=caller.user_id,
            name=name,
            note=note,
            permissions=ceiling,
            scopes=scopes,
            restrictions=restrictions,
            budget=budget,
            expires_in_seconds=expires_in_seconds,
        )
        _audit_created(caller.actor, key, at)
    return key, secret


def create_server_key(
    *,
    actor: Actor,
    organization_id: uuid.UUID,
    name: str,
    permissions: Sequence[str],
    expires_in_seconds: int | None = None,
) -> tuple[ApiKey, str]:
    """Make a key at the server, for a program rather than by a person: no role limits it but its ceiling.

    Raises Invalid (VALIDATION_ERROR) for a permission that does not exist.
    """
    for permission in permissions:
        if permission not in PERMISSIONS:
            raise Invalid(f"{permission} is not a permission.")
    with transaction.atomic():
        at = clock.read()
        key, secret = _store(
            at=at,
            organization_id=organization_id,
            created_by=None,
            name=name,
            note="",
            permissions=sorted(set(permissions)),
            scopes=(),
            restrictions=Restrictions(),
            budget=None,
            expires_in_seconds=expires_in_seconds,
        )
        _audit_created(actor, key, at)
    return key, secret


def revoke_key(*, caller: Caller, key_id: uuid.UUID) -> None:
    """End a key of the caller's organization now; repeating it changes nothing.

    Raises Forbidden (FORBIDDEN), NotFound.
    """
    with transaction.atomic():
        key = _locked(caller, key_id)
        caller, at = reread(caller)
        caller.require("apikey.revoke")
        if key.revoked_at is not None:
            return
        key.revoked_at = at
        key.save(update_fields=["revoked_at"])
        record(
            caller.actor,
            "apikey.revoked",
            target_type="apikey",
            target_id=key.id,
            org_id=key.organization_id,
            before={"name": key.name, "keyPrefix": key.prefix},
            at=at,
        )
        transaction.on_commit(forget_keys)


def edit_budget(*, caller: Caller, key_id: uuid.UUID, budget: Budget) -> ApiKey:
    """Change what a key of the caller's organization may spend; a limit of 0 removes the budget.

    Raises Forbidden (FORBIDDEN), NotFound, Invalid (VALIDATION_ERROR) for a first budget without a limit.
    """
    with transaction.atomic():
        key = _locked(caller, key_id)
        caller, at = reread(caller)
        caller.require("apikey.update")
        before = _budget_facts(key)
        if budget.limit == 0:
            key.budget_limit_nano_usd, key.budget_period = None, ""
        else:
            limit = key.budget_limit_nano_usd if budget.limit is None else budget.limit
            if limit is None:
                raise Invalid("budget.limitNanoUsd is required: this key has no budget yet.")
            key.budget_limit_nano_usd = limit
            key.budget_period = budget.period or key.budget_period or PERIODS[0]
        after = _budget_facts(key)
        if after != before:
            key.save(update_fields=["budget_limit_nano_usd", "budget_period"])
            record(
                caller.actor,
                "apikey.updated",
                target_type="apikey",
                target_id=key.id,
                org_id=key.organization_id,
                before=before,
                after=after,
                at=at,
            )
    return key


def _store(
    *,
    at: dt.datetime,
    organization_id: uuid.UUID,
    created_by: uuid.UUID | None,
    name: str,
    note: str,
    permissions: Sequence[str],
    scopes: Sequence[str],
    restrictions: Restrictions,
    budget: Budget | None,
    expires_in_seconds: int | None,
) -> tuple[ApiKey, str]:
    secret, sha256 = secrets.make(secrets.API_KEY)
    lives = expires_in_seconds is not None and expires_in_seconds > 0
    key = ApiKey.objects.create(
        organization_id=organization_id,
        name=name,
        note=note,
        sha256=sha256,
        prefix=secret[:_PREFIX_LENGTH],
        permissions=list(permissions),
        scopes=list(dict.fromkeys(scopes)),
        ip_ranges=checked_ranges(restrictions.ip_ranges, field="restrictions.ipRanges"),
        endpoints=list(restrictions.endpoints),
        model_ids=list(restrictions.models),
        budget_limit_nano_usd=budget.limit if budget else None,
        budget_period=(budget.period or PERIODS[0]) if budget else "",
        created_by_id=created_by,
        created_at=at,
        expires_at=at + dt.timedelta(seconds=expires_in_seconds) if lives and expires_in_seconds else None,
    )
    return key, secret


def _audit_created(actor: Actor, key: ApiKey, at: dt.datetime) -> None:
    record(
        actor,
        "apikey.created",
        target_type="apikey",
        target_id=key.id,
        org_id=key.organization_id,
        after={
            "name": key.name,
            "keyPrefix": key.prefix,
            "permissions": key.permissions,
            "ipRanges": key.ip_ranges,
            "expiresAt": clock.rfc3339(key.expires_at) if key.expires_at else None,
        },
        at=at,
    )


def _locked(caller: Caller, key_id: uuid.UUID) -> ApiKey:
    # Without a join: the waiter must see the row as the winner left it.
    key: ApiKey | None = (
        ApiKey.objects.select_for_update(no_key=True)
        .filter(pk=key_id, organization_id=caller.organization_id)
        .first()
    )
    if key is None:
        raise NotFound()
    return key


def _budget_facts(key: ApiKey) -> dict[str, object] | None:
    if key.budget_limit_nano_usd is None:
        return None
    return {"limitNanoUsd": key.budget_limit_nano_usd, "period": key.budget_period}
