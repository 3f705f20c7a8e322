"""What every change of a reservation starts from: the contract as it is now, and the parties it names."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from django.db.backends.postgresql.psycopg_any import DateTimeTZRange
from django.db.models import Q

from nodes.models import HoldUnit, Node
from nodes.services.locking import LockedNode
from openrelay.clock import rfc3339
from openrelay.errors import Conflict, Invalid, NotFound
from openrelay.identity.caller import Caller
from openrelay.identity.models import Organization
from openrelay.ids import parse_id
from reservations.models import Reservation
from reservations.querysets import Status


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
            f"The reservation is {reservation.status}; what has ended can no longer be changed. "
            "Make a new reservation instead.",
            code="RESERVATION_ENDED",
        )


def parties(named: Sequence[str]) -> tuple[list[UUID], UUID]:
    """The organizations that `named` names, once each and sorted, and the platform ops organization.

    Raises Invalid UNKNOWN_ORG naming every one that does not exist.
    """
    wanted = {text: parse_id(text) for text in named}
    ids = {value for value in wanted.values() if value is not None}
    rows = Organization.objects.filter(Q(pk__in=ids) | Q(is_platform_ops=True)).values_list(
        "pk", "is_platform_ops"
    )
    known = dict(rows)
    unknown = sorted(text for text, value in wanted.items() if value not in known)
    if unknown:
        raise Invalid(
            f"There is no organization {', '.join(unknown)}. Check the ids; nothing was changed.",
            code="UNKNOWN_ORG",
        )
    platform = next(pk for pk, is_platform in known.items() if is_platform)
    return sorted(ids), platform


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


def require_no_overlap(
    unit_pks: Iterable[UUID], term: DateTimeTZRange, caller: Caller, *, apart_from: UUID | None = None
) -> None:
    """Raise Conflict RESERVATION_OVERLAP when another hold has one of the units in that term.

    PostgreSQL would refuse it all the same; this finds the words. Operators are told which reservations.
    """
    clashes = list(
        HoldUnit.objects.filter(unit_id__in=list(unit_pks), term__overlap=term)
        .exclude(hold_id=apart_from)
        .order_by("unit__address", "hold_id")
        .values_list("unit__address", "hold_id")
    )
    if not clashes:
        return
    addresses = ", ".join(sorted({address for address, _ in clashes}))
    message = f"Another reservation holds {addresses} during that term."
    if caller.is_operator:
        message += f" See reservation {', '.join(sorted({str(hold_id) for _, hold_id in clashes}))}."
    raise Conflict(message + " Choose other units or another term.", code="RESERVATION_OVERLAP")


def owned_by(node: Node, caller: Caller) -> bool:
    """Whether the caller's organization owns the node."""
    return bool(node.organization_id == caller.organization_id)
