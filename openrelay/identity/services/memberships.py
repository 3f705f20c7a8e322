"""Who is in an organization, and as what."""

import datetime as dt
import uuid
from typing import Any

from django.db import IntegrityError, transaction

from openrelay.audit.services.record import Actor, record
from openrelay.core import clock
from openrelay.core.errors import Conflict, Forbidden, Invalid, NotFound
from openrelay.core.ids import parse_id
from openrelay.identity.caller import Caller
from openrelay.identity.models import Membership, Organization, Role, SessionToken
from openrelay.identity.permissions import BUILTIN_ROLES
from openrelay.identity.roles import builtin
from openrelay.identity.services.callers import forget_keys, operating
from openrelay.identity.services.escalation import refuse_giving
from openrelay.identity.services.sessions_end import end_sessions

#: What an operator needs who changes members of any organization.
OPERATORS_ACTION = "member.manage"
#: The built-in role of which every organization that has one keeps one.
OWNER = "owner"


def add_member(*, actor: Actor, user_id: uuid.UUID, organization_id: uuid.UUID, role: str) -> Membership:
    """Make a person a member who has joined. `role` is a built-in role's id, or of one of the organization's.

    Raises NotFound for an organization that is not there or was deleted, Invalid (VALIDATION_ERROR) for an
    unknown role, Conflict (INVALID_STATE) for one who is a member already.
    """
    try:
        with transaction.atomic():
            # The lock keeps the organization from being deleted meanwhile.
            live = Organization.objects.live().select_for_update(no_key=True)
            if live.filter(pk=organization_id).first() is None:
                raise NotFound()
            given = _given(role, organization_id)
            at = clock.read()
            membership = Membership.objects.create(
                user_id=user_id, organization_id=organization_id, invited_at=at, joined_at=at, **given
            )
            record(
                actor,
                "member.added",
                target_type="member",
                target_id=user_id,
                org_id=organization_id,
                after={"role": role},
                at=at,
            )
            # Whoever comes back has left keys here, and they serve again.
            transaction.on_commit(forget_keys)
    except IntegrityError as error:
        raise Conflict("This person is a member already. Change their role instead.") from error
    return membership


def change_role(
    *, actor: Actor, user_id: uuid.UUID, organization_id: uuid.UUID, role: str, reason: str = ""
) -> None:
    """Give a member another role, as for `add_member`. It counts from their next request on.

    Raises Invalid (VALIDATION_ERROR) for an unknown role, NotFound for somebody who is no member, Conflict
    (INVALID_STATE) for the last owner.
    """
    with transaction.atomic():
        membership = _locked(user_id=user_id, organization_id=organization_id)
        given = _given(role, organization_id)
        _change(actor, membership, given, reason, clock.read())


def change_role_as_operator(*, caller: Caller, membership_id: uuid.UUID, role: str, reason: str) -> None:
    """Give a member of any organization, who holds no more than the caller does, another role that holds no
    more either; see `change_role`.

    Raises NotFound for no such membership or who is not an operator with member.manage, Invalid
    (VALIDATION_ERROR) for an unknown role or no reason, Forbidden (ESCALATION_REFUSED).
    """
    check_reason(reason)
    with transaction.atomic():
        membership = _locked(pk=membership_id)
        given = _given(role, membership.organization_id)
        caller, at = operating(caller, OPERATORS_ACTION)
        _refuse_acting_above(caller, membership)
        own: Role | None = given["custom_role"]
        refuse_giving(
            caller,
            own.held() if own else builtin(role),
            platform_ops=membership.organization_id == caller.organization_id,
        )
        _change(caller.actor, membership, given, reason, at)


def remove_member(*, actor: Actor, user_id: uuid.UUID, organization_id: uuid.UUID, reason: str = "") -> None:
    """End a membership, and with it the person's sessions there and the keys that they made.

    Raises NotFound for no member, Conflict (INVALID_STATE) for the last owner.
    """
    with transaction.atomic():
        membership = _locked(user_id=user_id, organization_id=organization_id)
        _remove(actor, membership, reason, clock.read())


def remove_member_as_operator(*, caller: Caller, membership_id: uuid.UUID, reason: str) -> None:
    """End the membership of somebody, in any organization, who holds no more than the caller does; see
    `remove_member`.

    Raises NotFound for no such membership or who is not an operator with member.manage, Invalid
    (VALIDATION_ERROR) without a reason, Forbidden (ESCALATION_REFUSED).
    """
    check_reason(reason)
    with transaction.atomic():
        membership = _locked(pk=membership_id)
        caller, at = operating(caller, OPERATORS_ACTION)
        _refuse_acting_above(caller, membership)
        _remove(caller.actor, membership, reason, at)


