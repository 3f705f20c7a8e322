"""The detail of one workload: the workload, its guest, its SSH access and its price."""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Exists, OuterRef

from compute.domain import states
from compute.models import GuestState, Run, UsageSession, Workload
from compute.services.access.connection_info import Ssh, ssh
from compute.services.billing.prices import catalog_cents
from compute.services.billing.usage_sessions import open_session_of
from nodes.models import GpuUnit, Node
from openrelay.core.clock import Now
from openrelay.core.errors import NotFound
from openrelay.identity.caller import Caller


@dataclass(frozen=True, slots=True)
class Detail:
    """One workload with the state of its guest.

    `healthy` is true while it runs and none of its GPUs has failed. `session` is its open usage session.
    `cents_per_hour` is the rate of that session, or the rate that the next session would lock. `node_heard`
    says whether its node is online.
    """

    workload: Workload
    guest: GuestState | None
    ssh: Ssh
    healthy: bool
    session: UsageSession | None
    cents_per_hour: int | None
    node_heard: bool


def detail(caller: Caller, workload_id: UUID) -> Detail:
    """Read the detail of the caller's workload in four queries. Raises NotFound."""
    workload: Workload | None = (
        Workload.objects.visible_to(caller)
        .with_guest()
        .select_related("gpu_model", "node__location", "template")
        .annotate(
            catalog_cents=catalog_cents(),
            node_heard=Exists(Node.objects.online(Now()).filter(pk=OuterRef("node"))),
        )
        .filter(pk=workload_id)
        .first()
    )
    if workload is None:
        raise NotFound()
    guest = GuestState.objects.filter(run__in=Run.objects.wanted().filter(workload=workload)).first()
    units = GpuUnit.objects.present().filter(claims__workload=workload).exclude(gpus__failed_at__isnull=False)
    running = workload.status == states.RUNNING
    session, cents = open_session_of(workload), workload.price_per_hour_cents
    if session is not None:
        cents = session.cents_per_hour
    elif workload.status != states.TERMINATED and workload.catalog_cents is not None:
        cents = workload.catalog_cents
    return Detail(
        workload,
        guest,
        ssh(workload, guest, os_type=workload.template.os_type if workload.template else ""),
        healthy=running and sum(units.values_list("gpu_count", flat=True)) >= workload.gpu_count,
        session=session,
        cents_per_hour=cents,
        node_heard=workload.node_heard,
    )
