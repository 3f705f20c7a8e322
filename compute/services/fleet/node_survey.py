"""The node survey: what each node has free of each GPU model, read by one statement for all nodes or some.

The statement counts units by the rules of `eligibility.judge_unit` and host figures by those of
`domain.host_usage`. It is SQL because the rows of a whole fleet are too many to send to a web process.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from compute.domain import states
from compute.domain.host_shares import (
    HOST_KEEPS_MB,
    HOST_KEEPS_PERCENT,
    MIN_DISK_GB,
    OVERHEAD_FLAT_MB,
    OVERHEAD_LEAST_MB,
    OVERHEAD_PERCENT,
    GpuShare,
    floor_mb,
    footprint_mb,
    gpu_share,
)
from compute.domain.selection import list_totals, reachable_totals
from nodes.models import GpuUnit, Node


@dataclass(frozen=True, slots=True)
class Figures:
    """MiB, CPUs and GB of a host; None where the node reported nothing: that does not constrain."""

    ram_mb: int | None
    vcpu: int | None
    disk_gb: int | None


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What one node has of one GPU model. Lists are sizes of units in GPUs, the smallest first.

    `possible` is what the organization that the survey was made for could ever be given: units that nobody
    reserved, that are reserved to it, or that others put on the spot market. The other lists are empty on a
    node that takes no work. `structural` is what could be had at any tier if nothing were used, `sizes` what
    is free of it, `own` what of that is reserved to the organization; the two `spot_` lists are the same of
    what others put on the spot market. A unit with a failed GPU is in no list. Of what guests leave (`left`),
    `kept` is for others' reserved units, where there are VMs without GPUs, as `services.cpu_beside` has it.
    """

    share: GpuShare
    left: Figures
    kept: Figures
    disk_free_gb: int | None
    possible: tuple[int, ...]
    structural: tuple[int, ...]
    sizes: tuple[int, ...]
    own: tuple[int, ...]
    spot_structural: tuple[int, ...]
    spot_sizes: tuple[int, ...]
    total: int
    shared_cpus: bool = False  # a host with fewer CPUs than GPUs shares them out

    @property
    def open(self) -> tuple[int, ...]:
        """The sizes of the free units that are not reserved."""
        if not self.own:
            return self.sizes
        return tuple(sorted((Counter(self.sizes) - Counter(self.own)).elements()))

    def free(self) -> Figures:
        """What remains for an organization without reservations there; below zero where more is kept."""
        return self._left(0, 0)

    def startable(
        self,
        vram_gb: int,
        *,
        open_sizes: tuple[int, ...] = (),
        own: tuple[int, ...] = (),
        on_market: tuple[int, ...] = (),
    ) -> int:
        """The GPU counts that those units add up to and the host can start now, a mask of `reachable_totals`.

        Each GPU needs its share of the CPUs, and a guest needs the least memory and disk that it can have.
        With a `vram_gb` of 0 memory does not count.
        """
        return _startable(self, vram_gb, open_sizes, own, on_market)

    def tilings(
        self, *, open_sizes: Sequence[int] = (), own: Sequence[int] = (), on_market: Sequence[int] = ()
    ) -> Iterator[tuple[int, Figures]]:
        """The GPU counts that those units add up to, the largest first, each with what remains for it."""
        both = [*on_market, *open_sizes]
        masks = (
            reachable_totals(own),
            reachable_totals(both),
            reachable_totals(on_market),
            reachable_totals(open_sizes),
        )
        for count in reversed(list_totals(reachable_totals([*own, *both]))):
            # As `selection.choose` does it: what is reserved to oneself first, then the market.
            rest = _least(count, masks[0], masks[1], sum(own))
            market = rest - _least(rest, masks[2], masks[3], sum(on_market))
            yield count, self._left(market, count - rest)

    def starts(self, count: int, vram_gb: int, left: Figures) -> bool:
        """Whether the smallest guest with that many GPUs fits into that."""
        if left.vcpu is not None and not self.shared_cpus and (self.share.vcpu or 0) * count > left.vcpu:
            return False
        if any(disk is not None and disk < MIN_DISK_GB for disk in (left.disk_gb, self.disk_free_gb)):
            return False
        if not vram_gb:
            return True
        memory = footprint_mb(floor_mb(vram_gb, count))
        # What a guest takes beside its memory weighs the more the fewer GPUs it has.
        each_mb = self.share.ram_budget_mb
        return (each_mb is None or memory <= each_mb * count) and (
            left.ram_mb is None or memory <= left.ram_mb
        )

    def _left(self, market: int, own: int) -> Figures:
        """What remains for a guest on that many released GPUs, and that many reserved to it."""
        return Figures(
            _for_held(self.left.ram_mb, self.kept.ram_mb, self.share.ram_budget_mb, market, own),
            _for_held(self.left.vcpu, self.kept.vcpu, self.share.vcpu, market, own),
            _for_held(self.left.disk_gb, self.kept.disk_gb, self.share.disk_gb, market, own),
        )