def role_called(organization_id: uuid.UUID, text: str) -> str:
    """The id of the role that `text` names: a built-in one's id, or an organization's own by id or name.

    What names no role is handed back, to be refused by name where it is given.
    """
    if text in BUILTIN_ROLES:
        return text
    own = Role.objects.filter(organization_id=organization_id, name__iexact=text).first()
    return str(own.pk) if own else text


def _locked(**which: uuid.UUID) -> Membership:
    """The membership, locked after its organization: of two owners who act on each other one is first."""
    organization_id = Membership.objects.filter(**which).values_list("organization_id", flat=True).first()
    Organization.objects.select_for_update(no_key=True).filter(pk=organization_id).first()
    membership: Membership | None = Membership.objects.select_for_update().filter(**which).first()
    if membership is None:
        raise NotFound()
    return membership


def _refuse_acting_above(caller: Caller, membership: Membership) -> None:
    """Refuse to act on somebody who holds what the caller does not. Raises Forbidden (ESCALATION_REFUSED)."""
    own = membership.custom_role
    held = own.held() if own else builtin(membership.role)
    is_platform_ops = membership.organization_id == caller.organization_id
    beyond = sorted(held.actions(platform_ops=is_platform_ops) - caller.actions)
    if beyond:
        raise Forbidden(
            f"This person holds {', '.join(beyond)}, which your role does not include. Ask somebody whose "
            "role includes it.",
            code="ESCALATION_REFUSED",
            permission=beyond[0],
            deniedBy=caller.denied_by(beyond[0]),
        )


def _keep_an_owner(membership: Membership) -> None:
    """Refuse to take the last owner from an organization, under its lock. Raises Conflict (INVALID_STATE)."""
    if membership.role != OWNER or membership.joined_at is None or not membership.user.is_active:
        return
    others = Membership.objects.joined().filter(
        organization=membership.organization_id, role=OWNER, user__is_active=True
    )
    if not others.exclude(pk=membership.pk).exists():
        raise Conflict(
            "This is the last owner of the organization. Make somebody else an owner first.",
            code="INVALID_STATE",
        )


def _given(role: str, organization_id: uuid.UUID) -> dict[str, Any]:
    """The columns of a membership with that role; one of the organization's own is kept from going."""
    if role in BUILTIN_ROLES:
        return {"role": role, "custom_role": None}
    wanted = parse_id(role)
    own = (
        Role.objects.select_for_update(no_key=True).filter(pk=wanted, organization_id=organization_id).first()
        if wanted
        else None
    )
    if own is None:
        raise Invalid(
            f"role must be one of {', '.join(BUILTIN_ROLES)}, or the id of one of the organization's own."
        )
    return {"role": "", "custom_role": own}


def _change(
    actor: Actor, membership: Membership, given: dict[str, Any], reason: str, at: dt.datetime
) -> None:
    before = membership.role_id
    after = Membership(**given).role_id
    if after == before:
        return
    _keep_an_owner(membership)
    for name, value in given.items():
        setattr(membership, name, value)
    membership.save(update_fields=list(given))
    record(
        actor,
        "member.role_changed",
        target_type="member",
        target_id=membership.user_id,
        org_id=membership.organization_id,
        before={"role": before},
        after={"role": membership.role_id},
        reason=reason,
        at=at,
    )
    transaction.on_commit(forget_keys)


def _remove(actor: Actor, membership: Membership, reason: str, at: dt.datetime) -> None:
    _keep_an_owner(membership)
    sessions = SessionToken.objects.filter(user=membership.user_id, organization=membership.organization_id)
    end_sessions(actor, sessions, reason="the member was removed", at=at)
    membership.delete()
    record(
        actor,
        "member.removed",
        target_type="member",
        target_id=membership.user_id,
        org_id=membership.organization_id,
        before={"role": membership.role_id},
        reason=reason,
        at=at,
    )
    transaction.on_commit(forget_keys)


def check_reason(reason: str) -> None:
    """Refuse what an operator decides about people without saying why. Raises Invalid (VALIDATION_ERROR)."""
    if not reason.strip():
        raise Invalid("reason is required: the audit log keeps it.")
