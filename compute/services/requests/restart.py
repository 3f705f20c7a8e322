"""Restarting a workload: a reboot in place while it runs, a new run on its node while it does not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.db.models import F

from compute.domain import states
from compute.domain.eligibility import BY_RESERVATION
from compute.models import GuestState, Run, UsageUnit, Workload
from compute.services.billing.accounts import require_active, require_balance
from compute.services.billing.prices import sold_at
from compute.services.lifecycle.drain import leaving_reason
from compute.services.lifecycle.stop import may_stop
from compute.services.lifecycle.transitions import move
from compute.services.lifecycle.workload_lock import (
    find,
    has_lost_disk,
    lock_workload,
    refuse_state,
    require_its_node,
)
from compute.services.placement.commit import decide_affordable, start_again
from compute.services.placement.decide import decide_from_snapshot, options_for
from compute.services.placement.pod_admission import admit, require_online
from compute.services.placement.pool import place_in_pool
from compute.services.placement.request import Placement, PlacementRequest, Rejection, restart_request
from compute.services.placement.snapshot import NodeSnapshot, SnapshotUnit, read_snapshot
from nodes.models import GpuUnit
from nodes.services.locking import LockedNode
from openrelay.core import shared_connection
from openrelay.core.errors import Conflict, Invalid, Unavailable
from openrelay.identity.caller import Caller


@dataclass(frozen=True, slots=True)
class Rules:
    """What differs between kinds of workload: the code of a node without room, the units they run on, and
    what else stands in the way of a start on the locked node (raises).
    """

    busy: str
    alloc_class: str
    admit: Callable[[LockedNode, Workload], None]


def _admit_vm(held: LockedNode, workload: Workload) -> None:
    """Nothing more: what a VM could lack is room."""


RULES = {
    Workload.Kind.VM: Rules("VM_NODE_BUSY", GpuUnit.VFIO_GROUP, _admit_vm),
    Workload.Kind.POD: Rules("POD_NODE_BUSY", GpuUnit.DEVICE_REQUEST, admit),
}


def restart(*, caller: Caller, workload_id: UUID) -> Workload:
    """Reboot a running workload in place, or start a stopped or failed one again on the node of its disk.

    What it may have there is judged by the rights of now, not of its first placement. A stopped VM whose node
    was removed deploys afresh elsewhere.

    Raises NotFound for one that is not the caller's; Conflict INVALID_STATE in any other state and for
    what ends with its node once that has come to its end, ACCOUNT_RESTRICTED or INSUFFICIENT_BALANCE for a
    start, and what a pod meets; Unavailable VM_NODE_BUSY or POD_NODE_BUSY naming what is short,
    INSUFFICIENT_GPU_CAPACITY or INSUFFICIENT_HOST_CAPACITY where it could go elsewhere but there is no room.
    """
    with lock_workload(caller, workload_id, "compute.operate") as (held, now, workload):
        rules = RULES[Workload.Kind(workload.kind)]
        elsewhere = False
        if workload.status == states.RUNNING:
            require_its_node(held, workload)
            if workload.kind == Workload.Kind.POD:
                require_online(held, workload)
            if why := _unfit(held, now, workload, rules):
                raise Unavailable(why, code=rules.busy)
            _reboot(held, now, workload)
        elif workload.status in (states.STOPPED, states.FAILED):
            elsewhere = has_lost_disk(held, workload)
            if elsewhere and (workload.status == states.FAILED or workload.kind == Workload.Kind.POD):
                raise Conflict(
                    f"The node of {workload.name} was removed, and it ends with its node. Create a new one."
                )
            if elsewhere:
                require_active(now)
                require_balance(now)
            else:
                _take_back(held, now, workload, rules)
        else:
            raise refuse_state(workload, "restart", "running, stopped or failed")
    if elsewhere:
        _deploy_elsewhere(caller, workload)
    return find(caller, workload_id)


def reboot(*, caller: Caller, workload_id: UUID) -> None:
    """Reboot a running workload in place: it keeps its run, its GPUs and its disk.

    Raises NotFound for one that is not the caller's, Conflict INVALID_STATE for one that does not run, whose
    node is offline or has come to its announced end, or that has a failed GPU.
    """
    with lock_workload(caller, workload_id, "compute.operate") as (held, now, workload):
        if workload.status != states.RUNNING:
            raise refuse_state(workload, "reboot", "running")
        require_its_node(held, workload)
        if why := _unfit(held, now, workload, RULES[Workload.Kind(workload.kind)]):
            raise Conflict(why)
        _reboot(held, now, workload)


def _reboot(held: LockedNode, caller: Caller, workload: Workload) -> None:
    """Have the run's guest rebooted: its node compares the count with what it did."""
    Run.objects.wanted().filter(workload=workload).update(reboots=F("reboots") + 1)
    GuestState.objects.filter(run__workload=workload, run__closed_at=None).update(ssh_ready=False)
    move(
        workload,
        states.RUNNING,
        # That its node is to leave outweighs that it was rebooted.
        reason=leaving_reason(held.node) or states.USER_RESTARTED,
        actor=caller.actor,
        at=held.at,
        event="vm.rebooted",
    )


