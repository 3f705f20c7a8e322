"""Terminate a workload for its user."""

from uuid import UUID

from compute.domain import states
from compute.models import Workload
from compute.services.lifecycle.evict import evict
from compute.services.lifecycle.workload_lock import find, lock_workload
from openrelay.identity.caller import Caller


def terminate(*, caller: Caller, workload_id: UUID) -> Workload:
    """Terminate a workload of the caller's organization. A terminated workload stays as it is.

    This call releases its claims. Its node tears down the guest and deletes the disk. Raises NotFound for a
    workload of another organization.
    """
    workload = find(caller, workload_id)
    if workload.status == states.TERMINATED:
        return workload
    with lock_workload(caller, workload_id, "compute.delete") as (held, now, workload):
        evict(held, [workload], reason=states.USER_TERMINATED, actor=now.actor)
        return find(now, workload_id)
