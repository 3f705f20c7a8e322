"""Placing one VM without GPUs on one node, decided under its lock."""

from typing import Any

from compute.domain import states
from compute.models import Run, Workload
from compute.services.billing.accounts import require_balance
from compute.services.billing.prices import size_rate
from compute.services.lifecycle.transitions import move
from compute.services.placement.commit import created, reject_target
from compute.services.placement.cpu_decide import CpuPlacementRequest, refuse_cpu
from compute.services.placement.decide import Rejection
from compute.services.placement.workload_rows import insert, insert_run
from nodes.services.locking import LockedNode
from openrelay.core.ids import new_id
from openrelay.identity.caller import Caller


def place_cpu(
    held: LockedNode, caller: Caller, wanted: CpuPlacementRequest, *, named: bool
) -> Workload | Rejection:
    """Start the VM on the locked node, or say why not.

    Raises Invalid UNKNOWN_NODE or NODE_DECOMMISSIONED for a named node that the caller has no rights on any
    more, or that was removed; Conflict INSUFFICIENT_BALANCE, and INVALID_STATE for one that was placed before
    and is not stopped or failed any more.
    """
    if named and (refusal := reject_target(held, caller)) is not None:
        return refusal
    require_balance(caller)
    refusal = refuse_cpu(held, caller.organization_id, wanted, named=named)
    if refusal is not None:
        return refusal
    if wanted.again is not None:
        return start_cpu_again(held, caller, wanted.again)
    return _write(held, caller, wanted, named=named)


def start_cpu_again(held: LockedNode, caller: Caller, workload: Workload) -> Workload:
    """Have a stopped or failed VM without GPUs deploy on the locked node, which has room, by a new run.

    Raises Conflict (INVALID_STATE) when it is neither any more.
    """
    # First: whoever started it on another node meanwhile has won, and nothing of this may stay.
    move(
        workload,
        states.DEPLOYING,
        reason=states.USER_RESTARTED,
        actor=caller.actor,
        at=held.at,
        event="vm.restarted",
        after=_placed(held),
    )
    fresh: dict[str, Any] = {"node": held.node}
    cents = size_rate(workload.resource_size)
    if cents is not None:
        fresh["price_per_hour_cents"] = cents
    Workload.objects.filter(pk=workload.pk).update(**fresh)
    for name, value in fresh.items():
        setattr(workload, name, value)
    last = Run.objects.filter(workload=workload).order_by("-number").values_list("number", flat=True).first()
    insert_run(workload, (last or 0) + 1, (), held.at)
    return workload


def _write(held: LockedNode, caller: Caller, wanted: CpuPlacementRequest, *, named: bool) -> Workload:
    at, given = held.at, wanted.given
    workload = Workload(
        id=new_id(),
        organization_id=caller.organization_id,
        kind=Workload.Kind.VM,
        name=wanted.name,
        tier=wanted.tier,
        status=states.DEPLOYING,
        node=held.node,
        resource_size=wanted.size,
        guest_vcpu=given.vcpu,
        guest_mem_mb=given.guest_mem_mb,
        disk_size_gb=given.disk_gb,
        price_per_hour_cents=size_rate(wanted.size),
        node_named=named,
        created_by=caller.principal,
        created_at=at,
        updated_at=at,
        **wanted.details,
    )
    entry = created(caller, workload, resourceSize=workload.resource_size, **_placed(held))
    # It claims nothing: what it takes of the host is what is stamped on it.
    insert(workload, wanted.keys, (), entry, closing=held.closing)
    return workload


def _placed(held: LockedNode) -> dict[str, Any]:
    """What the audit log shows of where it went."""
    return {"nodeId": str(held.node.pk), "unitIds": [], "preempted": []}
