"""What a member or a key may do, and why, without their asking."""

import ipaddress
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from openrelay.core.errors import Invalid, NotFound
from openrelay.core.rows import ask
from openrelay.identity.addresses import in_ranges
from openrelay.identity.caller import Caller, Place
from openrelay.identity.lookups import KeyFacts, key_by, person_by_id
from openrelay.identity.models import ApiKey, Membership
from openrelay.identity.permissions import (
    ACTIONS,
    EVERYONE,
    PLATFORM_ACTIONS,
    SESSION_ONLY_ACTIONS,
    actions_of,
)
from openrelay.identity.roles import HeldRole
from openrelay.identity.services.callers import key_actions

MEMBER = "member"
API_KEY = "api_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """What a principal may do now. `key` is there for keys, `role` for members and keys that they made."""

    principal_type: str
    principal_id: uuid.UUID
    actions: frozenset[str]
    active: bool
    role: HeldRole | None = None
    key: ApiKey | None = None

    @property
    def models(self) -> list[str] | None:
        """The models that it is narrowed to, by its key and its role together; None for all."""
        both = [
            set(narrowing.models if isinstance(narrowing, HeldRole) else narrowing.model_ids)
            for narrowing in (self.role, self.key)
            if narrowing is not None
        ]
        narrow = [models for models in both if models]
        return sorted(set.intersection(*narrow)) if narrow else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """From where an action would be done, and with which inference endpoint and model, if any."""

    source_ip: str
    endpoint: str | None = None
    model: str | None = None


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
        place = _place_of(caller, principal_id)
        return Effective(
            principal_type=MEMBER,
            principal_id=principal_id,
            actions=place.actions,
            active=True,
            role=place.held,
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
    caller: Caller, *, principal_type: str, principal_id: uuid.UUID, action: str, under: Circumstances
) -> Decision:
    """Whether a member or key of the caller's organization may do `action` under some circumstances, and
    what decides.

    Raises Invalid (VALIDATION_ERROR) for an unknown action or what is no address, NotFound for another's
    principal.
    """
    if action not in ACTIONS:
        raise Invalid(f"action: {action[:60]!a} is not an action. GET /v1/authz/catalog lists them.")
    if under.source_ip:
        try:
            ipaddress.ip_address(under.source_ip)
        except ValueError:
            raise Invalid("sourceIp must be an IPv4 or IPv6 address.") from None
    if principal_type == MEMBER:
        place = _place_of(caller, principal_id)
        return _by_role(action, place.held, place.is_platform_ops, under)
    facts = _key_of(caller, principal_id)
    return _by_key(action, facts, under)


def _by_role(action: str, role: HeldRole, platform_ops: bool, under: Circumstances) -> Decision:
    policies = ((role.id, "custom_role" if role.custom else "builtin_role"),)
    if not role.serves_from(under.source_ip):
        return _denied("role", action, f"The role {role.name} may not be used from that address.", policies)
    if action not in role.actions(platform_ops=platform_ops):
        if action in PLATFORM_ACTIONS and not platform_ops:
            return _by_platform(
                action, "platform_ops_only", f"Only the platform's operators can hold {action}."
            )
        return _denied("role", action, f"The role {role.name} does not include {action}.", policies)
    beyond = _beyond(under, role.endpoints, role.models)
    if beyond:
        return _denied("role", action, f"The role {role.name} does not reach that {beyond}.", policies)
    return Decision(
        allow=True, action=action, message=f"The role {role.name} includes {action}.", policies=policies
    )


def _beyond(under: Circumstances, endpoints: Sequence[str], models: Sequence[str]) -> str | None:
    """What of the circumstances lies outside these conditions: "endpoint", "model" or nothing."""
    if under.endpoint is not None and endpoints and under.endpoint not in endpoints:
        return "endpoint"
    if under.model is not None and models and under.model not in models:
        return "model"
    return None


def _by_key(action: str, facts: KeyFacts, under: Circumstances) -> Decision:
    restriction = ((str(facts.id), "key_restriction"),)
    dead = _dead(facts)
    if dead:
        return _by_platform(action, "live_keys_only", f"This key {dead}.")
    if facts.ip_ranges and not in_ranges(under.source_ip, facts.ip_ranges):
        return _denied("key", action, "This key may not be used from that address.", restriction)
    if action in SESSION_ONLY_ACTIONS:
        return _by_platform(action, "session_only", f"{action} takes a signed-in person, not a key.")
    if action in PLATFORM_ACTIONS and not facts.is_platform_ops:
        return _by_platform(action, "platform_ops_only", f"Only the platform's operators can hold {action}.")
    if action not in actions_of(facts.permissions) | EVERYONE:
        return _denied("key", action, f"This key's permissions do not include {action}.", restriction)
    beyond = _beyond(under, facts.endpoints, facts.models)
    if beyond:
        return _denied("key", action, f"This key does not reach that {beyond}.", restriction)
    if facts.created_by is None:
        return Decision(
            allow=True,
            action=action,
            message=f"This key's permissions include {action}.",
            policies=restriction,
        )
    if facts.maker_role is None:
        return _denied(
            "role",
            action,
            "The person who made this key is no longer a member, so nothing is left of it.",
            (),
        )
    made = _by_role(action, facts.maker_role, facts.is_platform_ops, under)
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


def _denied(by: str, action: str, message: str, policies: tuple[tuple[str, str], ...]) -> Decision:
    return Decision(allow=False, action=action, message=message, policies=policies, denied_by=by)


def _dead(facts: KeyFacts) -> str | None:
    if facts.revoked_at is not None:
        return "was revoked"
    if facts.expires_at is not None and facts.expires_at <= facts.at:
        return "has expired"
    return None


def _place_of(caller: Caller, user_id: uuid.UUID) -> Place:
    person = ask(person_by_id(user_id))
    places = person.places if person is not None and person.user_is_active else ()
    for place in places:
        if place.organization_id == caller.organization_id:
            return place
    raise NotFound()


def _key_of(caller: Caller, key_id: uuid.UUID) -> KeyFacts:
    facts = ask(key_by("id", key_id))
    if facts is None or facts.organization_id != caller.organization_id:
        raise NotFound()
    return facts


def role_is_held(organization_id: uuid.UUID, role: str) -> bool:
    """Whether anyone in an organization has a role."""
    return Membership.objects.filter(organization_id=organization_id, role=role).exists()
