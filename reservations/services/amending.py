"""Changing and ending a reservation."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from nodes.models import Hold, HoldAudience, HoldUnit
from nodes.services.locking import LockedNode, locked_for
from openrelay.audit.services.record import record
from openrelay.core.errors import Conflict, Invalid
from openrelay.identity.caller import Caller
from reservations.models import Reservation, ReservationManager
from reservations.services import announcing, contracts
from reservations.services.booking import snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What to change; a field left as it is here stays as it is there.

    `set_end` says that `ends_at` is meant, None being open-ended.
    """

    set_end: bool = False
    ends_at: datetime | None = None
    allowed_org_ids: Sequence[str] | None = None
    managing_org_ids: Sequence[str] | None = None
    reaffirm: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """What an operator had before their eyes when they decided: the node's topology generation, and the
    contract as it was changed last.
    """

    generation: int
    updated_at: datetime


def amend(
    *,
    caller: Caller,
    node_id: UUID,
    reservation_id: UUID,
    changes: Changes,
    reason: str = "",
    shown: Shown | None = None,
) -> Reservation:
    """Change a reservation's end, audience and managers, and re-affirm it, all or nothing.

    The start is fixed. Removing an organization from the audience leaves its workloads running.

    Raises NotFound unless the caller is an operator and the reservation is the node's; Conflict
    RESERVATION_ENDED, RESERVATION_OVERLAP, TOPOLOGY_UNITS_MISSING, FEATURE_DISABLED when the audience gains
    an organization without reservations, or INVALID_STATE when node or contract are no longer what was
    `shown`; Invalid UNKNOWN_ORG or VALIDATION_ERROR, also when nothing would change.
    """
    with locked_for(node_id, caller) as (held, caller):
        contracts.require_operator(caller)
        reservation = contracts.find(held, reservation_id)
        contracts.require_not_ended(reservation)
        _require_shown(held, reservation, shown)
        announcing.announce_steps(held, reservation)
        before = snapshot(reservation)

        changed = [
            _set_end(held, caller, reservation, changes),
            _set_parties(caller, reservation, changes),
            _reaffirm(held, reservation) if changes.reaffirm else False,
        ]
        if not any(changed):
            raise Invalid(
                "Nothing would change. Give an endsAt, audience, managers or reaffirm that differs."
            )
        reservation.updated_at = held.at
        reservation.save(update_fields=["ends_at", "updated_at", "pinned_at"])

        reservation = contracts.find(held, reservation_id)
        announcing.announce_steps(held, reservation)
        after = snapshot(reservation)
        keys = [key for key in after if before[key] != after[key]]
        record(
            caller.actor,
            "reservation.reaffirmed" if changed[2] else "reservation.amended",
            target_type="reservation",
            target_id=str(reservation.pk),
            org_id=held.node.organization_id,
            before={key: before[key] for key in keys},
            after={key: after[key] for key in keys},
            reason=reason,
            at=held.at,
        )
        announcing.wake(reservation, held.at)
        return reservation


def cancel(
    *, caller: Caller, node_id: UUID, reservation_id: UUID, reason: str = "", shown: Shown | None = None
) -> Reservation:
    """End a pending, active or in-review reservation now. What runs on its units is left running.

    Raises NotFound unless the caller is an operator and the reservation is the node's; Conflict
    RESERVATION_ENDED when it already ended, INVALID_STATE when node or contract are no longer what was
    `shown`.
    """
    with locked_for(node_id, caller) as (held, caller):
        contracts.require_operator(caller)
        reservation = contracts.find(held, reservation_id)
        contracts.require_not_ended(reservation)
        _require_shown(held, reservation, shown)
        announcing.announce_steps(held, reservation)

        begun = reservation.starts_at < held.at
        term = DateTimeTZRange(reservation.starts_at, held.at) if begun else DateTimeTZRange(empty=True)
        Hold.objects.filter(pk=reservation.pk).update(term=term)
        was = reservation.status
        reservation.cancelled_at = reservation.updated_at = held.at
        reservation.save(update_fields=["cancelled_at", "updated_at"])
        record(
            caller.actor,
            "reservation.cancelled",
            target_type="reservation",
            target_id=str(reservation.pk),
            org_id=held.node.organization_id,
            before={"status": was},
            after={"status": "cancelled"},
            reason=reason,
            at=held.at,
        )
        return contracts.find(held, reservation_id)


