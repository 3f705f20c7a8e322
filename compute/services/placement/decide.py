"""Whether a node has room for a workload under its lock: which units, what of its host, who has to go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from compute.domain import states
from compute.domain.eligibility import OWN, SPOT, UNUSED, UnitUsage, judge_unit
from compute.domain.host_shares import VOLUME_GB, Shape, Share, pod_shape, shape, shape_again, share
from compute.domain.host_usage import DISK, HostRemaining
from compute.domain.selection import Choice, Option, choose
from compute.models import Workload
from compute.services.fleet.delta import FleetDelta
from compute.services.fleet.pool_scan import RUNTIME_OF
from compute.services.lifecycle.guest_telemetry import disk_used_gb
from compute.services.placement.cpu_beside import beside_cpu
from compute.services.placement.snapshot import NodeSnapshot, SnapshotUnit, read_snapshot
from nodes.models import GpuModel, GpuUnit, Node
from nodes.services.locking import LockedNode

# So many counts at most are looked at for the largest that fits.
_TRIED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """A workload to place: what is asked for, resolved. Sizes are MiB and GB; None is what the node gives.

    `keys` are SSH keys, `sold` the GPU models that the pool may give, for they are sold at the tier. `delta`
    is what was just told of the pool, if it was asked. `details` has the fields of the workload that
    placement only hands on. `again` is a workload that was placed before, and `disk_is_there` says that its
    disk is on the very node.
    """

    name: str
    gpu_count: int
    tier: str
    keys: tuple[UUID, ...] = ()
    sold: tuple[UUID, ...] = ()
    delta: FleetDelta | None = None
    model_id: UUID | None = None
    guest_mem_mb: int | None = None
    disk_gb: int | None = None
    shm_gb: int | None = None
    alloc_class: str = GpuUnit.VFIO_GROUP
    again: Workload | None = None
    disk_is_there: bool = False
    details: dict[str, object] = field(default_factory=dict)

    @property
    def pod(self) -> bool:
        """Whether it is a pod."""
        return self.alloc_class == GpuUnit.DEVICE_REQUEST


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a node had no room. `largest` is the most GPUs of one model that were there for it, `fits` the
    largest count that there was room for, on a node that was named; `short` what of the host there was too
    little of.
    """

    sentence: str
    largest: int = 0
    fits: int = 0
    host: bool = False  # GPUs there were, but not the memory or disk to go with them
    shape: bool = False  # it asks for more than the node's share, whoever is there
    addresses: bool = False  # room there was, but no address on the node's fabric
    short: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Room found: the units, of which model, and whom they cost; what of the host, and the runs that are to
    be gone first.
    """

    choice: Choice
    model: GpuModel
    given: Shape
    there_first: frozenset[UUID]
    cents_per_hour: int | None  # None where it is not sold so

    @property
    def rights(self) -> list[tuple[UUID, UUID | None]]:
        """The units, each with the hold by whose audience it is had."""
        return [(option.unit_id, option.hold_id) for option in self.choice.options]


def decide(
    held: LockedNode, organization_id: UUID, wanted: PlacementRequest, *, named: bool
) -> Placement | Rejection:
    """The room that the locked node has for the workload now, by the rights of that organization; or why not.

    Nothing is changed. `named` says that the request names the node: only so does it reach what is reserved
    to the organization.
    """
    node = held.node
    if node.removed_at is not None:
        return Rejection("the node was removed")
    if not node.takes_new_work:
        return Rejection("the node takes no new work now")
    if node.runtime != RUNTIME_OF[wanted.alloc_class]:
        return Rejection(f"the node runs no {'pods' if wanted.pod else 'VMs'}")
    excluding_workload = wanted.again.pk if wanted.again else None
    facts = read_snapshot(held, organization_id, wanted.tier, excluding_workload=excluding_workload)
    if not facts.heard:
        return Rejection("the node is offline")
    return decide_from_snapshot(facts, facts.uses(), organization_id, wanted, named=named)


def decide_from_snapshot(
    facts: NodeSnapshot,
    uses: Mapping[UUID, UnitUsage],
    organization_id: UUID,
    wanted: PlacementRequest,
    *,
    named: bool,
) -> Placement | Rejection:
    """The same for a node that takes such work, if `uses` were what is on its units."""
    options = options_for(facts.units, uses, organization_id, wanted, named=named)
    found = _find(facts, options, organization_id, wanted, named=named)
    if isinstance(found, Rejection) and named:
        return replace(found, fits=_fits(facts, options, organization_id, wanted))
    return found


def _find(
    facts: NodeSnapshot,
    options: Sequence[Option],
    organization_id: UUID,
    wanted: PlacementRequest,
    *,
    named: bool,
) -> Placement | Rejection:
    """The room on some of the options, or why there is none."""
    refusal = None
    left = list(options)
    # Of another model the host may have enough, where it has not of the first.
    while (choice := choose(left, wanted.gpu_count)) is not None:
        found = _room_for(facts, choice, organization_id, wanted, named=named)
        if isinstance(found, Placement):
            return found
        refusal = refusal or found
        left = [option for option in left if option.model_id != choice.model_id]
    return refusal or Rejection(
        "the node has no such number of free GPUs that you may have", largest(options)
    )


def _fits(
    facts: NodeSnapshot, options: Sequence[Option], organization_id: UUID, wanted: PlacementRequest
) -> int:
    """The largest GPU count at which the request, else as it is, has room on the named node; 0 for none."""
    # On a host that has too little for very many, the largest of these are not all tried.
    for count in range(largest(options), max(0, largest(options) - _TRIED), -1):
        other = replace(wanted, gpu_count=count)
        if isinstance(_find(facts, options, organization_id, other, named=True), Placement):
            return count
    return 0


def _room_for(
    facts: NodeSnapshot, choice: Choice, organization_id: UUID, wanted: PlacementRequest, *, named: bool
) -> Placement | Rejection:
    """The room on those units, or what of the host there is too little of."""
    excluding_workload = wanted.again.pk if wanted.again else None
    # Runs that may still be on the chosen units: the guest starts only once they are gone.
    there_first = frozenset(
        row.run_id for option in choice.options for row in facts.occupancies.get(option.unit_id, ())
    )
    model = next(unit.model for unit in facts.units if unit.model.pk == choice.model_id)
    # Whoever has to go leaves its disk too.
    freed = {row.workload_id: row.disk_gb for row in facts.guests if row.workload_id in choice.victims}
    facts = replace(facts, disk_gb=facts.disk_gb - sum(freed.values()))
    left = beside_cpu(
        facts,
        facts.left(excluding_runs=there_first, excluding_workload=excluding_workload),
        organization_id,
        named=named,
        chosen={option.unit_id for option in choice.options},
        excluding_runs=there_first,
        excluding_workload=excluding_workload,
    )
    given = _shape(facts.held.node, facts.units, model, wanted, left)
    if isinstance(given, Rejection) and DISK in given.short and left.disk_free_gb is not None:
        # And what it has written there, as its node told; asked only where that could matter.
        leaving = [
            row.run_id
            for row in facts.guests
            if row.run_id in there_first
            and (row.workload_id in choice.victims or row.status == states.TERMINATED)
        ]
        left = replace(left, disk_free_gb=left.disk_free_gb + disk_used_gb(leaving))
        given = _shape(facts.held.node, facts.units, model, wanted, left)
    if isinstance(given, Rejection):
        return given
    each = facts.cents.get(choice.model_id)
    return Placement(choice, model, given, there_first, None if each is None else each * wanted.gpu_count)


def options_for(
    units: Sequence[SnapshotUnit],
    uses: Mapping[UUID, UnitUsage],
    organization_id: UUID,
    wanted: PlacementRequest,
    *,
    named: bool,
) -> list[Option]:
    """The units of a node that the request may have, by the table in `eligibility.judge_unit`."""
    options = []
    for unit in units:
        if unit.alloc_class != wanted.alloc_class:
            continue
        if wanted.model_id not in (None, unit.model.pk):
            continue
        use = uses.get(unit.id, UNUSED)
        stands = judge_unit(unit, use, organization_id=organization_id, tier=wanted.tier, named=named)
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
                    unit.held.hold_id if unit.held is not None and stands in OWN else None,
                )
            )
    return options


def largest(options: Sequence[Option]) -> int:
    """The most GPUs of one model that the options add up to."""
    totals: dict[UUID, int] = {}
    for option in options:
        totals[option.model_id] = totals.get(option.model_id, 0) + option.gpus
    return max(totals.values(), default=0)


def share_of(node: Node, units: Sequence[SnapshotUnit], alloc_class: str = GpuUnit.VFIO_GROUP) -> Share:
    """What one GPU of the node brings with it of the host."""
    return share(
        gpus=_gpus(units, alloc_class),
        ram_mb=node.ram_mb,
        cpu_cores=node.cpu_cores,
        disk_total_gb=node.disk_total_gb,
    )


def _gpus(units: Sequence[SnapshotUnit], alloc_class: str) -> int:
    return sum(unit.gpus for unit in units if unit.for_sale and unit.alloc_class == alloc_class)


def shape_for(wanted: PlacementRequest, each: Share, *, vram_gb: int, node_gpus: int) -> Shape | None:
    """What the workload is given on a node of that share and so many GPUs; None when it asks for more."""
    again = wanted.again
    if wanted.pod:
        return pod_shape(
            each,
            gpu_count=wanted.gpu_count,
            node_gpus=node_gpus,
            volume_gb=wanted.disk_gb or VOLUME_GB,
            shm_gb=wanted.shm_gb,
            again=again is not None,
        )
    if again is not None:
        return shape_again(
            each,
            gpu_count=wanted.gpu_count,
            vram_gb=vram_gb,
            guest_mem_mb=wanted.guest_mem_mb,
            disk_gb=wanted.disk_gb or again.disk_size_gb,
            new_disk=not wanted.disk_is_there,
        )
    return shape(
        each,
        gpu_count=wanted.gpu_count,
        vram_gb=vram_gb,
        guest_mem_mb=wanted.guest_mem_mb,
        disk_gb=wanted.disk_gb,
    )


def _shape(
    node: Node, units: Sequence[SnapshotUnit], model: GpuModel, wanted: PlacementRequest, left: HostRemaining
) -> Shape | Rejection:
    """What the workload is given of the host, or why it cannot be."""
    each = share_of(node, units, wanted.alloc_class)
    node_gpus = _gpus(units, wanted.alloc_class)
    given = shape_for(wanted, each, vram_gb=model.vram_gb, node_gpus=node_gpus)
    if given is None:
        return Rejection(
            "it asks for more memory or disk than these GPUs come with on the node",
            shape=True,
            short=("RAM",),
        )
    lacks = left.lacks(given, disk_is_there=wanted.disk_is_there)
    # A host with fewer CPUs than GPUs shares them out; otherwise shares add up to what there is.
    if "CPU" in lacks and node.cpu_cores and node.cpu_cores < node_gpus:
        lacks = tuple(name for name in lacks if name != "CPU")
    if lacks:
        return Rejection(
            "the node has the GPUs, but not the memory or disk to go with them", host=True, short=lacks
        )
    return given
