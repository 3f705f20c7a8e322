"""Restarting a workload: a reboot in place while it runs, a new run on its node while it does not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from django.db.models import F

from compute.domain import states
from compute.domain.eligibility import OWN
from compute.models import GuestState, Run, UsageUnit, Workload
from compute.services.billing.accounts import require_active, require_balance
from compute.services.billing.prices import sold_at
from compute.services.lifecycle.drain import leaving_reason
from compute.services.lifecycle.stop import may_stop
from compute.services.lifecycle.transitions import move
from compute.services.lifecycle.workload_lock import (
    disk_is_gone,
    find,
    on_its_node,
    refuse_state,
    require_its_node,
)
from compute.services.placement.commit import decide_affordable, start_again
from compute.services.placement.cpu_commit import start_cpu_again
from compute.services.placement.cpu_decide import refuse_cpu, wanted_again
from compute.services.placement.decide import (
    Placement,
    PlacementRequest,
    Rejection,
    decide_from_snapshot,
    options_for,
)
from compute.services.placement.pod_admission import admit, require_online
from compute.services.placement.snapshot import NodeSnapshot, SnapshotUnit, read_snapshot
from compute.services.requests.create_cpu_vm import cpu_in_the_pool
from compute.services.requests.create_vm import VmRequest, in_the_pool
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
    with on_its_node(caller, workload_id, "compute.operate") as (held, now, workload):
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
            elsewhere = disk_is_gone(held, workload)
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
    with on_its_node(caller, workload_id, "compute.operate") as (held, now, workload):
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
    facts = read_snapshot(held, workload.organization_id, workload.tier, excluding_workload=workload.pk)
    if not facts.heard:
        return f"The node of {workload.name} is offline. Try again when it is back."
    claimed = {unit_id for unit_id, guest in facts.claims.items() if guest.workload_id == workload.pk}
    own = [unit for unit in facts.units if unit.id in claimed]
    # A unit that is gone from its host has failed as surely as one that says so.
    failed = [
        address for unit in own for address in unit.failed or ([unit.address] if unit.gone else [])
    ] or _smaller(own, workload)
    if not failed:
        return ""
    then = _to_stop_and_start(facts, caller, workload, rules)
    return f"{_gpus_failed(failed)}, so {workload.name} is not rebooted. {then}"


def _smaller(own: Sequence[SnapshotUnit], workload: Workload) -> list[str]:
    """The addresses of its units that have fewer GPUs now than when it came to run: one is gone from them."""
    if sum(unit.gpus for unit in own) >= workload.gpu_count:
        return []
    rows = UsageUnit.objects.filter(session__workload=workload, session__ended_at=None)
    had = dict(rows.values_list("unit_id", "gpu_count"))
    return [unit.address for unit in own if unit.gpus < had.get(unit.id, 0)]


def _to_stop_and_start(facts: NodeSnapshot, caller: Caller, workload: Workload, rules: Rules) -> str:
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
        if facts.held.node.organization_id != caller.organization_id:
            require_balance(caller)
    except Conflict as error:
        return f"To stop and start it would not help now. {error.message}"
    if not facts.held.node.takes_new_work:
        return f"{no_help} takes no new work."
    # As it would stand once it has stopped.
    uses = facts.uses(excluding_runs=workload.pk)
    room = decide_from_snapshot(facts, uses, workload.organization_id, _wanted(workload, rules), named=True)
    if isinstance(room, Placement):
        return "Stop it and start it again: its node has healthy GPUs for it now."
    if room.short:
        return f"{no_help} has too little {' and '.join(room.short)} for it."
    return f"{no_help} has not enough healthy GPUs free for it."


def _take_back(held: LockedNode, caller: Caller, workload: Workload, rules: Rules) -> None:
    """Start it again on the locked node, which has its disk."""
    require_active(caller)
    rules.admit(held, workload)
    # The node is given by the disk, so what is reserved to the caller there serves as if it were named.
    if not workload.gpu_count:
        cpu = wanted_again(workload, disk_is_there=True)
        require_balance(caller)
        refusal = refuse_cpu(held, workload.organization_id, cpu, named=True)
        if refusal is not None:
            short = _too_little(refusal) if refusal.short else f"{refusal.sentence}."
            raise _node_busy(workload, rules, short)
        start_cpu_again(held, caller, workload)
        return
    wanted = _wanted(workload, rules)
    room = decide_affordable(held, caller, wanted, named=True)
    if isinstance(room, Rejection):
        raise _node_busy(workload, rules, _short(held, workload, wanted, room))
    start_again(held, caller, workload, room)


def _node_busy(workload: Workload, rules: Rules, short: str) -> Unavailable:
    kept = "volume" if workload.kind == Workload.Kind.POD else "disk"
    return Unavailable(
        f"{workload.name} cannot start on its node now: {short} Its {kept} is kept. Try again later, or "
        "create a new one to place it elsewhere.",
        code=rules.busy,
    )


def _wanted(workload: Workload, rules: Rules, *, disk_is_there: bool = True) -> PlacementRequest:
    return PlacementRequest(
        name=workload.name,
        gpu_count=workload.gpu_count,
        tier=workload.tier,
        model_id=workload.gpu_model_id,
        guest_mem_mb=workload.requested_guest_mem_mb,
        disk_gb=workload.disk_size_gb,
        shm_gb=workload.requested_shm_gb,
        alloc_class=rules.alloc_class,
        again=workload,
        disk_is_there=disk_is_there,
    )


def _short(held: LockedNode, workload: Workload, wanted: PlacementRequest, refusal: Rejection) -> str:
    """What the node is short of, as sentences."""
    if refusal.short:
        return _too_little(refusal)
    facts = read_snapshot(held, workload.organization_id, workload.tier)
    if not held.node.takes_new_work or not facts.heard:
        return f"{refusal.sentence}."
    model = workload.gpu_model.name if workload.gpu_model else "its model"
    said = [
        f"it needs {workload.gpu_count} free GPU{'s' if workload.gpu_count > 1 else ''} of {model} and there "
        f"{'are' if refusal.largest != 1 else 'is'} {refusal.largest or 'none'} for it."
    ]
    said += _withheld(facts.units, workload.organization_id, wanted)
    if failed := [address for unit in facts.units if _of(unit, wanted) for address in unit.failed]:
        said.append(f"{_gpus_failed(failed)}.")
    draining = [unit for unit in facts.units if unit.id in facts.occupancies and unit.id not in facts.claims]
    free_then = options_for(draining, {}, workload.organization_id, wanted, named=True)
    # What is reserved to it serves while it drains, and is counted already.
    if leaving := sum(option.gpus for option in free_then if option.standing not in OWN):
        said.append(f"{leaving} more are freed once earlier guests have stopped.")
    return " ".join(said)


def _withheld(units: Sequence[SnapshotUnit], organization_id: UUID, wanted: PlacementRequest) -> list[str]:
    """Why units that are reserved to the organization do not serve it now, as sentences."""
    reserved = [
        unit
        for unit in units
        if unit.held is not None and organization_id in unit.held.audience and not unit.held.active
        if (unit.model.pk, unit.alloc_class) == (wanted.model_id, wanted.alloc_class)
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


def _too_little(refusal: Rejection) -> str:
    return f"it has too little {' and '.join(refusal.short)} for it."


def _of(unit: SnapshotUnit, wanted: PlacementRequest) -> bool:
    return not unit.gone and (unit.model.pk, unit.alloc_class) == (wanted.model_id, wanted.alloc_class)


def _gpus_failed(addresses: Sequence[str]) -> str:
    if len(addresses) == 1:
        return f"GPU {addresses[0]} has failed"
    return f"GPUs {', '.join(addresses)} have failed"


def _deploy_elsewhere(caller: Caller, workload: Workload) -> None:
    """Deploy a VM afresh in the public pool, with a new disk: its node took the old one along.

    Raises Conflict (INVALID_STATE) when somebody else started or ended it meanwhile.
    """
    request = VmRequest(
        name=workload.name,
        ssh_key_ids=(),
        preferred_regions=workload.preferred_regions,
        allow_fallback=workload.allow_fallback,
        tier=workload.tier,
    )
    try:
        if workload.gpu_count:
            wanted = _wanted(workload, RULES[Workload.Kind(workload.kind)], disk_is_there=False)
            (sold,) = shared_connection.read(sold_at(workload.tier, workload.gpu_model_id))
            in_the_pool(caller, request, replace(wanted, sold=tuple(sold)))
        else:
            cpu_in_the_pool(
                caller,
                wanted_again(workload, disk_is_there=False),
                regions=workload.preferred_regions,
                fallback=workload.allow_fallback,
            )
    except Invalid as error:
        # It was valid when it was made; what it needs is not there now.
        raise Unavailable(
            f"The node of {workload.name} was removed, and it cannot deploy elsewhere now: {error.message}",
            code="INSUFFICIENT_GPU_CAPACITY" if workload.gpu_count else "INSUFFICIENT_HOST_CAPACITY",
        ) from None