def _require_shown(held: LockedNode, reservation: Reservation, shown: Shown | None) -> None:
    if shown is None:
        return
    if shown.generation != held.node.topology_gen:
        raise Conflict(
            f"The node changed meanwhile: you decided on topology generation {shown.generation}, and it is "
            f"now at {held.node.topology_gen}. Look at its units again."
        )
    if shown.updated_at != reservation.updated_at:
        raise Conflict(
            "The reservation itself was changed meanwhile, so what you decided on is no longer what it says. "
            "Look at it again."
        )


def _set_end(held: LockedNode, caller: Caller, reservation: Reservation, changes: Changes) -> bool:
    if not changes.set_end or changes.ends_at == reservation.ends_at:
        return False
    contracts.require_end_after(changes.ends_at, reservation.starts_at, held.at)
    term = DateTimeTZRange(reservation.starts_at, changes.ends_at)
    units = HoldUnit.objects.filter(hold_id=reservation.pk).values_list("unit_id", flat=True)
    found = contracts.clashes(units, term, apart_from=reservation.pk)
    if found:
        raise contracts.overlap(found, caller)
    Hold.objects.filter(pk=reservation.pk).update(term=term)
    reservation.ends_at = changes.ends_at
    return True


def _set_parties(caller: Caller, reservation: Reservation, changes: Changes) -> bool:
    if changes.allowed_org_ids is None and changes.managing_org_ids is None:
        return False
    audience, managers = changes.allowed_org_ids, changes.managing_org_ids
    if audience is not None:
        contracts.require_audience(audience)
    named = contracts.org_ids([*(audience or ()), *(managers or ())])
    wanted = set(contracts.audience(audience, caller)) if audience is not None else set()
    contracts.require_parties(named, wanted - set(reservation.audience_ids))
    changed = False
    if audience is not None:
        changed |= _replace(HoldAudience, {"hold_id": reservation.pk}, set(reservation.audience_ids), wanted)
    if managers is not None:
        wanted = set(contracts.org_ids(managers))
        changed |= _replace(
            ReservationManager, {"reservation_id": reservation.pk}, set(reservation.manager_ids), wanted
        )
    return changed


def _replace(model: Any, key: dict[str, UUID], present: set[UUID], wanted: set[UUID]) -> bool:
    """Make one side of a contract exactly `wanted`; returns whether that changed it."""
    model.objects.filter(**key, organization_id__in=present - wanted).delete()
    model.objects.bulk_create(model(**key, organization_id=org) for org in sorted(wanted - present))
    return present != wanted


def _reaffirm(held: LockedNode, reservation: Reservation) -> bool:
    """Pin the hold to the node's present generation, and the facts of each unit to what they are now."""
    rows = list(
        HoldUnit.objects.filter(hold_id=reservation.pk).select_related("unit").order_by("unit__address")
    )
    missing = []
    for row in rows:
        if row.unit.gone_at is not None:
            missing.append(f"{row.unit.address} is gone")
        elif row.unit.alloc_class != row.pinned_class:
            missing.append(
                f"{row.unit.address} is now of class {row.unit.alloc_class}, not {row.pinned_class}"
            )
    if missing:
        raise Conflict(
            f"The reservation cannot be re-affirmed: {'; '.join(missing)}. "
            "Restore the hardware, or cancel the reservation and make a new one.",
            code="TOPOLOGY_UNITS_MISSING",
        )
    if reservation.hold.topology_gen == held.node.topology_gen:
        return False
    for row in rows:
        row.pinned_model_id = row.unit.gpu_model_id
        row.pinned_gpu_count = row.unit.gpu_count
    HoldUnit.objects.bulk_update(rows, ["pinned_model", "pinned_gpu_count"])
    Hold.objects.filter(pk=reservation.pk).update(topology_gen=held.node.topology_gen)
    reservation.pinned_at = held.at
    return True
