"""Escalation: a caller cannot grant permissions that the caller does not have."""

from collections.abc import Sequence

from openrelay.core.errors import Forbidden, Invalid
from openrelay.identity.addresses import within
from openrelay.identity.caller import Caller
from openrelay.identity.permissions import PERMISSIONS, PLATFORM_ACTIONS, actions_of
from openrelay.identity.roles import HeldRole


def checked_permissions(permissions: Sequence[str]) -> list[str]:
    """Permission ids sorted, each once. Raises Invalid (VALIDATION_ERROR) naming one that does not exist."""
    for permission in permissions:
        if permission not in PERMISSIONS:
            raise Invalid(
                f"permissions: {permission[:60]!a} is not a permission. GET /v1/authz/catalog lists them."
            )
    return sorted(set(permissions))


def refuse_escalation(caller: Caller, permissions: Sequence[str], *, of: str) -> None:
    """Refuse permissions that the caller does not hold; `of` is what would have them, "key" or "role".

    Raises Forbidden (ESCALATION_REFUSED) with the first action that the caller lacks.
    """
    beyond = sorted(actions_of(permissions) - caller.actions)
    if not beyond:
        return
    if not caller.is_operator and set(beyond) & PLATFORM_ACTIONS:
        beyond = sorted(set(beyond) & PLATFORM_ACTIONS)
    raise Forbidden(
        f"A {of} cannot grant permissions that its author does not have: {', '.join(beyond)}. Leave them "
        "out.",
        code="ESCALATION_REFUSED",
        permission=beyond[0],
        deniedBy=caller.denied_by(beyond[0]),
    )


def refuse_giving(caller: Caller, role: HeldRole, *, platform_ops: bool) -> None:
    """Refuse a role that would let its holder do what the caller may not; `platform_ops` says where.

    Raises Forbidden (ESCALATION_REFUSED) with the first action that the caller lacks.
    """
    beyond = sorted(role.actions(platform_ops=platform_ops) - caller.actions)
    if beyond:
        raise Forbidden(
            f"You cannot assign a role with permissions that you do not have: {', '.join(beyond)}. Choose "
            "another role.",
            code="ESCALATION_REFUSED",
            permission=beyond[0],
            deniedBy=caller.denied_by(beyond[0]),
        )
    refuse_wider_conditions(caller, ip_ranges=role.ip_ranges, endpoints=role.endpoints, models=role.models)


def refuse_wider_conditions(
    caller: Caller, *, ip_ranges: Sequence[str], endpoints: Sequence[str], models: Sequence[str]
) -> None:
    """Refuse conditions of a role that would let it go where the caller's own role does not.

    Raises Forbidden (ESCALATION_REFUSED) naming the condition.
    """
    own = caller.held
    if own is None:
        return
    wider = {
        "ipRanges": bool(own.ip_ranges) and not (ip_ranges and within(ip_ranges, own.ip_ranges)),
        "endpoints": bool(own.endpoints) and not (endpoints and set(endpoints) <= set(own.endpoints)),
        "models": bool(own.models) and not (models and set(models) <= set(own.models)),
    }
    for name, refused in wider.items():
        if refused:
            raise Forbidden(
                f"Your role is restricted by {name}. A role that you create or assign needs {name} within "
                "yours.",
                code="ESCALATION_REFUSED",
                permission="role.manage",
                deniedBy="role",
            )
