"""What is asked of placement and what placement answers. Plain values."""

from dataclasses import dataclass, field, replace
from uuid import UUID

from compute.domain.host_shares import HostAllocation
from compute.domain.selection import Choice
from compute.models import Workload
from compute.services.fleet.index import FleetDelta
from nodes.models import GpuModel, GpuUnit

# A workload without GPUs gets no unit.
NO_UNITS = Choice(UUID(int=0), (), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """A workload to place, its ids resolved. Sizes are MiB and GB; None is what the node gives.

    With `gpu_count` 0 it is a VM of the size `resource_size`, and `allocation` is its share of the host.
    `keys` are SSH keys, `sold` the GPU models that the pool may give, because they are sold at the tier.
    `delta` is the fleet's delta, if it was read with the rest. Without a named node, placement stays in
    `regions` unless `allow_fallback`. `details` has the fields of the workload that placement only hands on.
    `restarted` is a workload that was placed before, and `disk_is_there` says that its disk is on the very
    node.
    """

    name: str
    tier: str
    gpu_count: int
    keys: tuple[UUID, ...] = ()
    sold: tuple[UUID, ...] = ()
    delta: FleetDelta | None = None
    model_id: UUID | None = None
    guest_mem_mb: int | None = None
    disk_gb: int | None = None
    shm_gb: int | None = None
    alloc_class: str = GpuUnit.VFIO_GROUP
    resource_size: str = ""
    allocation: HostAllocation | None = None
    regions: tuple[str, ...] = ()
    allow_fallback: bool = False
    restarted: Workload | None = None
    disk_is_there: bool = False
    details: dict[str, object] = field(default_factory=dict)

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod."""
        return self.alloc_class == GpuUnit.DEVICE_REQUEST

    @property
    def restarted_id(self) -> UUID | None:
        """The workload that was placed before, if it is one."""
        return None if self.restarted is None else self.restarted.pk

    @property
    def action(self) -> str:
        """The permission that the caller needs."""
        return "compute.create" if self.restarted is None else "compute.operate"

    def of_model(self, model_id: UUID | None) -> "PlacementRequest":
        """The same of that GPU model, where one is given: another model on a node may not be for sale."""
        return self if model_id is None else replace(self, model_id=model_id)


def restart_request(workload: Workload, *, disk_is_there: bool) -> PlacementRequest:
    """The request to place a stopped or failed workload again."""
    without_gpus = not workload.gpu_count
    return PlacementRequest(
        name=workload.name,
        tier=workload.tier,
        gpu_count=workload.gpu_count,
        model_id=workload.gpu_model_id,
        guest_mem_mb=workload.requested_guest_mem_mb,
        disk_gb=workload.disk_size_gb,
        shm_gb=workload.requested_shm_gb,
        alloc_class=(GpuUnit.DEVICE_REQUEST if workload.kind == Workload.Kind.POD else GpuUnit.VFIO_GROUP),
        resource_size=workload.resource_size,
        allocation=(
            HostAllocation(workload.guest_mem_mb, workload.guest_vcpu, workload.disk_size_gb)
            if without_gpus
            else None
        ),
        regions=tuple(workload.preferred_regions),
        allow_fallback=workload.allow_fallback,
        restarted=workload,
        disk_is_there=disk_is_there,
    )


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a node had no room. `largest` is the most GPUs of one model that the request could use there,
    `fits` the largest GPU count that would fit, on a named node; `short` what of the host is too little.
    """

    sentence: str
    largest: int = 0
    fits: int = 0
    host: bool = False  # the GPUs are free, but the memory or disk to go with them is not
    over_share: bool = False  # it asks for more than its share of the node, whatever runs there
    addresses: bool = False  # there was room, but no address on the node's fabric
    short: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """A decision to place: the units, their model and the workloads preempted for them; the share of the
    host; and the runs that have to end before the workload starts.
    """

    allocation: HostAllocation
    cents_per_hour: int | None  # None where it is not sold so
    choice: Choice = NO_UNITS
    model: GpuModel | None = None
    there_first: frozenset[UUID] = frozenset()

    @property
    def rights(self) -> list[tuple[UUID, UUID | None]]:
        """The units, each with the hold by whose audience the workload may use it."""
        return [(option.unit_id, option.hold_id) for option in self.choice.options]
