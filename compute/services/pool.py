"""The public pool: units that a request without a named node may be placed on, read without any lock."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db import connection
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value

from compute.capacity import Share, share
from compute.models import Claim, Occupancy, Tier
from compute.placement import Fit, fit
from nodes.models import Gpu, GpuUnit, HoldAudience, HoldUnit, Node
from nodes.querysets import Moment


class Candidate(NamedTuple):
    """A node with the sizes of its open units of one GPU model; `on_market` are those open to spot alone."""

    node_id: UUID
    model_id: UUID
    region: str | None
    sizes: tuple[int, ...]
    on_market: tuple[int, ...] = ()

    @property
    def free(self) -> int:
        """How many GPUs of the model are open there."""
        return sum(self.sizes) + sum(self.on_market)

    def fit(self, gpu_count: int) -> Fit | None:
        """How well the node suits a request for so many GPUs, as `placement.fit` has it."""
        return fit(self.sizes, self.on_market, gpu_count)


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a node could give if nothing ran on it: the sizes of its units of one model, and its host's
    figures.
    """

    model_id: UUID
    vram_gb: int
    sizes: tuple[int, ...]
    share: Share
    node_gpus: int


# Which nodes run what the units of a class are for: VMs, or pods.
RUNTIME_OF: Final = {
    GpuUnit.VFIO_GROUP: Node.Runtime.QEMU,
    GpuUnit.DEVICE_REQUEST: Node.Runtime.RUNC,
}


def units_of(alloc_class: str) -> QuerySet[GpuUnit]:
    """Units of that class that are for sale, on whatever node."""
    units: QuerySet[GpuUnit] = GpuUnit.objects.present().filter(sellable=True, alloc_class=alloc_class)
    return units


def unused() -> Q:
    """The filter for units that nobody claims, that no guest may be on, and whose GPUs are healthy."""
    return Q(
        ~Exists(Claim.objects.filter(unit=OuterRef("pk")))
        & ~Exists(Occupancy.objects.open().filter(unit=OuterRef("pk")))
        & ~Exists(Gpu.objects.filter(unit=OuterRef("pk"), failed_at__isnull=False))
    )


def candidates(
    *,
    organization_id: UUID,
    tier: str,
    at: Moment,
    models: QuerySet[Any] | Sequence[UUID],
    alloc_class: str = GpuUnit.VFIO_GROUP,
    also: Q | None = None,
) -> list[Candidate]:
    """Nodes with open units of any of `models`, one entry a node and model, in one query.

    What is reserved is not open, but for a spot request what is on the spot market now; and never what is
    reserved to the caller's own organization. `also` is a further condition on units.
    """
    in_term = HoldUnit.objects.in_term(at).filter(unit=OuterRef("pk"))
    withheld = in_term
    reserved: Value | Exists = Value(False)
    if tier == Tier.SPOT:
        own = HoldAudience.objects.filter(hold=OuterRef("hold"), organization_id=organization_id)
        withheld = in_term.exclude(
            Q(released=True, hold__topology_gen=F("hold__node__topology_gen")) & ~Exists(own)
        )
        reserved = Exists(in_term)
    rows = (
        units_of(alloc_class)
        .filter(unused() & ~Exists(withheld) & (also or Q()), gpu_model__in=models)
        .filter(node__in=Node.objects.taking_new_work(at).filter(runtime=RUNTIME_OF[alloc_class]))
        .order_by()
        .annotate(reserved=reserved)
        .values("node_id", "gpu_model_id", "node__location__region")
        .annotate(
            sizes=ArrayAgg("gpu_count", filter=Q(reserved=False), default=Value([])),
            on_market=ArrayAgg("gpu_count", filter=Q(reserved=True), default=Value([])),
        )
    )
    return [
        Candidate(
            row["node_id"],
            row["gpu_model_id"],
            row["node__location__region"],
            tuple(row["sizes"]),
            tuple(row["on_market"]),
        )
        for row in rows
    ]


def best_first(
    candidates: Iterable[Candidate], gpu_count: int, regions: frozenset[str] = frozenset()
) -> list[Candidate]:
    """Those that fit so many GPUs, the best fit first; those outside `regions`, if any are named, last."""
    fitting = [
        ((bool(regions) and node.region not in regions, how, node.node_id, node.model_id), node)
        for node in candidates
        if (how := node.fit(gpu_count)) is not None
    ]
    return [node for _, node in sorted(fitting, key=itemgetter(0))]


def hardware(
    *, alloc_class: str = GpuUnit.VFIO_GROUP, node_id: UUID | None = None, regions: Sequence[str] = ()
) -> list[Hardware]:
    """What nodes could ever give, whoever holds or runs what, in one query: alike nodes are one entry."""
    with connection.cursor() as cursor:
        cursor.execute(
            _HARDWARE,
            {
                "class": alloc_class,
                "runtime": RUNTIME_OF[alloc_class],
                "node": node_id,
                "regions": list(regions) or None,
            },
        )
        rows = cursor.fetchall()
    return [
        Hardware(
            model_id,
            vram_gb,
            tuple(sizes),
            share(gpus=gpus, ram_mb=ram_mb, cpu_cores=cpu_cores, disk_total_gb=disk_total_gb),
            gpus,
        )
        for model_id, vram_gb, sizes, gpus, ram_mb, cpu_cores, disk_total_gb in rows
    ]


# By hand, for a fleet's nodes are told apart by the database and not carried here.
_HARDWARE = """
SELECT DISTINCT node.gpu_model_id, model.vram_gb, node.sizes, node.gpus::int, node.ram_mb, node.cpu_cores,
       node.disk_total_gb
FROM (
    SELECT unit.gpu_model_id, array_agg(unit.gpu_count ORDER BY unit.gpu_count) AS sizes,
           sum(sum(unit.gpu_count)) OVER (PARTITION BY node.id) AS gpus,
           node.ram_mb, node.cpu_cores, node.disk_total_gb
    FROM nodes_node node
    JOIN nodes_gpuunit unit ON unit.node_id = node.id
        AND unit.gone_at IS NULL AND unit.sellable AND unit.alloc_class = %(class)s
    LEFT JOIN nodes_location location ON location.id = node.location_id
    WHERE node.removed_at IS NULL AND node.runtime = %(runtime)s
        AND (%(node)s::uuid IS NULL OR node.id = %(node)s::uuid)
        AND (%(regions)s::text[] IS NULL OR location.region = ANY(%(regions)s::text[]))
    GROUP BY node.id, unit.gpu_model_id
) node
JOIN nodes_gpumodel model ON model.id = node.gpu_model_id
"""