def _unfit(held: LockedNode, caller: Caller, workload: Workload, rules: Rules) -> str:
    """Why a running workload cannot be rebooted now, as sentences; empty when it can."""
    snapshot = read_snapshot(held, workload.organization_id, workload.tier, excluding_workload=workload.pk)
    if not snapshot.heard:
        return f"The node of {workload.name} is offline. Try again when it is back."
    claimed = {unit_id for unit_id, guest in snapshot.claims.items() if guest.workload_id == workload.pk}
    own = [unit for unit in snapshot.units if unit.id in claimed]
    # A unit that is gone from its host has failed as surely as one that says so.
    failed = [
        address for unit in own for address in unit.failed or ([unit.address] if unit.gone else [])
    ] or _smaller(own, workload)
    if not failed:
        return ""
    then = _to_stop_and_start(snapshot, caller, workload, rules)
    return f"{_gpus_failed(failed)}, so {workload.name} is not rebooted. {then}"


def _smaller(own: Sequence[SnapshotUnit], workload: Workload) -> list[str]:
    """The addresses of its units that have fewer GPUs now than when it came to run: one is gone from them."""
    if sum(unit.gpus for unit in own) >= workload.gpu_count:
        return []
    rows = UsageUnit.objects.filter(session__workload=workload, session__ended_at=None)
    had = dict(rows.values_list("unit_id", "gpu_count"))
    return [unit.address for unit in own if unit.gpus < had.get(unit.id, 0)]


def _to_stop_and_start(snapshot: NodeSnapshot, caller: Caller, workload: Workload, rules: Rules) -> str:
    """Whether to stop and start it would give a running workload healthy GPUs of its node, as a sentence."""
    if workload.kind == Workload.Kind.VM and not may_stop(caller):
        return (
            "Stopping VMs is switched off for your organization, so it cannot have others of its node. "
            "Terminate it and create a new one, or ask an operator."
        )
    no_help = "To stop and start it would not help now: its node"
    try:
        require_active(caller)
        # On its own node it may have what it is not billed for.
        if snapshot.held.node.organization_id != caller.organization_id:
            require_balance(caller)
    except Conflict as error:
        return f"To stop and start it would not help now. {error.message}"
    if not snapshot.held.node.takes_new_work:
        return f"{no_help} takes no new work."
    # As it would stand once it has stopped.
    uses = snapshot.uses(excluding_workload=workload.pk)
    request = restart_request(workload, disk_is_there=True)
    placement = decide_from_snapshot(snapshot, uses, workload.organization_id, request, named=True)
    if isinstance(placement, Placement):
        return "Stop it and start it again: its node has healthy GPUs for it now."
    if placement.short:
        return f"{no_help} has too little {' and '.join(placement.short)} for it."
    return f"{no_help} has not enough healthy GPUs free for it."


def _take_back(held: LockedNode, caller: Caller, workload: Workload, rules: Rules) -> None:
    """Start it again on the locked node, which has its disk."""
    require_active(caller)
    rules.admit(held, workload)
    # The disk decides the node, so what is reserved to the caller there serves as if the node were named.
    request = restart_request(workload, disk_is_there=True)
    placement = decide_affordable(held, caller, request, named=True)
    if isinstance(placement, Rejection):
        raise _node_busy(workload, rules, _short(held, workload, request, placement))
    start_again(held, caller, workload, placement)


