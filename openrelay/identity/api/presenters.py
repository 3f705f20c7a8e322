"""How identity's objects read in the API."""

import datetime as dt
from typing import Any

from openrelay.core.clock import rfc3339
from openrelay.identity.caller import Place
from openrelay.identity.cedar import policy
from openrelay.identity.models import ApiKey, Membership, Organization, Role
from openrelay.identity.permissions import (
    AREAS,
    BUILTIN_ROLES,
    KEY_TEMPLATES,
    PERMISSIONS,
    SESSION_ONLY_ACTIONS,
    BuiltinRole,
)
from openrelay.identity.roles import HeldRole


def present(**fields: Any) -> dict[str, Any]:
    """An object without the fields that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def org_membership(place: Place) -> dict[str, Any]:
    """One organization a person may act in, as OrgMembership."""
    return {
        "organizationId": str(place.organization_id),
        "name": place.organization_name,
        "role": place.held.id,
        "roleName": place.held.name,
        "permissions": sorted(place.actions),
    }


def key_budget(key: ApiKey, at: dt.datetime) -> dict[str, Any] | None:
    """A key's budget at the time `at`, as KeyBudget. Nothing that counts against one is served."""
    if key.budget_limit_nano_usd is None:
        return None
    ends = _period_ends(key.budget_period, at)
    return present(
        limitNanoUsd=key.budget_limit_nano_usd,
        period=key.budget_period,
        periodEndsAt=rfc3339(ends) if ends else None,
        spentNanoUsd=0,
    )


def _period_ends(period: str, at: dt.datetime) -> dt.datetime | None:
    midnight = at.astimezone(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "daily":
        return midnight + dt.timedelta(days=1)
    if period == "monthly":
        return (midnight.replace(day=1) + dt.timedelta(days=32)).replace(day=1)
    return None


def key_restrictions(key: ApiKey) -> dict[str, Any]:
    """What narrows a key, as KeyRestrictions."""
    return present(
        permissions=key.permissions,
        ipRanges=key.ip_ranges or None,
        endpoints=key.endpoints or None,
        models=key.model_ids or None,
    )


def role_restrictions(role: HeldRole | None) -> dict[str, Any] | None:
    """What narrows the holders of a role, as KeyRestrictions; None when nothing does."""
    if role is None or not (role.ip_ranges or role.endpoints or role.models):
        return None
    return present(
        ipRanges=list(role.ip_ranges) or None,
        endpoints=list(role.endpoints) or None,
        models=list(role.models) or None,
    )


def _key_common(key: ApiKey, at: dt.datetime) -> dict[str, Any]:
    return present(
        id=str(key.id),
        name=key.name,
        keyPrefix=key.prefix,
        scopes=key.scopes,
        kind=key.kind,
        createdAt=rfc3339(key.created_at),
        expiresAt=rfc3339(key.expires_at) if key.expires_at else None,
        restrictions=key_restrictions(key),
        budget=key_budget(key, at),
    )


def api_key_summary(key: ApiKey, at: dt.datetime) -> dict[str, Any]:
    """A key without its secret, as ApiKeySummary."""
    return _key_common(key, at) | present(
        note=key.note or None,
        createdBy=str(key.created_by_id) if key.created_by_id else None,
        lastUsedAt=rfc3339(key.last_used_at) if key.last_used_at else None,
        revokedAt=rfc3339(key.revoked_at) if key.revoked_at else None,
    )


def api_key_created(key: ApiKey, secret: str) -> dict[str, Any]:
    """A new key with its secret, as CreateApiKeyResult."""
    return _key_common(key, key.created_at) | {
        "key": secret,
        "organizationId": str(key.organization_id),
        "permissions": key.permissions,
    }


def builtin_role(role: BuiltinRole, members: int, *, platform_ops: bool) -> dict[str, Any]:
    """A built-in role that so many people hold, as Role."""
    # What only operators can hold belongs to everything in their organization, and there alone.
    everything = platform_ops and role.everything
    top = {"reservation.capacity": "reservation.manage"} if everything else {}
    return {
        "id": role.id,
        "name": role.name,
        "description": role.description,
        "builtin": True,
        "permissions": [top.get(permission, permission) for permission in role.grants],
        "memberCount": members,
    }


def custom_role(role: Role, members: int) -> dict[str, Any]:
    """An organization's own role that so many people hold, as Role."""
    unknown = [permission for permission in role.permissions if permission not in PERMISSIONS]
    return present(
        id=str(role.id),
        name=role.name,
        description=role.description or None,
        builtin=False,
        permissions=role.permissions,
        ipRanges=role.ip_ranges or None,
        endpoints=role.endpoints or None,
        models=role.model_ids or None,
        memberCount=members,
        createdAt=rfc3339(role.created_at),
        createdBy=str(role.created_by_id),
        updatedAt=rfc3339(role.updated_at),
        updatedBy=str(role.updated_by_id),
        stale=f"{', '.join(unknown)} no longer exists and gives nothing. Set the permissions anew."
        if unknown
        else None,
    )


def custom_role_whole(role: Role, members: int, *, platform_ops: bool) -> dict[str, Any]:
    """An organization's own role by itself, with its policy as text, as Role."""
    text = policy(role.held(), role.organization_id, platform_ops=platform_ops)
    return custom_role(role, members) | {"cedar": text}


def organization(org: Organization) -> dict[str, Any]:
    """An organization, as Organization."""
    return {
        "id": str(org.id),
        "name": org.name,
        "slug": org.slug,
        "shortId": org.short_id,
        "plan": org.plan,
        "billingEmail": org.billing_email,
        "accountStatus": org.account_status,
        "isProvider": org.is_provider,
        "createdAt": rfc3339(org.created_at),
    }


def member(place: Membership) -> dict[str, Any]:
    """A person in an organization, joined with their user and role, as Member."""
    own: Role | None = place.custom_role
    known = BUILTIN_ROLES.get(place.role)
    return present(
        userId=str(place.user_id),
        email=place.user.email,
        fullName=place.user.full_name or None,
        role=place.role_id,
        roleName=own.name if own else known.name if known else place.role,
        invitedAt=rfc3339(place.invited_at),
        joinedAt=rfc3339(place.joined_at) if place.joined_at else None,
        status="active" if place.joined_at else "invited",
    )


def catalog(*, list_inference: bool) -> dict[str, Any]:
    """Everything that can be granted, as AuthzCatalog."""
    areas = []
    for area in AREAS:
        levels = []
        held: tuple[str, ...] = ()
        for level in area.levels:
            held += level.adds
            levels.append(
                {
                    "id": f"{area.id}.{level.name}",
                    "label": f"{area.label}: {level.label}",
                    "description": level.description,
                    "actions": list(held),
                    "sessionOnly": SESSION_ONLY_ACTIONS.issuperset(level.adds),
                }
            )
        areas.append({"id": area.id, "label": area.label, "levels": levels})
    return {
        "areas": areas,
        "roles": [
            present(
                id=role.id,
                name=role.name,
                description=role.description,
                grants=list(role.grants),
                all=True if role.everything else None,
            )
            for role in BUILTIN_ROLES.values()
            if role.id != "inference" or list_inference
        ],
        "sessionOnlyActions": sorted(SESSION_ONLY_ACTIONS),
        "templates": [
            {
                "id": template.id,
                "name": template.name,
                "description": template.description,
                "permissions": list(template.permissions),
                "providerOnly": template.provider_only,
            }
            for template in KEY_TEMPLATES.values()
        ],
    }
