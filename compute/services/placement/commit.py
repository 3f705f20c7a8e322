"""Placing one workload on one node, under its lock: decide, then write runs, claims and occupancies."""

from typing import Any
from uuid import UUID

from compute.domain import states
from compute.models import Run, Workload
from compute.services.billing.accounts import require_balance
from compute.services.billing.prices import is_free
from compute.services.lifecycle.evict import evict
from compute.services.lifecycle.transitions import facts, move
from compute.services.placement.decide import decide
from compute.services.placement.pod_admission import connect, reject_pod
from compute.services.placement.request import Placement, PlacementRequest, Rejection
from compute.services.placement.targets import hold_generations, reject_target
from compute.services.placement.workload_rows import insert, insert_run
from nodes.models import Node
from nodes.services.locking import LockedNode
from openrelay.audit.services.record import AuditEntry
from openrelay.core.errors import Unavailable
from openrelay.core.ids import new_id
from openrelay.identity.caller import Caller


def place(
    held: LockedNode, caller: Caller, request: PlacementRequest, *, named: bool
) -> Workload | Rejection:
    """Place the workload on the locked node, preempting spot workloads where that is the caller's right; or
    say why not.

    Raises Invalid UNKNOWN_NODE or NODE_DECOMMISSIONED for a named node that the caller has no rights on any
    more, or that was removed; Conflict INSUFFICIENT_BALANCE; what `start_again` raises for one that was
    placed before.
    """
    if named and request.restarted is None and (rejection := reject_target(held, caller)) is not None:
        return rejection
    placement = decide_affordable(held, caller, request, named=named)
    if isinstance(placement, Rejection):
        return placement
    if request.restarted is not None:
        return start_again(held, caller, request.restarted, placement)
    pk = new_id()
    if request.is_pod:
        rejection = reject_pod(held, caller.organization_id, placement.choice.model_id, pk)
        if rejection is not None:
            return rejection
    _preempt(held, caller, placement)
    return _insert_workload(held, caller, request, placement, pk, named=named)


def decide_affordable(
    held: LockedNode, caller: Caller, request: PlacementRequest, *, named: bool
) -> Placement | Rejection:
    """Decide as `decide` does, for a caller who has to have some balance left.

    A provider on its own node under its own reservation is not billed, so its balance is checked once the
    units are known. Raises Conflict INSUFFICIENT_BALANCE.
    """
    may_be_free = named and request.gpu_count > 0 and _owns_hold(held, caller)
    if not may_be_free:
        require_balance(caller)
    placement = decide(held, caller.organization_id, request, named=named)
    if may_be_free and isinstance(placement, Placement):
        holds = [hold_id for _, hold_id in placement.rights]
        if not is_free(caller.organization_id, held.node.organization_id, holds):
            require_balance(caller)
    return placement


def _owns_hold(held: LockedNode, caller: Caller) -> bool:
    """Whether the locked node is the caller's own and has something reserved to it. Read only for callers
    whose balance counts.
    """
    return (
        caller.account.balance_cents is not None
        and held.node.organization_id == caller.organization_id
        and bool(hold_generations(held, caller))
    )


def start_again(held: LockedNode, caller: Caller, workload: Workload, placement: Placement) -> Workload:
    """Have a stopped or failed workload deploy on the locked node by a new run, as the placement says.

    Raises Conflict INVALID_STATE when it is neither any more; Unavailable INSUFFICIENT_IP_CAPACITY for a pod
    that its node's fabric has no address for.
    """
    node, at = held.node, held.at
    if workload.kind == Workload.Kind.POD and not connect(held, workload.organization_id, workload.pk):
        raise Unavailable(
            f"{workload.name} cannot start on its node now: the InfiniBand fabric there has no free address. "
            "Its volume is kept. Try again later.",
            code="INSUFFICIENT_IP_CAPACITY",
        )
    _preempt(held, caller, placement)
    # The state changes first: when another request started it elsewhere meanwhile, nothing of this is kept.
    move(
        workload,
        states.DEPLOYING,
        reason=states.USER_RESTARTED,
        actor=caller.actor,
        at=at,
        event="vm.restarted",
        after=_audit_place(node, placement),
    )
    fresh = {"node": node, **_fresh_values(workload, placement)}
    Workload.objects.filter(pk=workload.pk).update(**fresh)
    for name, value in fresh.items():
        setattr(workload, name, value)
    runs = Run.objects.filter(workload=workload).order_by("-number")
    number = runs.values_list("number", flat=True).first()
    insert_run(workload, (number or 0) + 1, placement.rights, at)
    return workload


