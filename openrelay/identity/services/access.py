"""What a member or a key may do, and why, without their asking."""

import ipaddress
import uuid
from dataclasses import dataclass

from openrelay.errors import Invalid, NotFound
from openrelay.identity.caller import Caller
from openrelay.identity.lookups import KeyFacts, key_by, person_by_id
from openrelay.identity.models import ApiKey, Membership
from openrelay.identity.permissions import (
    ACTIONS,
    BUILTIN_ROLES,
    EVERYONE,
    PLATFORM_ACTIONS,
    SESSION_ONLY_ACTIONS,
    actions_of,
    role_actions,
)
from openrelay.identity.services.callers import in_ranges, key_actions

MEMBER = "member"
API_KEY = "api_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """What a principal may do now. `key` is there for keys, `role` for members and keys that they made."""

    principal_type: str
    principal_id: uuid.UUID
    actions: frozenset[str]
    active: bool
    role: str | None = None
    key: ApiKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether an action is allowed; `policies` are (id, source) of what decided."""

    allow: bool
    action: str
    message: str
    policies: tuple[tuple[str, str], ...]
    denied_by: str | None = None


def effective_access(caller: Caller, principal_type: str, principal_id: uuid.UUID) -> Effective:
    """What a member or key of the caller's organization may do. Raises NotFound for any other."""
    if principal_type == MEMBER:
        role, platform_ops = _role_of(caller, principal_id)
        return Effective(
            principal_type=MEMBER,
            principal_id=principal_id,
            actions=role_actions(role, platform_ops=platform_ops),
            active=True,
            role=role,
        )
    facts = _key_of(caller, principal_id)
    dead = _dead(facts)
    return Effective(
        principal_type=API_KEY,
        principal_id=principal_id,
        actions=frozenset() if dead else key_actions(facts),
        active=not dead and (facts.created_by is None or facts.maker_role is not None),
        role=facts.maker_role,
        key=ApiKey.objects.get(pk=principal_id),
    )


def check_access(
    caller: Caller, *, principal_type: str, principal_id: uuid.UUID, action: str, source_ip: str
) -> Decision:
    """Whether a member or key of the caller's organization may do `action` from `source_ip`, and what
    decides.

    Raises Invalid (VALIDATION_ERROR) for an unknown action or what is no address, NotFound for another's
    principal.
    """
    if action not in ACTIONS:
        raise Invalid(f"action: {action[:60]!a} is not an action. GET /v1/authz/catalog lists them.")
    if source_ip:
        try:
            ipaddress.ip_address(source_ip)
        except ValueError:
            raise Invalid("sourceIp must be an IPv4 or IPv6 address.") from None
    if principal_type == MEMBER:
        role, platform_ops = _role_of(caller, principal_id)
        return _by_role(action, role, platform_ops)
    facts = _key_of(caller, principal_id)
    return _by_key(action, facts, source_ip)


def _by_role(action: str, role: str, platform_ops: bool) -> Decision:
    if action in role_actions(role, platform_ops=platform_ops):
        return Decision(
            allow=True,
            action=action,
            message=f"The role {_role_name(role)} includes {action}.",
            policies=((role, "builtin_role"),),
        )
    if action in PLATFORM_ACTIONS and not platform_ops:
        return _by_platform(action, "platform_ops_only", f"Only the platform's operators can hold {action}.")
    return Decision(
        allow=False,
        action=action,
        message=f"The role {_role_name(role)} does not include {action}.",
        policies=((role, "builtin_role"),),
        denied_by="role",
    )


def _by_key(action: str, facts: KeyFacts, source_ip: str) -> Decision:
    restriction = ((str(facts.id), "key_restriction"),)
    dead = _dead(facts)
    if dead:
        return _by_platform(action, "live_keys_only", f"This key {dead}.")
    if facts.ip_ranges and not in_ranges(source_ip, facts.ip_ranges):
        return _denied_by_key(action, "This key may not be used from that address.", restriction)
    if action in SESSION_ONLY_ACTIONS:
        return _by_platform(action, "session_only", f"{action} takes a signed-in person, not a key.")
    if action in PLATFORM_ACTIONS and not facts.is_platform_ops:
        return _by_platform(action, "platform_ops_only", f"Only the platform's operators can hold {action}.")
    if action not in actions_of(facts.permissions) | EVERYONE:
        return _denied_by_key(action, f"This key's permissions do not include {action}.", restriction)
    if facts.created_by is None:
        return Decision(
            allow=True,
            action=action,
            message=f"This key's permissions include {action}.",
            policies=restriction,
        )
    if facts.maker_role is None:
        return Decision(
            allow=False,
            action=action,
            message="The person who made this key is no longer a member, so nothing is left of it.",
            policies=(),
            denied_by="role",
        )
    made = _by_role(action, facts.maker_role, facts.is_platform_ops)
    return Decision(
        allow=made.allow,
        action=action,
        message=made.message if not made.allow else f"This key and its maker's role include {action}.",
        policies=made.policies + (restriction if made.allow else ()),
        denied_by=made.denied_by,
    )


def _by_platform(action: str, policy: str, message: str) -> Decision:
    return Decision(
        allow=False, action=action, message=message, policies=((policy, "platform"),), denied_by="platform"
    )


def _denied_by_key(action: str, message: str, policies: tuple[tuple[str, str], ...]) -> Decision:
    return Decision(allow=False, action=action, message=message, policies=policies, denied_by="key")


def _role_name(role: str) -> str:
    known = BUILTIN_ROLES.get(role)
    return known.name if known else role


def _dead(facts: KeyFacts) -> str | None:
    if facts.revoked_at is not None:
        return "was revoked"
    if facts.expires_at is not None and facts.expires_at <= facts.at:
        return "has expired"
    return None


def _role_of(caller: Caller, user_id: uuid.UUID) -> tuple[str, bool]:
    person = person_by_id(user_id)
    places = person.places if person is not None and person.user_is_active else ()
    for place in places:
        if place.organization_id == caller.organization_id:
            return place.role, place.is_platform_ops
    raise NotFound()


def _key_of(caller: Caller, key_id: uuid.UUID) -> KeyFacts:
    facts = key_by("id", key_id)
    if facts is None or facts.organization_id != caller.organization_id:
        raise NotFound()
    return facts


def role_is_held(organization_id: uuid.UUID, role: str) -> bool:
    """Whether anyone in an organization has a role."""
    return Membership.objects.filter(organization_id=organization_id, role=role).exists()
