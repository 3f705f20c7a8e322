"""Hosts for VMs without GPUs, read by one statement: one node under its lock, or many without a lock.

The host share of each reserved unit is kept from the moment that it is reserved, also when it is released or
in review. It is not kept from the audience of that reservation when the request names the node. The shares of
other free units are kept too when CPU_VMS_BESIDE_FREE_GPUS is off.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Exists, OuterRef, Q

from compute.domain import states
from compute.domain.cpu_shares import Guest, Host
from compute.domain.host_shares import HostAllocation, allocatable_mb, footprint_mb
from compute.models import Workload
from nodes.models import GpuUnit, Node
from openrelay.core.clock import Now

# Hosts are read in pages of this size; the best fits of a page are tried before the next page.
PAGE = 2000

_FOR_SALE = f"unit.gone_at IS NULL AND unit.sellable AND unit.alloc_class = '{GpuUnit.VFIO_GROUP}'"
_SERVES = """
    %(named)s AND held.term @> {now} AND hold.topology_gen = node.topology_gen
    AND EXISTS (SELECT FROM nodes_holdaudience audience
                WHERE audience.hold_id = hold.id AND audience.organization_id = %(org)s)
"""
_HOLDS = (
    "FROM nodes_holdunit held JOIN nodes_hold hold ON hold.id = held.hold_id WHERE held.unit_id = unit.id"
)
_KEPT = f"""
    (EXISTS (SELECT {_HOLDS} AND (upper_inf(held.term) OR upper(held.term) > {{now}}) AND NOT ({_SERVES}))
     OR NOT %(beside)s AND NOT EXISTS (SELECT {_HOLDS} AND {_SERVES}))
"""
_HOSTS = f"""
SELECT node.id, nullif(node.ram_mb, 0), nullif(node.cpu_cores, 0), nullif(node.disk_total_gb, 0),
       node.disk_free_gb, units.gpus, units.kept, units.free,
       coalesce(disks.gb, 0) + coalesce(guests.leaving_gb, 0), guests.listed
FROM nodes_node node
CROSS JOIN LATERAL (
    SELECT coalesce(sum(gpus), 0) AS gpus, coalesce(sum(gpus) FILTER (WHERE kept AND NOT used), 0) AS kept,
           coalesce(sum(gpus) FILTER (WHERE NOT kept AND NOT used AND NOT broken), 0) AS free
    FROM (
        SELECT unit.gpu_count AS gpus, {_KEPT} AS kept,
               EXISTS (SELECT FROM compute_occupancy o WHERE o.unit_id = unit.id AND o.closed_at IS NULL)
                   AS used,
               EXISTS (SELECT FROM nodes_gpu g WHERE g.unit_id = unit.id AND g.failed_at IS NOT NULL)
                   AS broken
        FROM nodes_gpuunit unit WHERE unit.node_id = node.id AND {_FOR_SALE}
        OFFSET 0
    ) each_unit
) units
LEFT JOIN LATERAL (
    SELECT sum(w.disk_size_gb) AS gb FROM compute_workload w
    WHERE w.node_id = node.id AND w.status <> '{states.TERMINATED}' AND w.id IS DISTINCT FROM %(without)s
) disks ON true
LEFT JOIN LATERAL (
    SELECT sum(w.disk_size_gb) FILTER (WHERE w.status = '{states.TERMINATED}') AS leaving_gb,
           jsonb_agg(jsonb_build_array(
               coalesce(w.guest_mem_mb, 0), coalesce(w.guest_vcpu, 0), w.disk_size_gb,
               (SELECT coalesce(sum(unit.gpu_count), 0) FROM compute_occupancy o
                JOIN nodes_gpuunit unit ON unit.id = o.unit_id
                WHERE o.run_id = r.id AND o.closed_at IS NULL AND {_FOR_SALE} AND {_KEPT}))) AS listed
    FROM compute_run r JOIN compute_workload w ON w.id = r.workload_id
    WHERE r.node_id = node.id AND r.closed_at IS NULL AND w.id IS DISTINCT FROM %(without)s
) guests ON true
WHERE node.id = ANY(%(nodes)s)
"""  # noqa: S608  (constants of our own)


def hosts(
    node_ids: Sequence[UUID],
    organization_id: UUID,
    *,
    named: bool,
    at: datetime | None = None,
    excluding_workload: UUID | None = None,
) -> list[Host]:
    """Those nodes' hosts at `at` (now, when absent) as a VM without GPUs of that organization sees them.

    `excluding_workload` counts as absent. One query.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _HOSTS.format(now="%(at)s::timestamptz" if at else settings.CLOCK_SQL),
            {
                "nodes": list(node_ids),
                "org": organization_id,
                "named": named,
                "beside": settings.CPU_VMS_BESIDE_FREE_GPUS,
                "without": excluding_workload,
                "at": at,
            },
        )
        return [_host(row) for row in cursor.fetchall()]


