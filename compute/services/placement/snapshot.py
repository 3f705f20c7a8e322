"""The snapshot of a node that placement decides on, read under the node's lock by one statement.

The statement is a function in the database, whose plan is cached there: other requests wait for the lock.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings

from compute.domain.eligibility import SPOT, UnitUsage
from compute.domain.host_usage import Amount, Guest, HostRemaining, counted_twice, left
from nodes.models import GpuModel
from nodes.models.gpu_unit import RESERVABLE_CLASSES
from nodes.services.locking import LOCKED_NODE, LockedNode
from nodes.services.survey import UnitHold
from openrelay.core.rows import Reading, build_partial, query

# The last column is the hourly cents of a GPU for an organization at a tier, by model.
_SQL = f"""(
    SELECT json_build_array(heard, units, failed, holds, models, guests, claims, occupancies, disk_gb, (
        SELECT json_object_agg(sold.gpu_model_id, coalesce(own.cents_per_gpu_hour, sold.cents_per_gpu_hour))
        FROM compute_gpuprice sold
        LEFT JOIN compute_orggpuprice own ON own.organization_id = %s::uuid
            AND own.gpu_model_id = sold.gpu_model_id AND own.tier = sold.tier
        WHERE sold.tier = %s
    ))
    FROM compute_node_snapshot({{node}}, {settings.CLOCK_SQL},
                         interval '{settings.NODE_OFFLINE_GRACE_SECONDS} seconds', %s::uuid)
)"""  # noqa: S608  (settings)
_MODEL = ("id", "name", "manufacturer", "vram_gb")


class SnapshotUnit(NamedTuple):
    """A unit that the node has or had, with its hold if it has one; `failed` has addresses of GPUs."""

    id: UUID
    address: str
    alloc_class: str
    model: GpuModel
    gpus: int
    for_sale: bool  # here, and sold
    gone: bool
    usable: bool  # here, sold, of a known class, and healthy
    failed: tuple[str, ...]
    held: UnitHold | None


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node at one moment. Claims and occupancies are by unit; occupancies the earliest first."""

    held: LockedNode
    heard: bool  # from, within the grace
    units: tuple[SnapshotUnit, ...]  # by address
    guests: tuple[Guest, ...]
    claims: dict[UUID, Guest]
    occupancies: dict[UUID, tuple[Guest, ...]]
    disk_gb: int  # of the disks of workloads that are not terminated
    cents: dict[UUID, int]  # of an hour of one GPU, by model, where it is sold

    def uses(self, *, excluding_workload: UUID | None = None) -> dict[UUID, UnitUsage]:
        """The use of each used unit; `excluding_workload` counts as absent."""
        found = {
            unit_id: UnitUsage(occupied=True)
            for unit_id, guests in self.occupancies.items()
            if any(guest.workload_id != excluding_workload for guest in guests)
        }
        for unit_id, guest in self.claims.items():
            if guest.workload_id != excluding_workload:
                found[unit_id] = UnitUsage(unit_id in found, guest.workload_id, guest.tier, guest.since)
        return found

    def left(
        self, *, excluding_runs: Collection[UUID] = (), excluding_workload: UUID | None = None
    ) -> HostRemaining:
        """The remainder of the host. `excluding_runs` count as over, `excluding_workload` as absent."""
        counted = left(
            self.held.node,
            self.guests,
            self.disk_gb,
            excluding_runs=excluding_runs,
            excluding_workload=excluding_workload,
        )
        return counted.plus(self.twice(excluding_runs=excluding_runs, excluding_workload=excluding_workload))

    def twice(
        self, *, excluding_runs: Collection[UUID] = (), excluding_workload: UUID | None = None
    ) -> Amount:
        """What `counted_twice` finds among the guests."""
        queues = [guests for guests in self.occupancies.values() if len(guests) > 1]
        return (
            counted_twice(queues, excluding_runs=excluding_runs, excluding_workload=excluding_workload)
            if queues
            else Amount()
        )