def _node_busy(workload: Workload, rules: Rules, short: str) -> Unavailable:
    kept = "volume" if workload.kind == Workload.Kind.POD else "disk"
    return Unavailable(
        f"{workload.name} cannot start on its node now: {short} Its {kept} is kept. Try again later, or "
        "create a new one to place it elsewhere.",
        code=rules.busy,
    )


def _short(held: LockedNode, workload: Workload, request: PlacementRequest, rejection: Rejection) -> str:
    """What the node is short of, as sentences."""
    if rejection.short:
        return _too_little(rejection)
    if not request.gpu_count:
        return f"{rejection.sentence}."
    snapshot = read_snapshot(held, workload.organization_id, workload.tier)
    if not held.node.takes_new_work or not snapshot.heard:
        return f"{rejection.sentence}."
    model = workload.gpu_model.name if workload.gpu_model else "its model"
    said = [
        f"it needs {workload.gpu_count} free GPU{'s' if workload.gpu_count > 1 else ''} of {model} and there "
        f"{'are' if rejection.largest != 1 else 'is'} {rejection.largest or 'none'} for it."
    ]
    said += _withheld(snapshot.units, workload.organization_id, request)
    if failed := [address for unit in snapshot.units if _of(unit, request) for address in unit.failed]:
        said.append(f"{_gpus_failed(failed)}.")
    draining = [
        unit for unit in snapshot.units if unit.id in snapshot.occupancies and unit.id not in snapshot.claims
    ]
    free_then = options_for(draining, {}, workload.organization_id, request, named=True)
    # What is reserved to it serves while it drains, and is counted already.
    if leaving := sum(option.gpus for option in free_then if option.standing not in BY_RESERVATION):
        said.append(f"{leaving} more are freed once earlier guests have stopped.")
    return " ".join(said)


def _withheld(units: Sequence[SnapshotUnit], organization_id: UUID, request: PlacementRequest) -> list[str]:
    """Why units that are reserved to the organization do not serve it now, as sentences."""
    reserved = [
        unit
        for unit in units
        if unit.held is not None and organization_id in unit.held.audience and not unit.held.active
        if (unit.model.pk, unit.alloc_class) == (request.model_id, request.alloc_class)
    ]
    gone = [unit.address for unit in reserved if unit.gone]
    in_review = [unit.address for unit in reserved if not unit.gone]
    said = []
    if gone:
        said.append(f"Reserved to your organization and gone from the node: {', '.join(gone)}.")
    if in_review:
        said.append(
            f"Reserved to your organization and in review, because the node's hardware changed: "
            f"{', '.join(in_review)}."
        )
    return said


def _too_little(rejection: Rejection) -> str:
    return f"it has too little {' and '.join(rejection.short)} for it."


def _of(unit: SnapshotUnit, request: PlacementRequest) -> bool:
    return not unit.gone and (unit.model.pk, unit.alloc_class) == (request.model_id, request.alloc_class)


def _gpus_failed(addresses: Sequence[str]) -> str:
    if len(addresses) == 1:
        return f"GPU {addresses[0]} has failed"
    return f"GPUs {', '.join(addresses)} have failed"


def _deploy_elsewhere(caller: Caller, workload: Workload) -> None:
    """Deploy a VM afresh in the public pool, with a new disk: its node took the old one along.

    Raises Conflict (INVALID_STATE) when somebody else started or ended it meanwhile.
    """
    request = restart_request(workload, disk_is_there=False)
    try:
        if workload.gpu_count:
            (sold,) = shared_connection.read(sold_at(workload.tier, workload.gpu_model_id))
            request = replace(request, sold=tuple(sold))
        place_in_pool(caller, request)
    except Invalid as error:
        # It was valid when it was made; what it needs is not there now.
        raise Unavailable(
            f"The node of {workload.name} was removed, and it cannot deploy elsewhere now: {error.message}",
            code="INSUFFICIENT_GPU_CAPACITY" if workload.gpu_count else "INSUFFICIENT_HOST_CAPACITY",
        ) from None
