"""Who is in an organization, and as what."""

import uuid

from django.db import IntegrityError, transaction

from openrelay import clock
from openrelay.audit.services.record import Actor, record
from openrelay.errors import Conflict, Invalid, NotFound
from openrelay.identity.models import Membership
from openrelay.identity.permissions import BUILTIN_ROLES


def add_member(*, actor: Actor, user_id: uuid.UUID, organization_id: uuid.UUID, role: str) -> Membership:
    """Make a person a member who has joined.

    Raises Invalid (VALIDATION_ERROR) for an unknown role, Conflict (INVALID_STATE) for one who is a member
    already.
    """
    _check_role(role)
    try:
        with transaction.atomic():
            at = clock.read()
            membership = Membership.objects.create(
                user_id=user_id, organization_id=organization_id, role=role, invited_at=at, joined_at=at
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
    except IntegrityError as error:
        raise Conflict("This person is a member already. Change their role instead.") from error
    return membership


def change_role(*, actor: Actor, user_id: uuid.UUID, organization_id: uuid.UUID, role: str) -> None:
    """Give a member another role.

    Raises Invalid (VALIDATION_ERROR) for an unknown role, NotFound for somebody who is no member.
    """
    _check_role(role)
    with transaction.atomic():
        membership = _locked(user_id, organization_id)
        before = membership.role
        if before == role:
            return
        membership.role = role
        membership.save(update_fields=["role"])
        record(
            actor,
            "member.role_changed",
            target_type="member",
            target_id=user_id,
            org_id=organization_id,
            before={"role": before},
            after={"role": role},
        )


def remove_member(*, actor: Actor, user_id: uuid.UUID, organization_id: uuid.UUID) -> None:
    """End a membership, and with it the keys its person made there. Raises NotFound for no member."""
    with transaction.atomic():
        membership = _locked(user_id, organization_id)
        membership.delete()
        record(
            actor,
            "member.removed",
            target_type="member",
            target_id=user_id,
            org_id=organization_id,
            before={"role": membership.role},
        )


def _locked(user_id: uuid.UUID, organization_id: uuid.UUID) -> Membership:
    membership: Membership | None = (
        Membership.objects.select_for_update()
        .filter(user_id=user_id, organization_id=organization_id)
        .first()
    )
    if membership is None:
        raise NotFound()
    return membership


def _check_role(role: str) -> None:
    if role not in BUILTIN_ROLES:
        raise Invalid(f"role must be one of {', '.join(BUILTIN_ROLES)}.")
