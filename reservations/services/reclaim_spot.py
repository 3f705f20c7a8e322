"""Ending the spot workloads of a node without moving any boundary."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Q

from compute.domain import states
from compute.models import Claim, Workload
from compute.services.lifecycle.evict import evict
from nodes.models import GpuUnit, HoldUnit
from nodes.services.locking import LockedNode, locked_for
from openrelay.audit.services.record import record
from openrelay.core.errors import Invalid, NotFound
from openrelay.identity.caller import Caller
from reservations.models import Reservation
from reservations.querysets import active_in_term
from reservations.services import contracts
from reservations.services.capacity import Eviction, split


def reclaim_spot(
    *,
    caller: Caller,
    node_id: UUID,
    unit_ids: Sequence[str] | None = None,
    reason: str = "",
    dry_run: bool = False,
) -> Eviction:
    """End the spot workloads on a node that are within the caller's reach; what is released stays released.

    The owner reaches every one there, VMs without GPUs among them; a managing organization only those on
    released units of active reservations it manages. `unit_ids` narrows that to workloads with a claim on a
    named unit; None means all in reach. A dry run selects by the same code and changes nothing.

    Raises NotFound for a node the caller neither owns nor manages on; Invalid VALIDATION_ERROR for an empty
    list, UNKNOWN_UNIT for a unit the node never had.
    """
    with locked_for(node_id, caller) as (held, caller):
        caller.require("provider.write")
        reach = _reach(held, caller)
        if unit_ids is not None:
            reach = _narrowed(held, reach, unit_ids)
        claims = Claim.objects.filter(node=held.node)
        if reach is not None:
            claims = claims.on_units(reach)
        within = Q(pk__in=claims.order_by().values("workload_id"))
        if reach is None:
            # On no unit, and on the host all the same.
            within |= Q(node=held.node, gpu_count=0, status__in=states.HOLDING)
        workloads = Workload.objects.filter(within)
        plan = split(list(workloads.order_by("created_at", "id")))
        if dry_run:
            return plan
        gone = evict(held, plan.victims, reason=states.SPOT_RECLAIMED, actor=caller.actor, note=reason)
        if gone:
            record(
                caller.actor,
                "node.spot_reclaimed",
                target_type="node",
                target_id=str(held.node.pk),
                org_id=held.node.organization_id,
                after={"terminated": [str(workload.pk) for workload in gone]},
                reason=reason,
                at=held.at,
            )
        return Eviction(gone, plan.skipped)


def _reach(held: LockedNode, caller: Caller) -> set[UUID] | None:
    """The units that the caller reaches; None for all of the node's."""
    if contracts.owned_by(held.node, caller):
        return None
    managed = Reservation.objects.filter(active_in_term(held.at), hold__node=held.node).managed_by(
        caller.organization_id
    )
    ids = list(managed.values_list("pk", flat=True))
    if not ids:
        raise NotFound()
    return set(HoldUnit.objects.filter(hold_id__in=ids, released=True).values_list("unit_id", flat=True))


def _narrowed(held: LockedNode, reach: set[UUID] | None, unit_ids: Sequence[str]) -> set[UUID]:
    if not unit_ids:
        raise Invalid(
            "unitIds is empty. Name the units to narrow this to, or leave it out for all in your reach."
        )
    named = dict(
        GpuUnit.objects.filter(node=held.node, address__in=set(unit_ids)).values_list("address", "pk")
    )
    unknown = sorted(set(unit_ids) - named.keys())
    if unknown:
        raise Invalid(
            f"The node has no GPU unit {', '.join(unknown)}. List its units to see what there is.",
            code="UNKNOWN_UNIT",
        )
    return set(named.values()) if reach is None else reach & set(named.values())
