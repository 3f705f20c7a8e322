"""A scan of the public pool: the units that a request without a named node may use, read without a lock."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection

from compute.domain.host_shares import GpuShare, gpu_share
from compute.domain.selection import Fit, fit
from compute.models import Tier
from nodes.models import GpuUnit, Node


class Candidate(NamedTuple):
    """A node with the sizes of its open units of one GPU model; those `on_market` are open to spot alone."""

    node_id: UUID
    model_id: UUID
    sizes: tuple[int, ...]
    on_market: tuple[int, ...] = ()

    def fit(self, gpu_count: int) -> Fit | None:
        """How well the node suits a request for that many GPUs; see `selection.fit`."""
        return fit(self.sizes, self.on_market, gpu_count)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one region with open units of one GPU model, of the same sizes on each of them."""

    model_id: UUID
    region: str | None
    sizes: tuple[int, ...]
    on_market: tuple[int, ...]
    node_ids: list[UUID]

    @property
    def free(self) -> int:
        """How many GPUs of the model are open on each."""
        return sum(self.sizes) + sum(self.on_market)

    def fit(self, gpu_count: int) -> Fit | None:
        """How well each of the nodes suits a request for that many GPUs; see `selection.fit`."""
        return fit(self.sizes, self.on_market, gpu_count)


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a node could give an organization if nothing ran on it: the sizes of the units of one model that
    the organization may ever use, possibly none, and the host's figures.
    """

    model_id: UUID
    vram_gb: int
    sizes: tuple[int, ...]
    share: GpuShare
    node_gpus: int


# Which nodes run what the units of a class are for: VMs, or pods.
RUNTIME_OF: Final = {
    GpuUnit.VFIO_GROUP: Node.Runtime.QEMU,
    GpuUnit.DEVICE_REQUEST: Node.Runtime.RUNC,
}


def candidates(
    *,
    organization_id: UUID,
    tier: str,
    levels: Mapping[UUID, int],
    alloc_class: str = GpuUnit.VFIO_GROUP,
    among: Collection[UUID] | None = None,
    regions: Collection[str] = (),
) -> list[NodeGroup]:
    """Nodes with open units of GPU models, in groups of equal nodes. One query.

    `levels` has the models, and for each the level that a node's agent must have. Reserved units are not
    open. Released units are open to a spot request, except units reserved to its own organization. Only nodes
    `among` those and in `regions`, where either is given.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _OPEN,
            {
                "class": alloc_class,
                "runtime": RUNTIME_OF[alloc_class],
                "models": list(levels),
                "levels": list(levels.values()),
                "among": None if among is None else list(among),
                "regions": list(regions) or None,
                "buyer": organization_id if tier == Tier.SPOT else None,
            },
        )
        rows = cursor.fetchall()
    return [
        NodeGroup(model_id, region, tuple(sizes), tuple(on_market), nodes)
        for model_id, region, sizes, on_market, nodes in rows
    ]


_OPEN = f"""
SELECT gpu_model_id, region, sizes, on_market, nodes
FROM compute_open_pool(
    %(class)s, %(runtime)s, %(models)s::uuid[], %(levels)s::integer[], %(among)s::uuid[], %(regions)s::text[],
    %(buyer)s::uuid, {settings.CLOCK_SQL}, make_interval(secs => {settings.NODE_OFFLINE_GRACE_SECONDS})
)
"""  # noqa: S608  (constants of our own)


def best_first(
    candidates: Iterable[NodeGroup], gpu_count: int, regions: frozenset[str] = frozenset()
) -> Iterator[Candidate]:
    """The candidates that fit that many GPUs, the best fit first; those outside `regions` last.

    Candidates are sorted only as far as the caller iterates: it uses very few of a fleet.
    """
    fitting: dict[tuple[bool, Fit], list[NodeGroup]] = {}
    for alike in candidates:
        if (how := alike.fit(gpu_count)) is not None:
            fitting.setdefault((bool(regions) and alike.region not in regions, how), []).append(alike)
    for well in sorted(fitting):
        # Numbers, for ids compare more slowly.
        nodes = [
            (node_id.int, alike.model_id.int, node_id, alike)
            for alike in fitting[well]
            for node_id in alike.node_ids
        ]
        for _, _, node_id, alike in sorted(nodes, key=itemgetter(0, 1)):
            yield Candidate(node_id, alike.model_id, alike.sizes, alike.on_market)


def hardware(
    organization_id: UUID,
    *,
    alloc_class: str = GpuUnit.VFIO_GROUP,
    node_id: UUID | None = None,
    regions: Sequence[str] = (),
) -> list[Hardware]:
    """What nodes could ever give that organization, whatever runs there; equal nodes are one entry.

    Units with a failed GPU are left out, and so are units reserved to others, unless they are released. A pod
    names no node and is never spot, so it cannot use a reserved unit.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _HARDWARE,
            {
                "class": alloc_class,
                "runtime": RUNTIME_OF[alloc_class],
                "node": node_id,
                "regions": list(regions) or None,
                "org": organization_id if alloc_class == GpuUnit.VFIO_GROUP else None,
            },
        )
        rows = cursor.fetchall()
    return [
        Hardware(
            model_id,
            vram_gb,
            tuple(sizes),
            gpu_share(gpus=gpus, ram_mb=ram_mb, cpu_cores=cpu_cores, disk_total_gb=disk_total_gb),
            gpus,
        )
        for model_id, vram_gb, sizes, gpus, ram_mb, cpu_cores, disk_total_gb in rows
    ]


# By hand, for a fleet's nodes are told apart by the database and not carried here.
_HARDWARE = f"""
SELECT DISTINCT node.gpu_model_id, model.vram_gb, node.sizes, node.gpus::int, node.ram_mb, node.cpu_cores,
       node.disk_total_gb
FROM (
    SELECT unit.gpu_model_id, coalesce(array_agg(unit.gpu_count ORDER BY unit.gpu_count)
               FILTER (WHERE NOT broken.unit AND coalesce(held.possible, true)), '{{}}') AS sizes,
           sum(sum(unit.gpu_count)) OVER (PARTITION BY node.id) AS gpus,
           node.ram_mb, node.cpu_cores, node.disk_total_gb
    FROM nodes_node node
    JOIN nodes_gpuunit unit ON unit.node_id = node.id
        AND unit.gone_at IS NULL AND unit.sellable AND unit.alloc_class = %(class)s
    CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT FROM nodes_gpu g WHERE g.unit_id = unit.id AND g.failed_at IS NOT NULL) AS unit
    ) broken
    LEFT JOIN LATERAL (
        SELECT %(org)s::uuid IS NOT NULL AND (
                   EXISTS (
                       SELECT FROM nodes_holdaudience a
                       WHERE a.hold_id = h.id AND a.organization_id = %(org)s::uuid)
                   OR (hu.released AND h.topology_gen = node.topology_gen)) AS possible
        FROM nodes_holdunit hu JOIN nodes_hold h ON h.id = hu.hold_id
        WHERE hu.unit_id = unit.id AND hu.term @> {settings.CLOCK_SQL}
    ) held ON true
    LEFT JOIN nodes_location location ON location.id = node.location_id
    WHERE node.removed_at IS NULL AND node.runtime = %(runtime)s
        AND (%(node)s::uuid IS NULL OR node.id = %(node)s::uuid)
        AND (%(regions)s::text[] IS NULL OR location.region = ANY(%(regions)s::text[]))
    GROUP BY node.id, unit.gpu_model_id
) node
JOIN nodes_gpumodel model ON model.id = node.gpu_model_id
"""  # noqa: S608  (a setting)
