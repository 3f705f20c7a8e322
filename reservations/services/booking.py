"""Making a reservation."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from nodes.models import Hold, Node
from nodes.services.hardware import (
    UnitHardware,
    mixed_classes_reason,
    parse_unit_hardware,
    unit_hardware_reading,
)
from nodes.services.locking import locked_for
from openrelay.audit.services.record import AuditEntry
from openrelay.core.clock import rfc3339
from openrelay.core.errors import Invalid
from openrelay.core.idempotency import NO_GUARD, IdempotencyGuard
from openrelay.core.ids import new_id
from openrelay.identity.caller import Caller
from reservations.models import Reservation
from reservations.querysets import Status
from reservations.services import announcing, contracts
from reservations.services.writing import insert

# A start so little in the past is a slow request, not a wish to reserve the past.
START_GRACE = timedelta(seconds=60)


def reserve(
    *,
    caller: Caller,
    node_id: UUID,
    unit_ids: Sequence[str],
    allowed_org_ids: Sequence[str],
    managing_org_ids: Sequence[str] = (),
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    contract_ref: str = "",
    reason: str = "",
    guard: IdempotencyGuard = NO_GUARD,
) -> Reservation:
    """Reserve units of one node for an audience, from `starts_at` (now when None) to `ends_at` (None: open).

    Units are PCI addresses. The platform ops organization always joins the audience. What runs on the units
    is left running. Returns the reservation with its facts.

    Raises NotFound unless the caller is an operator and the node exists; Invalid NODE_DECOMMISSIONED,
    UNKNOWN_UNIT, UNIT_NOT_RESERVABLE, NODE_NOT_SINGLE_CLASS, UNKNOWN_ORG or VALIDATION_ERROR; Conflict
    RESERVATION_OVERLAP, or FEATURE_DISABLED when reservations are not enabled for one of the audience.
    """
    try:
        with locked_for(node_id, caller, guard=guard, reading=unit_hardware_reading(node_id)) as (
            held,
            caller,
        ):
            contracts.require_operator(caller)
            node, at = held.node, held.at
            _require_enrolled(node, at)
            start = _start(starts_at, at)
            contracts.require_end_after(ends_at, start, at)
            units = _reservable(parse_unit_hardware(held.read_result), unit_ids)
            contracts.require_audience(allowed_org_ids)
            audience = contracts.audience(allowed_org_ids, caller)
            managers = contracts.org_ids(managing_org_ids)

            reservation = Reservation(
                hold=Hold(id=new_id(), node=node, topology_gen=node.topology_gen),
                starts_at=start,
                ends_at=ends_at,
                contract_ref=contract_ref,
                reason=reason,
                created_by=caller.actor.name,
                created_at=at,
                updated_at=at,
                pinned_at=at,
            )
            _complete(reservation, audience, managers, [unit.address for unit in units], at)
            entry = AuditEntry(
                actor=caller.actor,
                event="reservation.created",
                target_type="reservation",
                target_id=reservation.pk,
                org_id=node.organization_id,
                after=snapshot(reservation),
                reason=reason,
                at=at,
            )
            written = insert(reservation, [unit.id for unit in units], audience, managers, entry)
            contracts.require_known([*audience, *managers], written.organizations)
            contracts.require_enabled(written.disabled)
            announcing.wake(reservation, at)
            guard.store(reservation)
            return reservation
    except IntegrityError as error:
        # PostgreSQL refused the overlap, or an organization that was just deleted; find the words for it.
        contracts.require_parties(managers, audience)
        if not contracts.is_overlap(error):
            raise
        found = contracts.clashes([UUID(unit.id) for unit in units], DateTimeTZRange(start, ends_at))
        raise contracts.overlap(found, caller) from error


def snapshot(reservation: Reservation) -> dict[str, Any]:
    """The contract as the audit trail keeps it."""
    return {
        "nodeId": str(reservation.hold.node_id),
        "units": list(reservation.unit_addresses),
        "released": list(reservation.released_addresses),
        "audience": [str(org) for org in reservation.audience_ids],
        "managers": [str(org) for org in reservation.manager_ids],
        "startsAt": rfc3339(reservation.starts_at),
        "endsAt": rfc3339(reservation.ends_at) if reservation.ends_at else None,
        "topologyGen": reservation.hold.topology_gen,
        "contractRef": reservation.contract_ref,
    }


def _require_enrolled(node: Node, at: datetime) -> None:
    if node.removed_at is not None or (node.terminate_at is not None and node.terminate_at <= at):
        raise Invalid(
            "This node was removed; its units can no longer be reserved. Choose another node.",
            code="NODE_DECOMMISSIONED",
        )


def _start(wanted: datetime | None, at: datetime) -> datetime:
    if wanted is None:
        return at
    if wanted < at - START_GRACE:
        raise Invalid(
            f"startsAt {rfc3339(wanted)} is in the past; it is {rfc3339(at)} now. "
            "Leave startsAt out to begin now."
        )
    return max(wanted, at)


def _reservable(here: Mapping[str, UnitHardware], unit_ids: Sequence[str]) -> list[UnitHardware]:
    """The named units, once each and by address, when each of them and their node can be reserved.

    `here` has every unit of the node by address.
    """
    if not unit_ids:
        raise Invalid("unitIds is empty. Name at least one GPU unit of the node by its PCI address.")
    wanted = sorted(set(unit_ids))
    unknown = [address for address in wanted if address not in here]
    if unknown:
        raise Invalid(
            f"The node has no GPU unit {', '.join(unknown)}. List its units to see what there is.",
            code="UNKNOWN_UNIT",
        )
    refused = [(address, why) for address in wanted if (why := here[address].not_reservable_reason)]
    if refused:
        listed = "; ".join(f"{address}: {why}" for address, why in refused)
        raise Invalid(f"Cannot be reserved: {listed}. Choose other units.", code="UNIT_NOT_RESERVABLE")
    sold = (unit.alloc_class for unit in here.values() if unit.sellable and not unit.gone)
    if why := mixed_classes_reason(sold):
        raise Invalid(
            f"No unit of this node can be reserved: {why}. Ask its owner to sell units of one class.",
            code="NODE_NOT_SINGLE_CLASS",
        )
    return [here[address] for address in wanted]


def _complete(
    reservation: Reservation, audience: list[UUID], managers: list[UUID], addresses: list[str], at: datetime
) -> None:
    """Give a fresh reservation the facts that `with_facts` would read back."""
    reservation.audience_ids = audience
    reservation.manager_ids = managers
    reservation.unit_addresses = addresses
    reservation.released_addresses = []
    reservation.status = Status.PENDING if reservation.starts_at > at else Status.ACTIVE
