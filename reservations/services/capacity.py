"""The second sale: releasing held units to the spot market, and taking them back."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from compute.domain import states
from compute.models import Workload
from compute.models.workload import Tier
from compute.services.lifecycle.evict import evict
from nodes.models import HoldUnit
from nodes.services.locking import LockedNode, locked_for
from openrelay.audit.services.record import record
from openrelay.core.errors import Conflict, Invalid, NotFound
from openrelay.identity.caller import Caller
from reservations.models import Reservation
from reservations.querysets import Status
from reservations.services import contracts


@dataclass(frozen=True, slots=True)
class Eviction:
    """Whom taking capacity back ends, and whom it meets there and leaves running."""

    victims: list[Workload]
    skipped: list[Workload]


def release(
    *, caller: Caller, node_id: UUID, reservation_id: UUID, unit_ids: Sequence[str], reason: str = ""
) -> Reservation:
    """Put units of an active reservation on the spot market. A unit that is there already is left so.

    Raises NotFound for a caller without the relation; Conflict RESERVATION_ENDED or RESERVATION_NOT_ACTIVE;
    Invalid UNIT_NOT_IN_RESERVATION.
    """
    with locked_for(node_id, caller) as (held, caller):
        reservation, units = _for_capacity(held, caller, reservation_id, unit_ids)
        changed = _move_boundary(held, units, released=True)
        if not changed:
            return reservation
        _record(held, caller, reservation_id, "reservation.units_released", changed, reason)
        return contracts.find(held, reservation_id)


def reclaim(
    *,
    caller: Caller,
    node_id: UUID,
    reservation_id: UUID,
    unit_ids: Sequence[str],
    reason: str = "",
    dry_run: bool = False,
) -> tuple[Reservation, Eviction]:
    """Take units of an active reservation back from the spot market, ending the spot workloads on them.

    Every live spot workload with a claim on a named unit goes, whole, released or not; others there are
    skipped. A dry run selects by the same code and changes nothing. Safe to repeat.

    Raises as `release` does.
    """
    with locked_for(node_id, caller) as (held, caller):
        reservation, units = _for_capacity(held, caller, reservation_id, unit_ids)
        plan = select([unit.unit_id for unit in units])
        if dry_run:
            return reservation, plan
        changed = _move_boundary(held, units, released=False)
        gone = evict(held, plan.victims, reason=states.SPOT_RECLAIMED, actor=caller.actor, note=reason)
        if not changed and not gone:
            return reservation, Eviction(gone, plan.skipped)
        addresses = changed or [unit.unit.address for unit in units]
        _record(held, caller, reservation_id, "reservation.units_reclaimed", addresses, reason, gone)
        return contracts.find(held, reservation_id), Eviction(gone, plan.skipped)


def select(unit_pks: Sequence[UUID]) -> Eviction:
    """Who would be ended, and who skipped, if those units were taken back now. The node must be locked."""
    return split(list(Workload.objects.holding(unit_pks)))


def split(workloads: Sequence[Workload]) -> Eviction:
    """Part workloads into those that taking capacity back ends, the spot ones, and the rest."""
    return Eviction(
        victims=[workload for workload in workloads if workload.tier == Tier.SPOT],
        skipped=[workload for workload in workloads if workload.tier != Tier.SPOT],
    )


def _for_capacity(
    held: LockedNode, caller: Caller, reservation_id: UUID, unit_ids: Sequence[str]
) -> tuple[Reservation, list[HoldUnit]]:
    """The reservation and its named units, when this caller may release and reclaim them now."""
    if not caller.may("reservation.capacity"):
        raise NotFound()
    reservation = contracts.find(held, reservation_id)
    # A managing organization's relation lasts while the reservation is active, and no longer.
    manages = caller.organization_id in reservation.manager_ids and reservation.status == Status.ACTIVE
    if not (caller.is_operator or contracts.owned_by(held.node, caller) or manages):
        raise NotFound()
    contracts.require_not_ended(reservation)
    if reservation.status != Status.ACTIVE:
        raise Conflict(
            f"The reservation is {reservation.status}; only an active one can release or reclaim units.",
            code="RESERVATION_NOT_ACTIVE",
        )
    if not unit_ids:
        raise Invalid("unitIds is empty. Name at least one unit of the reservation.")
    rows = HoldUnit.objects.filter(hold_id=reservation.pk).select_related("unit").order_by("unit__address")
    by_address = {row.unit.address: row for row in rows}
    foreign = sorted(set(unit_ids) - by_address.keys())
    if foreign:
        raise Invalid(
            f"The reservation does not hold {', '.join(foreign)}. It holds {', '.join(by_address)}.",
            code="UNIT_NOT_IN_RESERVATION",
        )
    return reservation, [by_address[address] for address in sorted(set(unit_ids))]


def _move_boundary(held: LockedNode, units: list[HoldUnit], *, released: bool) -> list[str]:
    """Set `released` where it differs; returns the addresses it differed on."""
    changed = [unit for unit in units if unit.released != released]
    if changed:
        HoldUnit.objects.filter(pk__in=[unit.pk for unit in changed]).update(released=released)
        Reservation.objects.filter(pk=changed[0].hold_id).update(updated_at=held.at)
    return [unit.unit.address for unit in changed]


def _record(
    held: LockedNode,
    caller: Caller,
    reservation_id: UUID,
    event: str,
    addresses: list[str],
    reason: str,
    gone: Sequence[Workload] = (),
) -> None:
    after: dict[str, list[str]] = {"units": addresses}
    if gone:
        after["terminated"] = [str(workload.pk) for workload in gone]
    record(
        caller.actor,
        event,
        target_type="reservation",
        target_id=str(reservation_id),
        org_id=held.node.organization_id,
        after=after,
        reason=reason,
        at=held.at,
    )
