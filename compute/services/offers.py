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
    share,
)
from nodes.models import GpuUnit, Node


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What one node has of one GPU model. Lists are sizes of units in GPUs, the smallest first.

    `structural` is what could be had at any tier if nothing were used, `sizes` what is free of it; the two
    `spot_` lists the same of what others put on the spot market. All are empty on a node that takes no work.
    """

    share: Share
    left_ram_mb: int | None
    left_vcpu: int | None
    left_disk_gb: int | None
    every: tuple[int, ...]  # whoever holds or uses them
    structural: tuple[int, ...]
    sizes: tuple[int, ...]
    spot_structural: tuple[int, ...]
    spot_sizes: tuple[int, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One node's offer of one GPU model to an organization, with what is reserved to it there."""

    node_id: UUID
    model_id: UUID
    shape: str
    own: bool
    own_sizes: tuple[int, ...]
    own_released: bool


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
    )


_FOOTPRINT = (
    f"w.guest_mem_mb + {OVERHEAD_FLAT_MB}"
    f" + greatest({OVERHEAD_LEAST_MB}, (w.guest_mem_mb::bigint * {OVERHEAD_PERCENT} + 99) / 100)"
)
_ALLOCATABLE = (
    f"greatest(0, host.ram_mb - greatest({HOST_KEEPS_MB}, host.ram_mb * {HOST_KEEPS_PERCENT} / 100))"
)

# {now}: the clock; {own}: whether the hold is kept for the organization; {of_…}: which nodes.
SURVEY = f"""
WITH host AS (
    SELECT n.id, n.topology_gen, nullif(n.ram_mb, 0) AS ram_mb, nullif(n.cpu_cores, 0) AS cpu_cores,
           nullif(n.disk_total_gb, 0) AS disk_total_gb, n.disk_free_gb,
           coalesce(beat.seen_at > {{now}} - make_interval(secs => {{grace}}), false) AS online,
           n.owner_hold = '' AND n.terminate_at IS NULL AS open
    FROM nodes_node n LEFT JOIN nodes_nodeheartbeat beat ON beat.node_id = n.id
    WHERE n.removed_at IS NULL AND n.runtime = '{Node.Runtime.QEMU}' {{of_host}}
), held AS (
    SELECT u.unit_id, u.released, h.topology_gen = host.topology_gen AS active, {{own}} AS own
    FROM nodes_holdunit u
    JOIN nodes_hold h ON h.id = u.hold_id
    JOIN host ON host.id = u.node_id
    WHERE u.term @> {{now}} {{of_u}}
), used AS (
    SELECT u.unit_id FROM compute_claim u WHERE true {{of_u}}
    UNION
    SELECT u.unit_id FROM compute_occupancy u WHERE u.closed_at IS NULL {{of_u}}
), broken AS (
    SELECT DISTINCT gpu.unit_id FROM nodes_gpu gpu WHERE gpu.failed_at IS NOT NULL {{of_gpu}}
), unit AS (
    SELECT u.node_id, u.gpu_model_id, u.gpu_count AS gpus, host.online AND host.open AS placeable,
           used.unit_id IS NOT NULL AS used,
           used.unit_id IS NULL AND broken.unit_id IS NULL AS free,
           held.unit_id IS NULL OR (held.active AND held.own) AS anywhere,
           coalesce(held.active AND held.own, false) AS own,
           coalesce(held.active AND held.released AND NOT held.own, false) AS on_market,
           coalesce(held.released, false) AS released
    FROM nodes_gpuunit u
    JOIN host ON host.id = u.node_id
    LEFT JOIN held ON held.unit_id = u.id
    LEFT JOIN used ON used.unit_id = u.id
    LEFT JOIN broken ON broken.unit_id = u.id
    WHERE u.gone_at IS NULL AND u.sellable AND u.alloc_class = '{GpuUnit.VFIO_GROUP}' {{of_u}}
), offer AS (
    SELECT node_id, gpu_model_id, sum(sum(gpus)) OVER (PARTITION BY node_id) AS gpus,
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
           coalesce(bool_or(own AND placeable), false) AS own,
           coalesce(array_agg(gpus ORDER BY gpus) FILTER (WHERE placeable AND own AND free), '{{{{}}}}')
               AS own_sizes,
           coalesce(bool_or(own AND released), false) AS own_released
    FROM unit GROUP BY node_id, gpu_model_id
), taken AS (
    SELECT u.node_id, sum(CASE WHEN w.guest_mem_mb > 0 THEN {_FOOTPRINT} ELSE 0 END) AS ram_mb,
           sum(coalesce(w.guest_vcpu, 0)) AS vcpu,
           sum(w.disk_size_gb) FILTER (WHERE w.status = '{states.TERMINATED}') AS disk_gb
    FROM compute_run u JOIN compute_workload w ON w.id = u.workload_id
    WHERE u.closed_at IS NULL {{of_u}} GROUP BY u.node_id
), disk AS (
    SELECT u.node_id, sum(u.disk_size_gb) AS disk_gb FROM compute_workload u
    WHERE u.status <> '{states.TERMINATED}' AND u.node_id IS NOT NULL {{of_u}} GROUP BY u.node_id
), figures AS (
    SELECT offer.*, host.online, host.ram_mb, host.cpu_cores, host.disk_total_gb,
           cardinality(structural) + cardinality(spot_structural) > 0 AS offered,
           greatest(0, {_ALLOCATABLE} - coalesce(taken.ram_mb, 0)) AS left_ram,
           greatest(0, host.cpu_cores - coalesce(taken.vcpu, 0)) AS left_vcpu,
           greatest(0, least(host.disk_total_gb - coalesce(taken.disk_gb, 0) - coalesce(disk.disk_gb, 0),
                             host.disk_free_gb)) AS left_disk
    FROM offer
    JOIN host ON host.id = offer.node_id
    LEFT JOIN taken ON taken.node_id = offer.node_id
    LEFT JOIN disk ON disk.node_id = offer.node_id
)
SELECT node_id, gpu_model_id, online,
       jsonb_build_array(
           gpus, ram_mb, cpu_cores, disk_total_gb,
           CASE WHEN offered AND ram_mb IS NOT NULL THEN left_ram END,
           CASE WHEN offered AND cpu_cores IS NOT NULL THEN left_vcpu END,
           CASE WHEN offered AND disk_total_gb IS NOT NULL THEN left_disk END,
           every, structural, sizes, spot_structural, spot_sizes, total)::text AS shape
       {{more}}
FROM figures
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
        of_host="AND n.id = ANY(%(nodes)s)" if some else "",
        of_u="AND u.node_id = ANY(%(nodes)s)" if some else "",
        of_gpu=(
            "AND gpu.unit_id IN (SELECT id FROM nodes_gpuunit WHERE node_id = ANY(%(nodes)s))" if some else ""
        ),
        more=", own, own_sizes, own_released" if more else "",
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
    node_id, model_id, _, shape, own, own_sizes, own_released = row
    return Surveyed(node_id, model_id, shape, own, tuple(own_sizes), own_released)