# Of whoever has reservations the same few nodes are asked for again and again.
@lru_cache(maxsize=4096)
def _startable(
    shape: NodeShape,
    vram_gb: int,
    open_sizes: tuple[int, ...],
    own: tuple[int, ...],
    on_market: tuple[int, ...],
) -> int:
    found = 1
    for count, left in shape.tilings(open_sizes=open_sizes, own=own, on_market=on_market):
        if shape.starts(count, vram_gb, left):
            found |= 1 << count
    return found


def _least(count: int, first: int, last: int, most: int) -> int:
    """The least part of the count, at most `most`, that `last` reaches while `first` reaches the rest."""
    return next(
        rest
        for rest in range(max(0, count - most), count + 1)
        if last >> rest & 1 and first >> count - rest & 1
    )


def _for_held(left: int | None, kept: int | None, part: int | None, market: int, own: int) -> int | None:
    """The part of a figure for released GPUs and for GPUs reserved to the request, whatever others keep."""
    if left is None or kept is None:
        return left
    each = part or 0
    return max(left - kept + each * market, min(left, each * (market + own)))


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One node's row of the survey for an organization, with what is reserved to the organization there."""

    node_id: UUID
    model_id: UUID
    shape: str
    own: bool
    own_sizes: tuple[int, ...]
    own_released: bool
    online: bool


@lru_cache(maxsize=4096)
def read(shape: str) -> NodeShape:
    """The shape that `SURVEY` wrote as JSON."""
    gpus, ram_mb, cpu_cores, disk_gb, left, kept, disk_free_gb, *lists, total = json.loads(shape)
    possible, structural, sizes, own, spot_structural, spot_sizes = (tuple(sizes) for sizes in lists)
    return NodeShape(
        share=gpu_share(gpus=gpus, ram_mb=ram_mb, cpu_cores=cpu_cores, disk_total_gb=disk_gb),
        left=Figures(*left),
        kept=Figures(*kept),
        disk_free_gb=disk_free_gb,
        possible=possible,
        structural=structural,
        sizes=sizes,
        own=own,
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
    "CASE WHEN host.ram_mb IS NOT NULL THEN greatest(0, host.ram_mb"
    f" - greatest({HOST_KEEPS_MB}, host.ram_mb * {HOST_KEEPS_PERCENT} / 100)) END"
)


