"""Deciding whether a locked node has room for a workload: which units, which share of its host, and which
workloads are preempted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from compute.domain import states
from compute.domain.eligibility import BY_RESERVATION, SPOT, UNUSED, UnitUsage, judge_unit
from compute.domain.host_shares import (
    VOLUME_GB,
    GpuShare,
    HostAllocation,
    gpu_share,
    pod_allocation,
    restart_allocation,
    vm_allocation,
)
from compute.domain.host_usage import DISK, HostRemaining
from compute.domain.selection import Choice, Option, choose
from compute.services.fleet.pool_scan import RUNTIME_OF
from compute.services.lifecycle.guest_telemetry import disk_used_gb
from compute.services.placement.cpu_beside import remaining_beside_cpu_vms
from compute.services.placement.cpu_decide import decide_without_gpus
from compute.services.placement.request import Placement, PlacementRequest, Rejection
from compute.services.placement.snapshot import NodeSnapshot, SnapshotUnit, read_snapshot
from nodes.models import GpuModel, GpuUnit, Node
from nodes.services.locking import LockedNode

# So many counts at most are looked at for the largest that fits.
_TRIED = 64


def decide(
    held: LockedNode, organization_id: UUID, request: PlacementRequest, *, named: bool
) -> Placement | Rejection:
    """Decide whether the locked node has room for the workload now, by the rights of that organization.

    Changes nothing. `named` says that the request names the node: only so does it reach what is reserved to
    the organization.
    """
    node = held.node
    if node.removed_at is not None:
        return Rejection("the node was removed")
    if not node.takes_new_work:
        return Rejection("the node takes no new work now")
    if node.runtime != RUNTIME_OF[request.alloc_class]:
        return Rejection(f"the node runs no {'pods' if request.is_pod else 'VMs'}")
    if not request.gpu_count:
        return decide_without_gpus(held, organization_id, request, named=named)
    snapshot = read_snapshot(held, organization_id, request.tier, excluding_workload=request.restarted_id)
    if not snapshot.heard:
        return Rejection("the node is offline")
    return decide_from_snapshot(snapshot, snapshot.uses(), organization_id, request, named=named)


def decide_from_snapshot(
    snapshot: NodeSnapshot,
    uses: Mapping[UUID, UnitUsage],
    organization_id: UUID,
    request: PlacementRequest,
    *,
    named: bool,
) -> Placement | Rejection:
    """The same for a node that takes such work, if `uses` were what is on its units."""
    options = options_for(snapshot.units, uses, organization_id, request, named=named)
    found = _find(snapshot, options, organization_id, request, named=named)
    if isinstance(found, Rejection) and named:
        return replace(found, fits=_fits(snapshot, options, organization_id, request))
    return found


def _find(
    snapshot: NodeSnapshot,
    options: Sequence[Option],
    organization_id: UUID,
    request: PlacementRequest,
    *,
    named: bool,
) -> Placement | Rejection:
    """The room on some of the options, or why there is none."""
    rejection = None
    left = list(options)
    # Of another model the host may have enough, where it has not of the first.
    while (choice := choose(left, request.gpu_count)) is not None:
        found = _room_for(snapshot, choice, organization_id, request, named=named)
        if isinstance(found, Placement):
            return found
        rejection = rejection or found
        left = [option for option in left if option.model_id != choice.model_id]
    return rejection or Rejection(_too_few(options, request.gpu_count), largest(options))


def _too_few(options: Sequence[Option], gpu_count: int) -> str:
    """Why the units that the request may use do not meet the count, as the end of a sentence."""
    most = largest(options)
    if most < gpu_count:
        return (
            f"the node has {most} GPU{'' if most == 1 else 's'} of one model that your organization may use "
            f"now, and {gpu_count} {'was' if gpu_count == 1 else 'were'} requested"
        )
    return (
        f"the units that your organization may use there now do not add up to {gpu_count} GPUs of one model"
    )


def _fits(
    snapshot: NodeSnapshot, options: Sequence[Option], organization_id: UUID, request: PlacementRequest
) -> int:
    """The largest GPU count at which the request, else as it is, has room on the named node; 0 for none."""
    # On a host that has too little for very many, the largest of these are not all tried.
    for count in range(largest(options), max(0, largest(options) - _TRIED), -1):
        other = replace(request, gpu_count=count)
        if isinstance(_find(snapshot, options, organization_id, other, named=True), Placement):
            return count
    return 0


def _room_for(
    snapshot: NodeSnapshot, choice: Choice, organization_id: UUID, request: PlacementRequest, *, named: bool
) -> Placement | Rejection:
    """The room on those units, or what of the host there is too little of."""
    excluding_workload = request.restarted_id
    # Runs that may still be on the chosen units: the guest starts only once they are gone.
    there_first = frozenset(
        row.run_id for option in choice.options for row in snapshot.occupancies.get(option.unit_id, ())
    )
    model = next(unit.model for unit in snapshot.units if unit.model.pk == choice.model_id)
    # Whoever has to go leaves its disk too.
    freed = {row.workload_id: row.disk_gb for row in snapshot.guests if row.workload_id in choice.victims}
    snapshot = replace(snapshot, disk_gb=snapshot.disk_gb - sum(freed.values()))
    left = remaining_beside_cpu_vms(
        snapshot,
        snapshot.left(excluding_runs=there_first, excluding_workload=excluding_workload),
        organization_id,
        named=named,
        chosen={option.unit_id for option in choice.options},
        excluding_runs=there_first,
        excluding_workload=excluding_workload,
    )
    allocation = _shape(snapshot.held.node, snapshot.units, model, request, left)
    if isinstance(allocation, Rejection) and DISK in allocation.short and left.disk_free_gb is not None:
        # And what it has written there, as its node told; asked only where that could matter.
        leaving = [
            row.run_id
            for row in snapshot.guests
            if row.run_id in there_first
            and (row.workload_id in choice.victims or row.status == states.TERMINATED)
        ]
        left = replace(left, disk_free_gb=left.disk_free_gb + disk_used_gb(leaving))
        allocation = _shape(snapshot.held.node, snapshot.units, model, request, left)
    if isinstance(allocation, Rejection):
        return allocation
    each = snapshot.cents.get(choice.model_id)
    cents = None if each is None else each * request.gpu_count
    return Placement(allocation, cents, choice, model, there_first)


def options_for(
    units: Sequence[SnapshotUnit],
    uses: Mapping[UUID, UnitUsage],
    organization_id: UUID,
    request: PlacementRequest,
    *,
    named: bool,
) -> list[Option]:
    """The units of a node that the request may have, by the table in `eligibility.judge_unit`."""
    options = []
    for unit in units:
        if unit.alloc_class != request.alloc_class:
            continue
        if request.model_id not in (None, unit.model.pk):
            continue
        use = uses.get(unit.id, UNUSED)
        stands = judge_unit(unit, use, organization_id=organization_id, tier=request.tier, named=named)
        if stands is not None:
            options.append(
                Option(
                    unit.id,
                    unit.address,
                    unit.model.pk,
                    unit.gpus,
                    stands,
                    use.workload_id if use.tier == SPOT else None,
                    use.since,
                    unit.held.hold_id if unit.held is not None and stands in BY_RESERVATION else None,
                )
            )
    return options


def largest(options: Sequence[Option]) -> int:
    """The most GPUs of one model that the options add up to."""
    totals: dict[UUID, int] = {}
    for option in options:
        totals[option.model_id] = totals.get(option.model_id, 0) + option.gpus
    return max(totals.values(), default=0)


def share_of(node: Node, units: Sequence[SnapshotUnit], alloc_class: str = GpuUnit.VFIO_GROUP) -> GpuShare:
    """What one GPU of the node brings with it of the host."""
    return gpu_share(
        gpus=_gpus(units, alloc_class),
        ram_mb=node.ram_mb,
        cpu_cores=node.cpu_cores,
        disk_total_gb=node.disk_total_gb,
    )


def _gpus(units: Sequence[SnapshotUnit], alloc_class: str) -> int:
    return sum(unit.gpus for unit in units if unit.for_sale and unit.alloc_class == alloc_class)


def allocation_for(
    request: PlacementRequest, each: GpuShare, *, vram_gb: int, node_gpus: int
) -> HostAllocation | None:
    """The allocation of the workload on a node of that share and GPU count; None when it asks for more."""
    restarted = request.restarted
    if request.is_pod:
        return pod_allocation(
            each,
            gpu_count=request.gpu_count,
            node_gpus=node_gpus,
            volume_gb=request.disk_gb or VOLUME_GB,
            shm_gb=request.shm_gb,
            again=restarted is not None,
        )
    if restarted is not None:
        return restart_allocation(
            each,
            gpu_count=request.gpu_count,
            vram_gb=vram_gb,
            guest_mem_mb=request.guest_mem_mb,
            disk_gb=request.disk_gb or restarted.disk_size_gb,
            new_disk=not request.disk_is_there,
        )
    return vm_allocation(
        each,
        gpu_count=request.gpu_count,
        vram_gb=vram_gb,
        guest_mem_mb=request.guest_mem_mb,
        disk_gb=request.disk_gb,
    )


def _shape(
    node: Node, units: Sequence[SnapshotUnit], model: GpuModel, request: PlacementRequest, left: HostRemaining
) -> HostAllocation | Rejection:
    """The allocation of the workload on the host, or why there is none."""
    each = share_of(node, units, request.alloc_class)
    node_gpus = _gpus(units, request.alloc_class)
    allocation = allocation_for(request, each, vram_gb=model.vram_gb, node_gpus=node_gpus)
    if allocation is None:
        return Rejection(
            "the request asks for more memory or disk than the share of these GPUs on the node",
            over_share=True,
            short=("RAM",),
        )
    lacks = left.lacks(allocation, disk_is_there=request.disk_is_there)
    # A host with fewer CPUs than GPUs shares them out; otherwise shares add up to what there is.
    if "CPU" in lacks and node.cpu_cores and node.cpu_cores < node_gpus:
        lacks = tuple(name for name in lacks if name != "CPU")
    if lacks:
        return Rejection(
            "the node has the GPUs, but not enough free memory or disk for them", host=True, short=lacks
        )
    return allocation
