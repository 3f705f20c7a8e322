"""All that is known of one workload."""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q

from compute import states
from compute.models import GuestState, Run, UsageSession, Workload
from compute.services.reach import Ssh, ssh
from compute.services.sessions import open_session_of
from nodes.models import GpuUnit
from openrelay.errors import NotFound
from openrelay.identity.caller import Caller


@dataclass(frozen=True, slots=True)
class Detail:
    """One workload with what is known of its guest; `healthy` while it runs as it should.

    `session` is what it is billed by, while it runs.
    """

    workload: Workload
    guest: GuestState | None
    ssh: Ssh
    healthy: bool
    session: UsageSession | None


def detail(caller: Caller, workload_id: UUID) -> Detail:
    """All that is known of the caller's workload of that id. Four queries. Raises NotFound."""
    workload: Workload | None = (
        Workload.objects.visible_to(caller)
        .with_guest()
        .select_related("gpu_model", "node__location", "template")
        .filter(pk=workload_id)
        .first()
    )
    if workload is None:
        raise NotFound()
    guest = GuestState.objects.filter(run__in=Run.objects.wanted().filter(workload=workload)).first()
    failed = GpuUnit.objects.filter(claims__workload=workload).filter(
        Q(gone_at__isnull=False) | Q(gpus__failed_at__isnull=False)
    )
    running = workload.status == states.RUNNING
    return Detail(
        workload,
        guest,
        ssh(workload, guest, os_type=workload.template.os_type if workload.template else ""),
        healthy=running and not failed.exists(),
        session=open_session_of(workload),
    )