def _fresh_values(workload: Workload, placement: Placement) -> dict[str, Any]:
    """The fields of a workload that a new placement sets."""
    allocation = placement.allocation
    if placement.model is None:
        # A size that is no longer sold keeps its last price.
        cents = placement.cents_per_hour
        return {} if cents is None else {"price_per_hour_cents": cents}
    fresh: dict[str, Any] = {
        "gpu_model_id": placement.choice.model_id,
        "guest_mem_mb": allocation.guest_mem_mb,
        "guest_vcpu": allocation.vcpu,
        "disk_size_gb": allocation.disk_gb,
        "shm_mb": allocation.shm_mb,
        "price_per_hour_cents": placement.cents_per_hour,
    }
    asked_mb = workload.requested_guest_mem_mb
    if asked_mb is not None and allocation.guest_mem_mb is not None and asked_mb > allocation.guest_mem_mb:
        fresh["requested_guest_mem_mb"] = allocation.guest_mem_mb
    return fresh


def _preempt(held: LockedNode, caller: Caller, placement: Placement) -> None:
    """End the spot workloads that the placement preempts."""
    if not placement.choice.victims:
        return
    victims = list(Workload.objects.filter(pk__in=placement.choice.victims))
    evict(held, victims, reason=states.SPOT_PREEMPTED, actor=caller.actor)


def _insert_workload(
    held: LockedNode,
    caller: Caller,
    request: PlacementRequest,
    placement: Placement,
    pk: UUID,
    *,
    named: bool,
) -> Workload:
    node, at, allocation = held.node, held.at, placement.allocation
    workload = Workload(
        id=pk,
        organization_id=caller.organization_id,
        kind=Workload.Kind.POD if request.is_pod else Workload.Kind.VM,
        name=request.name,
        tier=request.tier,
        status=states.PENDING if placement.there_first else states.DEPLOYING,
        node=node,
        gpu_model=placement.model,
        gpu_count=request.gpu_count,
        resource_size=request.resource_size,
        guest_vcpu=allocation.vcpu,
        guest_mem_mb=allocation.guest_mem_mb,
        requested_guest_mem_mb=_requested_mb(request, placement),
        shm_mb=allocation.shm_mb,
        disk_size_gb=allocation.disk_gb,
        price_per_hour_cents=placement.cents_per_hour,
        node_named=named,
        created_by=caller.principal,
        created_at=at,
        updated_at=at,
        **request.details,
    )
    size = {} if request.gpu_count else {"resourceSize": workload.resource_size}
    entry = AuditEntry(
        actor=caller.actor,
        event="vm.created",
        target_type="vm",
        target_id=workload.pk,
        org_id=workload.organization_id,
        after={
            **facts(workload),
            "name": workload.name,
            "tier": workload.tier,
            **size,
            **_audit_place(node, placement),
        },
        at=at,
    )
    insert(workload, request.keys, placement.rights, entry, closing=held.closing)
    return workload


def _requested_mb(request: PlacementRequest, placement: Placement) -> int | None:
    """The memory that a restart asks for again; None where the node or the size gives it."""
    if request.is_pod or not request.gpu_count:
        return None
    return request.guest_mem_mb or placement.allocation.guest_mem_mb


def _audit_place(node: Node, placement: Placement) -> dict[str, Any]:
    """The place of a workload, as the audit log shows it."""
    return {
        "nodeId": str(node.pk),
        "unitIds": [option.address for option in placement.choice.options],
        "preempted": [str(victim) for victim in placement.choice.victims],
    }