def snapshot_reading(organization_id: UUID, tier: str, *, excluding_workload: UUID | None = None) -> Reading:
    """What `read_snapshot` is made of, to be read with the rights under a node's lock.

    The disk of the workload `excluding_workload` is left out; prices are for that organization and tier.
    """
    return Reading(_SQL.format(node=LOCKED_NODE), (organization_id, tier, excluding_workload))


def read_snapshot(
    held: LockedNode, organization_id: UUID, tier: str, *, excluding_workload: UUID | None = None
) -> NodeSnapshot:
    """The locked node's facts: of what was read with its lock, or else read now; see `snapshot_reading`."""
    if held.read_result is not None:
        return _facts(held, held.read_result)
    # By its id: the transaction may have locked another since.
    ((found,),) = query(
        f"SELECT {_SQL.format(node='%s::uuid')}", (organization_id, tier, held.node.pk, excluding_workload)
    )
    return _facts(held, found)


def _facts(held: LockedNode, read: list[Any]) -> NodeSnapshot:
    heard, units, failed, holds, models, guests, claims, occupancies, disk_gb, cents = read
    known = {row[0]: _model(*row) for row in models or ()}
    there = {row[0]: _guest(row) for row in guests or ()}
    ids = {row[0]: _id(row[0]) for row in units or ()}
    kept = {row[0]: _held(held, row) for row in holds or ()}
    broken: dict[str, tuple[str, ...]] = {}
    for unit_id, address in failed or ():
        broken[unit_id] = (*broken.get(unit_id, ()), address)
    on_units: dict[UUID, tuple[Guest, ...]] = {}
    for unit_id, run_id in occupancies or ():
        guest = there.get(run_id) or _nobody(run_id)
        on_units[ids[unit_id]] = (*on_units.get(ids[unit_id], ()), guest)
    return NodeSnapshot(
        held=held,
        heard=heard,
        units=tuple(
            _unit(row, ids[row[0]], known[row[3]], broken.get(row[0], ()), kept.get(row[0]))
            for row in units or ()
        ),
        guests=tuple(there.values()),
        claims={ids[unit_id]: there.get(run_id) or _nobody(run_id) for unit_id, run_id in claims or ()},
        occupancies=on_units,
        disk_gb=disk_gb,
        cents={UUID(model_id): each for model_id, each in (cents or {}).items()},
    )


# One node is filled before the next, so most of its ids were just read.
_id = lru_cache(maxsize=4096)(UUID)


@lru_cache(maxsize=256)
def _model(model_id: str, name: str, manufacturer: str, vram_gb: int) -> GpuModel:
    return build_partial(GpuModel, _MODEL, (UUID(model_id), name, manufacturer, vram_gb))


def _guest(row: list[Any]) -> Guest:
    run_id, workload_id, mem_mb, vcpu, disk_gb, status, tier, created_at = row
    # Only of spot workloads it matters which is the younger.
    since = datetime.fromisoformat(created_at) if tier == SPOT else None
    return Guest(_id(run_id), _id(workload_id), mem_mb, vcpu, disk_gb, status, tier, since)


def _nobody(run_id: str) -> Guest:
    """The guest of a claim or occupancy whose run is closed: the unit is not free."""
    return Guest(UUID(run_id), UUID(int=0), None, None, 0, "")


def _unit(
    row: list[Any], unit_id: UUID, model: GpuModel, failed: tuple[str, ...], held: UnitHold | None
) -> SnapshotUnit:
    _, address, alloc_class, _, gpus, sellable, gone = row
    for_sale = sellable and not gone
    usable = for_sale and not failed and alloc_class in RESERVABLE_CLASSES
    return SnapshotUnit(unit_id, address, alloc_class, model, gpus, for_sale, gone, usable, failed, held)


def _held(held: LockedNode, row: list[Any]) -> UnitHold:
    _, hold_id, topology_gen, released, audience = row
    return UnitHold(
        UUID(hold_id),
        topology_gen == held.node.topology_gen,
        released,
        frozenset(UUID(organization_id) for organization_id in audience),
    )
