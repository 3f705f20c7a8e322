"""What nodes have to give, surveyed by one statement: for the whole fleet, or for some nodes.

The rules are those of `placement.standing`, counted rather than applied; the host's figures those of
`services.host`. In SQL, for a fleet is too much to carry to a web process.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from compute import states
from compute.capacity import (
    HOST_KEEPS_MB,
    HOST_KEEPS_PERCENT,
    OVERHEAD_FLAT_MB,
    OVERHEAD_LEAST_MB,
    OVERHEAD_PERCENT,
    Share,
    floor_mb,
    footprint_mb,
    share,
)
from compute.placement import sums
from nodes.models import GpuUnit, Node


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What one node has of one GPU model. Lists are sizes of units in GPUs, the smallest first.

    `structural` is what could be had at any tier if nothing were used, `sizes` what is free of it; the two
    `spot_` lists the same of what others put on the spot market. All are empty on a node that takes no work.
    """

    share: Share
    # Below zero where more is kept than there is.
    left_ram_mb: int | None
    left_vcpu: int | None
    left_disk_gb: int | None
    every: tuple[int, ...]  # whoever holds or uses them
    structural: tuple[int, ...]
    sizes: tuple[int, ...]
    spot_structural: tuple[int, ...]
    spot_sizes: tuple[int, ...]
    total: int
    shared_cpus: bool = False  # a host with fewer CPUs than GPUs shares them out

    def startable(self, sizes: Sequence[int], vram_gb: int, *, spot: bool = False) -> int:
        """Which GPU counts units of those sizes add up to that the host can start now, as a mask of `sums`.

        Each GPU wants its share of the CPUs and the least memory that its guest can have, out of its share;
        with `spot` also what is kept for those on the spot market. With a `vram_gb` of 0 memory is left out.
        """
        kept = sum(self.spot_sizes) if spot else 0
        most = sum(sizes)
        if self.left_vcpu is not None and self.share.vcpu and not self.shared_cpus:
            most = min(most, self.left_vcpu // self.share.vcpu + kept)
        if self.left_ram_mb is not None:
            left_mb = self.left_ram_mb + kept * (self.share.ram_budget_mb or 0)
            while most > 0 and footprint_mb(floor_mb(vram_gb, most)) > left_mb:
                most -= 1
        mask = sums(sizes) & ((2 << max(0, most)) - 1)
        each_mb = self.share.ram_budget_mb
        if each_mb is None or not vram_gb:
            return mask
        # What a guest takes beside its memory weighs the more the fewer GPUs it has.
        least = 1
        while least <= most and footprint_mb(floor_mb(vram_gb, least)) > each_mb * least:
            least += 1
        return mask & -(1 << least) | 1


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One node's offer of one GPU model to an organization, with what is reserved to it there."""

    node_id: UUID
    model_id: UUID
    shape: str
    own: bool
    own_sizes: tuple[int, ...]
    own_released: bool
    online: bool


@lru_cache(maxsize=4096)
def read(shape: str) -> NodeShape:
    """A shape as `SURVEY` spells it."""
    gpus, ram_mb, cpu_cores, disk_gb, left_ram, left_vcpu, left_disk, *lists, total = json.loads(shape)
    every, structural, sizes, spot_structural, spot_sizes = (tuple(sizes) for sizes in lists)
    return NodeShape(
        share=share(gpus=gpus, ram_mb=ram_mb, cpu_cores=cpu_cores, disk_total_gb=disk_gb),
        left_ram_mb=left_ram,
        left_vcpu=left_vcpu,
        left_disk_gb=left_disk,
        every=every,
        structural=structural,
        sizes=sizes,
        spot_structural=spot_structural,
        spot_sizes=spot_sizes,
        total=total,
        shared_cpus=bool(cpu_cores) and cpu_cores < gpus,
    )


_FOOTPRINT = (
    f"w.guest_mem_mb + {OVERHEAD_FLAT_MB}"
    f" + greatest({OVERHEAD_LEAST_MB}, (w.guest_mem_mb::bigint * {OVERHEAD_PERCENT} + 99) / 100)"
)
_ALLOCATABLE = (
    f"greatest(0, host.ram_mb - greatest({HOST_KEEPS_MB}, host.ram_mb * {HOST_KEEPS_PERCENT} / 100))"
)


def _kept(share: str) -> str:
    """What reserved GPUs need of the host where VMs without GPUs are, as `services.cpu_beside` keeps it."""
    return f"CASE WHEN taken.without_gpus THEN offer.others * ({share}) ELSE 0 END"


# {now}: the clock; {own}: whether the hold is kept for the organization; {which}: which nodes. Node by node,
# by index: statistics that lag behind the fleet cannot turn it into something that never ends.
SURVEY = f"""
SELECT host.id, offer.gpu_model_id, host.online,
       jsonb_build_array(
           offer.gpus, host.ram_mb, host.cpu_cores, host.disk_total_gb,
           CASE WHEN offered AND host.ram_mb IS NOT NULL
                THEN {_ALLOCATABLE} - coalesce(taken.ram_mb, 0)
                     - {_kept(_ALLOCATABLE + " / offer.gpus")} END,
           CASE WHEN offered AND host.cpu_cores IS NOT NULL
                THEN host.cpu_cores - coalesce(taken.vcpu, 0)
                     - {_kept("greatest(1, host.cpu_cores / offer.gpus)")} END,
           CASE WHEN offered AND host.disk_total_gb IS NOT NULL
                THEN greatest(0, least(
                    host.disk_total_gb - coalesce(taken.disk_gb, 0) - coalesce(disk.disk_gb, 0)
                    - {_kept("host.disk_total_gb / offer.gpus")},
                    host.disk_free_gb)) END,
           every, structural, sizes, spot_structural, spot_sizes, total)::text AS shape
       {{more}}
FROM (
    SELECT n.id, n.topology_gen, nullif(n.ram_mb, 0) AS ram_mb, nullif(n.cpu_cores, 0) AS cpu_cores,
           nullif(n.disk_total_gb, 0) AS disk_total_gb, n.disk_free_gb,
           coalesce(beat.seen_at > {{now}} - make_interval(secs => {{grace}}), false) AS online,
           n.owner_hold = '' AND n.terminate_at IS NULL AS open
    FROM nodes_node n LEFT JOIN nodes_nodeheartbeat beat ON beat.node_id = n.id
    WHERE n.removed_at IS NULL AND n.runtime = '{Node.Runtime.QEMU}' AND {{which}}
    OFFSET 0
) host
CROSS JOIN LATERAL (
    SELECT gpu_model_id, (sum(sum(gpus)) OVER ())::bigint AS gpus,
           (sum(coalesce(sum(gpus) FILTER (WHERE others AND NOT used), 0)) OVER ())::bigint AS others,
           array_agg(gpus ORDER BY gpus) AS every,
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE placeable AND anywhere), '{{{{}}}}')
               AS structural,
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE placeable AND anywhere AND free), '{{{{}}}}')
               AS sizes,
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE placeable AND on_market), '{{{{}}}}')
               AS spot_structural,
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE placeable AND on_market AND free), '{{{{}}}}')
               AS spot_sizes,
           coalesce(sum(gpus) FILTER (WHERE placeable AND anywhere AND (free OR used)), 0) AS total,
           coalesce(bool_or(placeable AND (anywhere OR on_market)), false) AS offered,
           coalesce(bool_or(placeable AND own), false) AS own,
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE placeable AND own AND free), '{{{{}}}}')
               AS own_sizes,
           coalesce(bool_or(own AND released), false) AS own_released
    FROM (
        SELECT unit.gpu_model_id, unit.gpus, host.online AND host.open AS placeable, unit.used,
               NOT unit.used AND NOT unit.broken AS free,
               held.active IS NULL OR (held.active AND held.own) AS anywhere,
               coalesce(held.active AND held.own, false) AS own,
               held.active IS NOT NULL AND NOT (held.active AND held.own) AS others,
               coalesce(held.active AND held.released AND NOT held.own, false) AS on_market,
               coalesce(held.released, false) AS released
        FROM (
            SELECT u.id, u.gpu_model_id, u.gpu_count AS gpus,
                   EXISTS (SELECT FROM compute_claim c WHERE c.unit_id = u.id)
                   OR EXISTS (SELECT FROM compute_occupancy o WHERE o.unit_id = u.id AND o.closed_at IS NULL)
                       AS used,
                   EXISTS (SELECT FROM nodes_gpu g WHERE g.unit_id = u.id AND g.failed_at IS NOT NULL)
                       AS broken
            FROM nodes_gpuunit u
            WHERE u.node_id = host.id AND u.gone_at IS NULL AND u.sellable
              AND u.alloc_class = '{GpuUnit.VFIO_GROUP}'
            OFFSET 0
        ) unit
        LEFT JOIN LATERAL (
            SELECT hu.released, h.topology_gen = host.topology_gen AS active, {{own}} AS own
            FROM nodes_holdunit hu JOIN nodes_hold h ON h.id = hu.hold_id
            WHERE hu.unit_id = unit.id AND hu.term @> {{now}}
            OFFSET 0
        ) held ON true
    ) each_unit
    GROUP BY gpu_model_id
) offer
LEFT JOIN LATERAL (
    SELECT sum(CASE WHEN w.guest_mem_mb > 0 THEN {_FOOTPRINT} ELSE 0 END) AS ram_mb,
           sum(coalesce(w.guest_vcpu, 0)) AS vcpu, bool_or(w.gpu_count = 0) AS without_gpus,
           sum(w.disk_size_gb) FILTER (WHERE w.status = '{states.TERMINATED}') AS disk_gb
    FROM compute_run r JOIN compute_workload w ON w.id = r.workload_id
    WHERE r.node_id = host.id AND r.closed_at IS NULL
) taken ON true
LEFT JOIN LATERAL (
    SELECT sum(w.disk_size_gb) AS disk_gb FROM compute_workload w
    WHERE w.node_id = host.id AND w.status <> '{states.TERMINATED}'
) disk ON true
"""  # noqa: S608  (constants of our own)


def survey_sql(*, some: bool, organization: bool, more: bool = False) -> str:
    """The statement for the whole fleet or for `%(nodes)s`, as seen by `%(org)s` or by nobody in particular.

    With `more` it also says what is reserved to the organization.
    """
    own = (
        "EXISTS (SELECT FROM nodes_holdaudience a WHERE a.hold_id = h.id AND a.organization_id = %(org)s)"
        if organization
        else "false"
    )
    return SURVEY.format(
        now=settings.CLOCK_SQL,
        grace=settings.NODE_OFFLINE_GRACE_SECONDS,
        own=own,
        which="n.id = ANY(%(nodes)s)" if some else "true",
        more=", offer.own, own_sizes, own_released" if more else "",
    )


def survey_nodes(organization_id: UUID, node_ids: Sequence[UUID] | None) -> list[Surveyed]:
    """What those nodes, or all, offer to that organization now, in one query."""
    with connection.cursor() as cursor:
        cursor.execute(
            survey_sql(some=node_ids is not None, organization=True, more=True),
            {"org": organization_id, "nodes": list(node_ids or ())},
        )
        return [_surveyed(row) for row in cursor.fetchall()]


def _surveyed(row: tuple[Any, ...]) -> Surveyed:
    node_id, model_id, online, shape, own, own_sizes, own_released = row
    return Surveyed(node_id, model_id, shape, own, tuple(own_sizes), own_released, online)
