"""What every change of a reservation starts from: the contract as it is now, and the parties it names."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange
from psycopg.errors import ExclusionViolation

from nodes.models import HoldUnit, Node
from nodes.services.locking import LockedNode
from openrelay.core.clock import rfc3339
from openrelay.core.errors import Conflict, Invalid, NotFound
from openrelay.core.ids import parse_id
from openrelay.core.rows import query
from openrelay.identity.caller import Caller
from reservations.models import Reservation
from reservations.querysets import Status

# Locked against being deleted before this transaction ends, and against nothing else.
_LOCKED_PARTIES = """
SELECT id, reservations_enabled OR is_platform_ops FROM identity_organization
WHERE id = ANY(%s::uuid[]) AND deleted_at IS NULL ORDER BY id FOR KEY SHARE
"""


def find(held: LockedNode, reservation_id: UUID) -> Reservation:
    """The reservation of that node with all its facts at the locked moment. Raises NotFound."""
    found: Reservation | None = (
        Reservation.objects.with_facts(held.at).filter(pk=reservation_id, hold__node=held.node).first()
    )
    if found is None:
        raise NotFound()
    return found


def require_operator(caller: Caller) -> None:
    """Raise NotFound unless `caller` is an operator who manages reservations."""
    if not (caller.is_operator and caller.may("reservation.manage")):
        raise NotFound()


def require_not_ended(reservation: Reservation) -> None:
    """Raise Conflict RESERVATION_ENDED for a reservation that was cancelled or has expired."""
    if reservation.status in Status.ENDED:
        raise Conflict(
            f"The reservation is {reservation.status}. A reservation that has ended cannot be changed. Make "
            "a new one instead.",
            code="RESERVATION_ENDED",
        )


def org_ids(named: Sequence[str]) -> list[UUID]:
    """The ids that `named` spells, once each and sorted. Raises Invalid UNKNOWN_ORG naming what is no id."""
    parsed = {text: parse_id(text) for text in named}
    _refuse_unknown([text for text, value in parsed.items() if value is None])
    return sorted({value for value in parsed.values() if value is not None})


def require_known(wanted: Iterable[UUID], known: Iterable[UUID]) -> None:
    """Raise Invalid UNKNOWN_ORG naming each of `wanted` that is not `known` to be an organization."""
    _refuse_unknown([str(org) for org in set(wanted) - set(known)])


def require_parties(named: Iterable[UUID], joining: Iterable[UUID]) -> None:
    """Raise Invalid UNKNOWN_ORG naming each of `named` that is not an organization, and Conflict
    FEATURE_DISABLED naming each of `joining`, who come to be in the audience, without reservations.
    """
    wanted, join = {*named, *joining}, set(joining)
    known: dict[UUID, bool] = dict(query(_LOCKED_PARTIES, [sorted(wanted)]))
    require_known(wanted, known)
    require_enabled(pk for pk, may_join in known.items() if pk in join and not may_join)


def require_enabled(disabled: Iterable[UUID]) -> None:
    """Raise Conflict FEATURE_DISABLED naming the organizations of `disabled`; nothing for none."""
    names = ", ".join(sorted(map(str, disabled)))
    if names:
        raise Conflict(
            f"Reservations are not enabled for organization {names}; nothing was changed. Leave it out of "
            "allowedOrgIds, or enable them with manage.py set_org.",
            code="FEATURE_DISABLED",
        )


def _refuse_unknown(unknown: Sequence[str]) -> None:
    if unknown:
        raise Invalid(
            f"There is no organization {', '.join(sorted(unknown))}. Check the ids; nothing was changed.",
            code="UNKNOWN_ORG",
        )


def audience(named: Sequence[str], operator: Caller) -> list[UUID]:
    """The ids that `named` spells, with the organization that operators act in: the platform's always joins.

    Raises Invalid UNKNOWN_ORG naming what is no id.
    """
    return org_ids([*named, str(operator.organization_id)])


def require_audience(named: Sequence[str]) -> None:
    """Raise Invalid unless at least one organization is named to place here."""
    if not named:
        raise Invalid("allowedOrgIds is empty. Name at least one organization that may place here.")


def require_end_after(ends_at: datetime | None, starts_at: datetime, at: datetime) -> None:
    """Raise Invalid unless a term from `starts_at` to `ends_at` has a length and is not over at `at`."""
    if ends_at is None:
        return
    if ends_at <= starts_at:
        raise Invalid(
            f"endsAt {rfc3339(ends_at)} is not after the start, {rfc3339(starts_at)}. Give a later endsAt.",
        )
    if ends_at <= at:
        raise Invalid(
            f"endsAt {rfc3339(ends_at)} is not in the future; it is {rfc3339(at)} now. Give a later one."
        )


def is_overlap(error: IntegrityError) -> bool:
    """Whether PostgreSQL refused to have a unit in two holds at once."""
    cause = error.__cause__
    return isinstance(cause, ExclusionViolation) and cause.diag.constraint_name == "one_hold_at_a_time"


def clashes(
    unit_pks: Iterable[UUID], term: DateTimeTZRange, *, apart_from: UUID | None = None
) -> list[tuple[str, UUID]]:
    """Which of the units other holds have in that term: address and hold."""
    rows = HoldUnit.objects.filter(unit_id__in=list(unit_pks), term__overlap=term).exclude(hold_id=apart_from)
    return list(rows.order_by("unit__address", "hold_id").values_list("unit__address", "hold_id"))


def overlap(found: Sequence[tuple[str, UUID]], caller: Caller) -> Conflict:
    """The Conflict RESERVATION_OVERLAP that names the units; operators are told which reservations."""
    # Nothing was found when the other reservation was cancelled since PostgreSQL refused this one.
    addresses = ", ".join(sorted({address for address, _ in found})) or "one of the units"
    message = f"Another reservation holds {addresses} during that term."
    if caller.is_operator and found:
        message += f" See reservation {', '.join(sorted({str(hold_id) for _, hold_id in found}))}."
    return Conflict(message + " Choose other units or another term.", code="RESERVATION_OVERLAP")


def owned_by(node: Node, caller: Caller) -> bool:
    """Whether the caller's organization owns the node."""
    return bool(node.organization_id == caller.organization_id)
