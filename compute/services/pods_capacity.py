"""How many pods could be created now, by GPU model: what placement would find, counted by the database."""

from dataclasses import dataclass
from uuid import UUID

from django.db import connection
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce

from compute import states
from compute.capacity import VOLUME_GB
from compute.models import Claim, Run, Tier, Workload
from compute.services.pods_admission import grantable
from compute.services.pool import RUNTIME_OF, units_of, unused
from compute.services.prices import listed
from nodes.models import Gpu, GpuModel, GpuUnit, HoldUnit, Node
from nodes.querysets import Moment
from openrelay import clock


@dataclass(frozen=True, slots=True)
class PodCapacity:
    """One GPU model's pod units: how many there are, how many are free, and the most GPUs one pod gets."""

    model: GpuModel
    free_units: int
    total_units: int
    max_gpu_count: int
    cents_per_gpu_hour: int


def pod_capacity(organization_id: UUID) -> list[PodCapacity]:
    """What that organization could create pods on now, one entry a GPU model that is sold, by name.

    Reserved units are left out, for a pod names no node. Free is what a pod of the usual volume fits on.
    Three queries, whatever the fleet.
    """
    at = clock.Now()
    sold = [price for price in listed(organization_id) if price.tier == Tier.COMMUNITY]
    units = _units(at).filter(gpu_model__in=[price.model.pk for price in sold])
    counted = _count(units, there=_there(at), free=_free(at, organization_id))
    return [
        PodCapacity(price.model, *counted[price.model.pk], price.cents_per_gpu_hour)
        for price in sold
        if price.model.pk in counted
    ]


def _units(at: Moment) -> QuerySet[GpuUnit]:
    """Pod units on live nodes that nobody reserved now."""
    live = Node.objects.live().filter(runtime=RUNTIME_OF[GpuUnit.DEVICE_REQUEST])
    reserved = HoldUnit.objects.in_term(at).filter(unit=OuterRef("pk"))
    return units_of(GpuUnit.DEVICE_REQUEST).filter(~Exists(reserved), node__in=live)


def _there(at: Moment) -> Q:
    """The filter for units that a pod has, or could have once nobody else does."""
    failed = Gpu.objects.filter(unit=OuterRef("pk"), failed_at__isnull=False)
    claimed = Claim.objects.filter(unit=OuterRef("pk"))
    return Q(node__in=Node.objects.taking_new_work(at)) & (~Exists(failed) | Exists(claimed))


def _free(at: Moment, organization_id: UUID) -> Q:
    """The filter for units that a pod could have now."""
    return unused() & grantable(organization_id, addresses=True) & Q(node__in=_with_disk(at))


def _with_disk(at: Moment) -> QuerySet[Node]:
    """Nodes that take new work and have disk for another volume."""
    disks = Workload.objects.active().filter(node=OuterRef("pk")).order_by().values("node")
    leaving = (
        Run.objects.open()
        .filter(node=OuterRef("pk"), workload__status=states.TERMINATED)
        .order_by()
        .values("node")
    )
    nodes: QuerySet[Node] = (
        Node.objects.taking_new_work(at)
        .annotate(
            promised=Coalesce(Subquery(disks.annotate(gb=Sum("disk_size_gb")).values("gb")), 0)
            + Coalesce(Subquery(leaving.annotate(gb=Sum("workload__disk_size_gb")).values("gb")), 0)
        )
        .filter(
            Q(disk_total_gb=None) | Q(disk_total_gb=0) | Q(disk_total_gb__gte=F("promised") + VOLUME_GB),
            Q(disk_free_gb=None) | Q(disk_free_gb__gte=VOLUME_GB),
        )
    )
    return nodes


def _count(units: QuerySet[GpuUnit], *, there: Q, free: Q) -> dict[UUID, tuple[int, int, int]]:
    """Free units, all units and the most free GPUs on one node, by model.

    Counted node by node and then together, by the database: a fleet's nodes are not carried here.
    """
    rows = units.order_by().annotate(is_there=_flag(there), is_free=_flag(free))
    inner, parameters = rows.values(
        "gpu_model_id", "node_id", "gpu_count", "is_there", "is_free"
    ).query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT gpu_model_id, sum(free)::int, sum(every)::int, max(gpus)::int FROM ("  # noqa: S608
            "  SELECT gpu_model_id, count(*) FILTER (WHERE is_free) AS free,"
            "         count(*) FILTER (WHERE is_there) AS every,"
            "         coalesce(sum(gpu_count) FILTER (WHERE is_free), 0) AS gpus"
            f" FROM ({inner}) unit GROUP BY gpu_model_id, node_id"
            ") per_node GROUP BY gpu_model_id",
            parameters,
        )
        return {model_id: tuple(counts) for model_id, *counts in cursor.fetchall()}


def _flag(condition: Q) -> Case:
    return Case(When(condition, then=Value(True)), default=Value(False))
