"""Make, change and delete an organization's own roles."""

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from django.db import IntegrityError, transaction

from openrelay.audit.services.record import record
from openrelay.core.errors import Conflict, Forbidden, Invalid, NotFound
from openrelay.core.ids import parse_id
from openrelay.identity.addresses import checked_ranges
from openrelay.identity.caller import Caller
from openrelay.identity.models import Membership, Role
from openrelay.identity.permissions import BUILTIN_ROLES
from openrelay.identity.services.callers import forget_keys, reread
from openrelay.identity.services.escalation import (
    checked_permissions,
    refuse_escalation,
    refuse_wider_conditions,
)

_NAMES = frozenset(text.lower() for role in BUILTIN_ROLES.values() for text in (role.id, role.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a role says: permission ids, and conditions on what its holders do; an empty one narrows nothing.

    `ip_ranges` are CIDRs; `endpoints` and `models` are what may be called.
    """

    name: str
    permissions: Sequence[str]
    description: str = ""
    ip_ranges: Sequence[str] = field(default_factory=tuple)
    endpoints: Sequence[str] = field(default_factory=tuple)
    models: Sequence[str] = field(default_factory=tuple)


def create_role(*, caller: Caller, terms: Terms) -> Role:
    """Make a role of the caller's organization.

    Raises Forbidden (FORBIDDEN, ESCALATION_REFUSED for more than the caller holds), Invalid
    (VALIDATION_ERROR), Conflict (INVALID_STATE) for a name that is taken.
    """
    try:
        with transaction.atomic():
            caller, at = reread(caller)
            caller.require("role.manage")
            role = Role(
                organization_id=caller.organization_id,
                created_by_id=_person(caller),
                created_at=at,
            )
            _apply(caller, role, terms, at)
            role.save(force_insert=True)
            record(
                caller.actor,
                "role.created",
                target_type="role",
                target_id=role.id,
                org_id=role.organization_id,
                after=_facts(role),
                at=at,
            )
    except IntegrityError as error:
        raise _name_taken(terms.name) from error
    return role


def update_role(*, caller: Caller, role_id: str, changes: dict[str, Any]) -> Role:
    """Change some of a role's `Terms`; those not named stay. What is so already writes nothing.

    The whole role, as it would be, is held to what the caller holds. Raises Forbidden (FORBIDDEN for a
    built-in role, ESCALATION_REFUSED), NotFound, Invalid (VALIDATION_ERROR), Conflict (INVALID_STATE) for a
    name that is taken.
    """
    try:
        with transaction.atomic():
            role = _locked(caller, role_id)
            caller, at = reread(caller)
            caller.require("role.manage")
            before = _facts(role)
            terms = replace(_terms(role), **changes)
            updated_by, updated_at = role.updated_by_id, role.updated_at
            _apply(caller, role, terms, at)
            after = _facts(role)
            if after == before:
                role.updated_by_id, role.updated_at = updated_by, updated_at
                return role
            role.save(force_update=True)
            record(
                caller.actor,
                "role.updated",
                target_type="role",
                target_id=role.id,
                org_id=role.organization_id,
                before=before,
                after=after,
                at=at,
            )
            transaction.on_commit(forget_keys)
    except IntegrityError as error:
        raise _name_taken(str(changes.get("name", ""))) from error
    return role


def delete_role(*, caller: Caller, role_id: str) -> None:
    """Delete a role that nobody has, invited people included.

    Raises Forbidden (FORBIDDEN, also for a built-in role), NotFound, Conflict (ROLE_IN_USE) with `members`,
    the user ids of who has it.
    """
    with transaction.atomic():
        # Whoever is given the role meanwhile waits for this lock, and then finds no role.
        role = _locked(caller, role_id)
        caller, at = reread(caller)
        caller.require("role.manage")
        holders = [
            str(user_id)
            for user_id in Membership.objects.filter(custom_role=role)
            .order_by("invited_at", "id")
            .values_list("user_id", flat=True)
        ]
        if holders:
            raise Conflict(
                f"The role {role.name} is in use. Give whoever has it another role first: "
                f"{len(holders)} {'person has' if len(holders) == 1 else 'people have'} it.",
                code="ROLE_IN_USE",
                members=holders,
            )
        record(
            caller.actor,
            "role.deleted",
            target_type="role",
            target_id=role.id,
            org_id=role.organization_id,
            before=_facts(role),
            at=at,
        )
        role.delete()


def _person(caller: Caller) -> uuid.UUID:
    # Managing roles takes a session, so there is one.
    return cast(uuid.UUID, caller.user_id)


def _locked(caller: Caller, role_id: str) -> Role:
    if role_id in BUILTIN_ROLES:
        raise Forbidden(
            f"{BUILTIN_ROLES[role_id].name} is a built-in role and stays as it is. Make a role of your own.",
            permission="role.manage",
            deniedBy="platform",
        )
    wanted = parse_id(role_id)
    role: Role | None = (
        Role.objects.select_for_update().filter(pk=wanted, organization_id=caller.organization_id).first()
        if wanted
        else None
    )
    if role is None:
        raise NotFound()
    return role


def _terms(role: Role) -> Terms:
    return Terms(
        name=role.name,
        description=role.description,
        permissions=role.permissions,
        ip_ranges=role.ip_ranges,
        endpoints=role.endpoints,
        models=role.model_ids,
    )


def _apply(caller: Caller, role: Role, terms: Terms, at: dt.datetime) -> None:
    """Write terms that the caller may give onto a role, which is not saved."""
    name = terms.name.strip()
    if name.lower() in _NAMES:
        raise Invalid(f"name: {name!a} is the name of a built-in role. Choose another.")
    # A permission that no longer exists stays in a role that had it until its permissions are given anew.
    permissions = (
        list(terms.permissions)
        if terms.permissions == role.permissions
        else checked_permissions(terms.permissions)
    )
    ip_ranges = checked_ranges(terms.ip_ranges, field="ipRanges")
    endpoints, models = list(dict.fromkeys(terms.endpoints)), list(dict.fromkeys(terms.models))
    refuse_escalation(caller, permissions, of="role")
    refuse_wider_conditions(caller, ip_ranges=ip_ranges, endpoints=endpoints, models=models)
    role.name, role.description = name, terms.description
    role.permissions, role.ip_ranges = permissions, ip_ranges
    role.endpoints, role.model_ids = endpoints, models
    role.updated_by_id, role.updated_at = _person(caller), at


def _facts(role: Role) -> dict[str, Any]:
    return {
        "name": role.name,
        "description": role.description,
        "permissions": list(role.permissions),
        "ipRanges": list(role.ip_ranges),
        "endpoints": list(role.endpoints),
        "models": list(role.model_ids),
    }


def _name_taken(name: str) -> Conflict:
    return Conflict(f"There is a role named {name.strip()!a} already. Choose another name.")