def _host(row: tuple[Any, ...]) -> Host:
    *figures, guests = row
    if isinstance(guests, str):  # jsonb comes as text where nobody asked for it to be read
        guests = json.loads(guests)
    return Host(*[*figures, tuple(Guest(*guest) for guest in guests or ())])


def pages(
    organization_id: UUID, allocation: HostAllocation, *, regions: Sequence[str] = (), elsewhere: bool = False
) -> Iterator[list[Host]]:
    """The hosts of the public pool that are as large as that allocation, in pages, read without a lock.

    First the hosts without GPU units or with VMs without GPUs already, then all others. With `elsewhere` the
    hosts outside of `regions`.
    """
    open_nodes = Node.objects.taking_new_work(Now()).filter(
        _as_large(allocation),
        Q(disk_free_gb=None) | Q(disk_free_gb__gte=allocation.disk_gb),
        runtime=Node.Runtime.QEMU,
    )
    if regions:
        there = Q(location__region__in=regions)
        open_nodes = open_nodes.filter(~there | Q(location=None) if elsewhere else there)
    units = GpuUnit.objects.present().filter(node=OuterRef("pk"), sellable=True)
    alike = Workload.objects.active().filter(node=OuterRef("pk"), gpu_count=0)
    first = ~Exists(units.filter(alloc_class=GpuUnit.VFIO_GROUP)) | Exists(alike)
    for nodes in (open_nodes.filter(first), open_nodes.exclude(first)):
        last: UUID | None = None
        while True:
            page = nodes if last is None else nodes.filter(pk__gt=last)
            ids = list(page.order_by("pk").values_list("pk", flat=True)[:PAGE])
            if ids:
                yield hosts(ids, organization_id, named=False)
                last = ids[-1]
            if len(ids) < PAGE:
                break


def could_ever(
    allocation: HostAllocation, *, node_id: UUID | None = None, regions: Sequence[str] = ()
) -> bool:
    """Whether a VM of that allocation would fit on some empty host."""
    nodes = Node.objects.live().filter(_as_large(allocation), runtime=Node.Runtime.QEMU)
    if node_id is not None:
        nodes = nodes.filter(pk=node_id)
    if regions:
        nodes = nodes.filter(location__region__in=regions)
    return nodes.exists()


def _as_large(allocation: HostAllocation) -> Q:
    """The filter for nodes whose empty host would have room for a VM of that allocation."""
    large = Q()
    for name, least in (
        ("ram_mb", _least_ram(footprint_mb(allocation.guest_mem_mb or 0))),
        ("cpu_cores", allocation.vcpu),
        ("disk_total_gb", allocation.disk_gb),
    ):
        large &= Q(**{name: None}) | Q(**{name: 0}) | Q(**{f"{name}__gte": least})
    return large


def _least_ram(guests_mb: int) -> int:
    """The MiB of the smallest host of which guests may use that many."""
    least = guests_mb
    while (lacks := guests_mb - allocatable_mb(least)) > 0:
        least += lacks
    return least
