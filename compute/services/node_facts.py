"""All that placing on a node goes by, read under its lock in one question.

The question is a function in the database, where its plan is kept: everybody waits for it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings

from compute.placement import Use
from compute.services.host import Guest, Left, left
from nodes.models import GpuModel, GpuUnit
from nodes.services.locking import LockedNode
from nodes.services.survey import Held, UnitFacts
from openrelay.rows import Reading, partly, query

# With the hourly cents of a GPU for an organization at a tier, by model.
_SQL = f"""(
    SELECT json_build_array(heard, units, models, guests, disk_gb, (
        SELECT json_object_agg(sold.gpu_model_id, coalesce(own.cents_per_gpu_hour, sold.cents_per_gpu_hour))
        FROM compute_gpuprice sold
        LEFT JOIN compute_orggpuprice own ON own.organization_id = %s::uuid
            AND own.gpu_model_id = sold.gpu_model_id AND own.tier = sold.tier
        WHERE sold.tier = %s
    ))
    FROM compute_on_node(%s::uuid, {settings.CLOCK_SQL},
                         interval '{settings.NODE_OFFLINE_GRACE_SECONDS} seconds', %s::uuid)
)"""  # noqa: S608  (settings)
_UNIT = (
    "id",
    "address",
    "alloc_class",
    "gpu_model_id",
    "gpu_count",
    "sellable",
    "not_sellable_reason",
    "gone_at",
)
_MODEL = ("id", "name", "manufacturer", "vram_gb")


@dataclass(frozen=True, slots=True)
class Claimed:
    """Who claims a unit; `since` is when that workload was created."""

    workload_id: UUID
    tier: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Occupied:
    """A run that may be on a unit."""

    run_id: UUID
    workload_id: UUID


@dataclass(frozen=True)
class NodeFacts:
    """A node at one moment. Claims are by unit, occupancies too, the earliest first."""

    held: LockedNode
    heard: bool  # from, within the grace
    units: tuple[UnitFacts, ...]  # by address
    claims: dict[UUID, Claimed]
    occupancies: dict[UUID, tuple[Occupied, ...]]
    guests: tuple[Guest, ...]
    disk_gb: int  # of the disks of workloads that are not terminated
    cents: dict[UUID, int]  # of an hour of one GPU, by model, where it is sold

    def uses(self, *, but: UUID | None = None) -> dict[UUID, Use]:
        """What is on each used unit, as if the workload `but` were not there."""
        found = {
            unit_id: Use(occupied=True)
            for unit_id, rows in self.occupancies.items()
            if any(row.workload_id != but for row in rows)
        }
        for unit_id, row in self.claims.items():
            if row.workload_id != but:
                found[unit_id] = Use(unit_id in found, row.workload_id, row.tier, row.since)
        return found

    def left(self, *, but: Collection[UUID], without: UUID | None) -> Left:
        """What the host has left, as if the runs in `but` were over and the workload `without` not there."""
        return left(self.held.node, self.guests, self.disk_gb, but=but, without=without)


def reading(node_id: UUID, organization_id: UUID, tier: str, *, without: UUID | None = None) -> Reading:
    """What `node_facts` is made of, to be read with the rights under the node's lock.

    The disk of the workload `without` is left out; prices are for that organization and tier.
    """
    return Reading(_SQL, (organization_id, tier, node_id, without))


def node_facts(
    held: LockedNode, organization_id: UUID, tier: str, *, without: UUID | None = None
) -> NodeFacts:
    """The locked node's facts: of what was read with its lock, or else read now; see `reading`."""
    if held.read is not None:
        return _facts(held, held.read)
    asked = reading(held.node.pk, organization_id, tier, without=without)
    ((found,),) = query(f"SELECT {asked.sql}", asked.params)
    return _facts(held, found)


def _facts(held: LockedNode, read: list[Any]) -> NodeFacts:
    heard, units, models, guests, disk_gb, cents = read
    known = {row[0]: partly(GpuModel, _MODEL, [UUID(row[0]), *row[1:]]) for row in models or ()}
    found = []
    claims: dict[UUID, Claimed] = {}
    occupancies: dict[UUID, tuple[Occupied, ...]] = {}
    for row in units or ():
        unit = _unit(row, known[row[3]])
        failed, hold, claim, runs = row[8:]
        found.append(UnitFacts(unit, tuple(failed or ()), _held(held, hold) if hold else None))
        if claim:
            claims[unit.pk] = Claimed(UUID(claim[0]), claim[1], datetime.fromisoformat(claim[2]))
        if runs:
            occupancies[unit.pk] = tuple(Occupied(UUID(run), UUID(workload)) for run, workload in runs)
    return NodeFacts(
        held,
        heard,
        tuple(found),
        claims,
        occupancies,
        tuple(Guest(UUID(run), UUID(workload), *given) for run, workload, *given in guests or ()),
        disk_gb,
        {UUID(model): each for model, each in (cents or {}).items()},
    )


def _unit(row: list[Any], model: GpuModel) -> GpuUnit:
    unit_id, address, alloc_class, _, gpus, sellable, reason, gone_at = row[:8]
    gone = datetime.fromisoformat(gone_at) if gone_at else None
    unit = partly(
        GpuUnit, _UNIT, [UUID(unit_id), address, alloc_class, model.pk, gpus, sellable, reason, gone]
    )
    unit.gpu_model = model
    return unit


def _held(held: LockedNode, row: list[Any]) -> Held:
    hold_id, topology_gen, released, audience = row
    return Held(
        UUID(hold_id),
        topology_gen == held.node.topology_gen,
        released,
        frozenset(UUID(organization_id) for organization_id in audience),
    )
