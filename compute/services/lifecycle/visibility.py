"""Make a workload's HTTP endpoint public or private."""

from uuid import UUID

from compute.domain import states
from compute.models import Workload
from compute.services.lifecycle.workload_lock import find, lock_workload, refuse_state
from openrelay.audit.services.record import record
from openrelay.identity.caller import Caller


def set_visibility(*, caller: Caller, workload_id: UUID, public: bool) -> Workload:
    """Make the workload's endpoint public, or private to its organization's keys. Idempotent.

    Raises NotFound for a workload of another organization, Conflict INVALID_STATE for a terminated one.
    """
    with lock_workload(caller, workload_id, "compute.operate") as (held, now, workload):
        if workload.status == states.TERMINATED:
            raise refuse_state(workload, "a change of visibility", "not terminated")
        if workload.public != public:
            Workload.objects.filter(pk=workload.pk).update(public=public, updated_at=held.at)
            record(
                now.actor,
                "vm.visibility_changed",
                target_type="vm",
                target_id=workload.pk,
                org_id=workload.organization_id,
                before={"public": workload.public},
                after={"public": public},
                at=held.at,
            )
        return find(now, workload_id)
