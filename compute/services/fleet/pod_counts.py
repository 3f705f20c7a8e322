"""Pod capacity: how many pods could be created now, by GPU model, counted in the database."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db import connection

from compute.domain import states
from compute.domain.host_shares import VOLUME_GB
from compute.models import Tier
from compute.services.billing.prices import listed
from compute.services.fleet.pod_levels import AMD, on_infiniband
from nodes.levels import AMD_GRANT, INFINIBAND
from nodes.models import GpuModel, GpuUnit, Node


@dataclass(frozen=True, slots=True)
class PodCapacity:
    """One GPU model's pod units: how many there are, how many are free, and the most GPUs one pod gets."""

    model: GpuModel
    free_units: int
    total_units: int
    max_gpu_count: int
    cents_per_gpu_hour: int


# Node by node, by index, as what nodes offer to VMs is surveyed: statistics that lag behind the fleet cannot
# turn it into something that never ends. And by the database, for a fleet is too much to carry here. What
# disks promise is summed up once: statistics of a few nodes with many workloads would have all of these read
# for each node. The join to it is a FULL one because that is never done by nested loops; what is on no host
# for pods has no id here, and so no units.
_GRACE = f"make_interval(secs => {settings.NODE_OFFLINE_GRACE_SECONDS})"
_COUNT = f"""
WITH promised AS MATERIALIZED (
    SELECT node_id, sum(gb) AS gb
    FROM (
        SELECT w.node_id, w.disk_size_gb AS gb FROM compute_workload w
        WHERE w.node_id IS NOT NULL AND w.status <> '{states.TERMINATED}'
        UNION ALL
        SELECT r.node_id, w.disk_size_gb FROM compute_run r JOIN compute_workload w ON w.id = r.workload_id
        WHERE r.closed_at IS NULL AND w.status = '{states.TERMINATED}'
    ) disk
    GROUP BY node_id
)
SELECT gpu_model_id, sum(free)::int, sum(there)::int, max(gpus)::int
FROM (
  SELECT host.*, coalesce(promised.gb, 0) AS promised_gb
  FROM (
    SELECT n.id, coalesce(beat.agent_level, 1) AS level,
           coalesce(beat.seen_at > {settings.CLOCK_SQL} - {_GRACE}, false)
           AND n.owner_hold = '' AND n.terminate_at IS NULL AS open,
           NOT %(infiniband)s OR n.fabric_id IS NULL OR EXISTS (
               SELECT FROM nodes_fabricaddress a WHERE a.fabric_id = n.fabric_id AND a.holder IS NULL
           ) AS connected,
           n.disk_total_gb, n.disk_free_gb
    FROM nodes_node n LEFT JOIN nodes_nodeheartbeat beat ON beat.node_id = n.id
    WHERE n.removed_at IS NULL AND n.runtime = '{Node.Runtime.RUNC}'
    OFFSET 0
  ) host
  FULL JOIN promised ON promised.node_id = host.id
  OFFSET 0
) host
CROSS JOIN LATERAL (
    SELECT (nullif(host.disk_total_gb, 0) IS NULL OR host.disk_total_gb >= host.promised_gb + %(volume)s)
       AND (host.disk_free_gb IS NULL OR host.disk_free_gb >= %(volume)s) AS has_disk
) volume
CROSS JOIN LATERAL (
    SELECT gpu_model_id,
           count(*) FILTER (WHERE free) AS free,
           count(*) FILTER (WHERE host.open AND NOT broken) AS there,
           coalesce(sum(gpus) FILTER (WHERE free), 0) AS gpus
    FROM (
        SELECT u.gpu_model_id, u.gpu_count AS gpus, used.claimed, used.broken,
               host.open AND host.connected AND volume.has_disk AND host.level >= wanted.level
               AND NOT (used.claimed OR used.occupied OR used.broken) AS free
        FROM nodes_gpuunit u
        JOIN unnest(%(models)s::uuid[], %(levels)s::int[]) wanted (model, level)
            ON wanted.model = u.gpu_model_id
        CROSS JOIN LATERAL (
            SELECT EXISTS (SELECT FROM compute_claim c WHERE c.unit_id = u.id) AS claimed,
                   EXISTS (SELECT FROM compute_occupancy o WHERE o.unit_id = u.id AND o.closed_at IS NULL)
                       AS occupied,
                   EXISTS (SELECT FROM nodes_gpu g WHERE g.unit_id = u.id AND g.failed_at IS NOT NULL)
                       AS broken
            OFFSET 0
        ) used
        WHERE u.node_id = host.id AND u.gone_at IS NULL AND u.sellable
          AND u.alloc_class = '{GpuUnit.DEVICE_REQUEST}'
          AND NOT EXISTS (
              SELECT FROM nodes_holdunit held WHERE held.unit_id = u.id AND held.term @> {settings.CLOCK_SQL}
          )
        OFFSET 0
    ) unit
    GROUP BY gpu_model_id
) counted
GROUP BY gpu_model_id
"""  # noqa: S608  (constants of our own)


def pod_capacity(organization_id: UUID) -> list[PodCapacity]:
    """What that organization could create pods on now, one entry a GPU model that is sold, by name.

    Reserved units are left out, for a pod names no node. Free is what a pod of the usual volume fits on.
    Three queries, whatever the fleet.
    """
    sold = [price for price in listed(organization_id) if price.tier == Tier.COMMUNITY]
    counted = _counted([price.model for price in sold], infiniband=on_infiniband(organization_id))
    return [
        PodCapacity(price.model, *counted[price.model.pk], price.cents_per_gpu_hour)
        for price in sold
        if price.model.pk in counted
    ]


def most_gpus(organization_id: UUID, model_ids: Sequence[UUID], *, volume_gb: int) -> int:
    """The most GPUs that a pod of that organization with that volume could have now, of one of the models."""
    models = list(GpuModel.objects.filter(pk__in=model_ids))
    counted = _counted(models, infiniband=on_infiniband(organization_id), volume_gb=volume_gb)
    return max((gpus for _, _, gpus in counted.values()), default=0)


def _counted(
    models: list[GpuModel], *, infiniband: bool, volume_gb: int = VOLUME_GB
) -> dict[UUID, tuple[int, int, int]]:
    """Free units, all units and the most free GPUs on one node, by model."""
    # What an agent must be able to for a pod with GPUs of the model.
    levels = [
        max(
            INFINIBAND if infiniband else 0,
            AMD_GRANT if model.manufacturer.lower() == AMD else 0,
        )
        for model in models
    ]
    pks = [model.pk for model in models]
    with connection.cursor() as cursor:
        cursor.execute(
            _COUNT, {"models": pks, "levels": levels, "infiniband": infiniband, "volume": volume_gb}
        )
        return {model_id: tuple(list_totals) for model_id, *list_totals in cursor.fetchall()}