_RAM, _CPUS, _DISK = (
    f"(({_ALLOCATABLE}) / offer.gpus)",
    "greatest(1, host.cpu_cores / offer.gpus)",
    "(host.disk_total_gb / offer.gpus)",
)
# What a guest has of its host while it is there.
_TAKES = f"""
    SELECT r.id AS run_id, w.status, CASE WHEN w.guest_mem_mb > 0 THEN {_FOOTPRINT} ELSE 0 END AS ram_mb,
           coalesce(w.guest_vcpu, 0) AS vcpu, w.disk_size_gb AS disk_gb
    FROM compute_run r JOIN compute_workload w ON w.id = r.workload_id
    WHERE r.node_id = host.id AND r.closed_at IS NULL
"""  # noqa: S608  (constants of our own)
_UNITS_FOR_SALE = f"u.gone_at IS NULL AND u.sellable AND u.alloc_class = '{GpuUnit.VFIO_GROUP}'"


# {now}: the clock; {own}: whether the hold is kept for the organization; {which}: which nodes. Node by node,
# by index: statistics that lag behind the fleet cannot turn it into something that never ends.
SURVEY = f"""
SELECT host.id, offer.gpu_model_id, host.online,
       jsonb_build_array(
           offer.gpus, host.ram_mb, host.cpu_cores, host.disk_total_gb,
           jsonb_build_array(
               CASE WHEN offered THEN ({_ALLOCATABLE}) - coalesce(taken.ram_mb, 0)
                    + coalesce(twice.ram_mb, 0) END,
               CASE WHEN offered THEN host.cpu_cores - coalesce(taken.vcpu, 0) + coalesce(twice.vcpu, 0) END,
               CASE WHEN offered THEN host.disk_total_gb - coalesce(taken.disk_gb, 0)
                    - coalesce(disk.disk_gb, 0) + coalesce(twice.disk_gb, 0) END),
           CASE WHEN offered AND taken.without_gpus THEN jsonb_build_array(
               offer.others * {_RAM} + coalesce(rest.ram_mb, 0),
               offer.others * {_CPUS} + coalesce(rest.vcpu, 0),
               offer.others * {_DISK} + coalesce(rest.disk_gb, 0))
               ELSE '[null, null, null]' END,
           CASE WHEN offered THEN host.disk_free_gb END,
           possible, structural, sizes, own_sizes, spot_structural, spot_sizes, total)::text AS shape
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
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE possible), '{{{{}}}}') AS possible,
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE placeable AND anywhere AND NOT broken),
                    '{{{{}}}}') AS structural,
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE placeable AND anywhere AND free), '{{{{}}}}')
               AS sizes,
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE placeable AND on_market AND NOT broken),
                    '{{{{}}}}') AS spot_structural,
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE placeable AND on_market AND free), '{{{{}}}}')
               AS spot_sizes,
           coalesce(sum(gpus) FILTER (WHERE placeable AND anywhere AND NOT broken), 0) AS total,
           coalesce(bool_or(placeable AND (anywhere OR on_market)), false) AS offered,
           coalesce(bool_or(placeable AND own), false) AS own,
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE placeable AND own AND free), '{{{{}}}}')
               AS own_sizes,
           coalesce(bool_or(own AND released), false) AS own_released
    FROM (
        SELECT unit.gpu_model_id, unit.gpus, host.online AND host.open AS placeable, unit.used, unit.broken,
               NOT unit.used AND NOT unit.broken AS free,
               NOT unit.broken AND (
                   held.active IS NULL OR held.own OR (held.active AND held.released)
               ) AS possible,
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
            WHERE u.node_id = host.id AND {_UNITS_FOR_SALE}
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
           bool_or(w.status = '{states.PENDING}') AS waits,
           sum(w.disk_size_gb) FILTER (WHERE w.status = '{states.TERMINATED}') AS disk_gb
    FROM compute_run r JOIN compute_workload w ON w.id = r.workload_id
    WHERE r.node_id = host.id AND r.closed_at IS NULL
) taken ON true
LEFT JOIN LATERAL (
    SELECT sum(w.disk_size_gb) AS disk_gb FROM compute_workload w
    WHERE w.node_id = host.id AND w.status <> '{states.TERMINATED}'
) disk ON true
LEFT JOIN LATERAL (
    SELECT sum(greatest(0, guest.gpus * {_RAM} - guest.ram_mb)) AS ram_mb,
           sum(greatest(0, guest.gpus * {_CPUS} - guest.vcpu)) AS vcpu,
           sum(greatest(0, guest.gpus * {_DISK} - guest.disk_gb)) AS disk_gb
    FROM (
        SELECT CASE WHEN w.guest_mem_mb > 0 THEN {_FOOTPRINT} ELSE 0 END AS ram_mb,
               coalesce(w.guest_vcpu, 0) AS vcpu, w.disk_size_gb AS disk_gb,
               (SELECT coalesce(sum(u.gpu_count), 0)
                FROM compute_occupancy o JOIN nodes_gpuunit u ON u.id = o.unit_id
                WHERE o.run_id = r.id AND o.closed_at IS NULL AND {_UNITS_FOR_SALE} AND EXISTS (
                    SELECT FROM nodes_holdunit hu JOIN nodes_hold h ON h.id = hu.hold_id
                    WHERE hu.unit_id = u.id AND hu.term @> {{now}}
                      AND NOT (h.topology_gen = host.topology_gen AND {{own}}))) AS gpus
        FROM compute_run r JOIN compute_workload w ON w.id = r.workload_id
        WHERE r.node_id = host.id AND r.closed_at IS NULL
        OFFSET 0
    ) guest
    WHERE taken.without_gpus
) rest ON true
LEFT JOIN LATERAL (
    SELECT sum(least(ram_mb, first_ram_mb)) AS ram_mb, sum(least(vcpu, first_vcpu)) AS vcpu,
           sum(least(disk_gb, first_disk_gb)) AS disk_gb
    FROM (
        SELECT comes.ram_mb, comes.vcpu, comes.disk_gb, sum(goes.ram_mb) AS first_ram_mb,
               sum(goes.vcpu) AS first_vcpu,
               coalesce(sum(goes.disk_gb) FILTER (WHERE goes.status = '{states.TERMINATED}'), 0)
                   AS first_disk_gb
        FROM (
            SELECT later.run_id AS comes_id, earlier.run_id AS goes_id,
                   count(*) OVER (PARTITION BY earlier.run_id) AS many
            FROM compute_claim c
            JOIN compute_workload w ON w.id = c.workload_id AND w.status = '{states.PENDING}'
            JOIN compute_occupancy later
                ON later.unit_id = c.unit_id AND later.run_id = c.run_id AND later.closed_at IS NULL
            JOIN compute_occupancy earlier
                ON earlier.unit_id = c.unit_id AND earlier.id < later.id AND earlier.closed_at IS NULL
            WHERE c.node_id = host.id AND taken.waits
            GROUP BY later.run_id, earlier.run_id
            OFFSET 0
        ) pair
        JOIN LATERAL ({_TAKES}) comes ON comes.run_id = pair.comes_id
        JOIN LATERAL ({_TAKES}) goes ON goes.run_id = pair.goes_id
        WHERE pair.many = 1
        GROUP BY pair.comes_id, comes.ram_mb, comes.vcpu, comes.disk_gb
    ) one
) twice ON true
"""  # noqa: S608  (constants of our own)


def survey_sql(*, some: bool, organization: bool, more: bool = False) -> str:
    """The statement for the whole fleet or for `%(nodes)s`, for `%(org)s` or for no particular organization.

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
    """The rows of those nodes, or of all, for that organization now. One query."""
    with connection.cursor() as cursor:
        cursor.execute(
            survey_sql(some=node_ids is not None, organization=True, more=True),
            {"org": organization_id, "nodes": list(node_ids or ())},
        )
        return [_surveyed(row) for row in cursor.fetchall()]


def _surveyed(row: tuple[Any, ...]) -> Surveyed:
    node_id, model_id, online, shape, own, own_sizes, own_released = row
    return Surveyed(node_id, model_id, shape, own, tuple(own_sizes), own_released, online)
