"""Ending a workload at its user's word."""

from uuid import UUID

from compute.domain import states
from compute.models import Workload
from compute.services.lifecycle.evict import evict
from compute.services.lifecycle.workload_lock import find, on_its_node
from openrelay.identity.caller import Caller


def terminate(*, caller: Caller, workload_id: UUID) -> Workload:
    """Terminate a workload of the caller's organization, for good. One that is terminated already is left so.

    Its claims are given up at once; its guest is torn down by its node, and its disk deleted. Raises NotFound
    for one that is not the caller's.
    """
    workload = find(caller, workload_id)
    if workload.status == states.TERMINATED:
        return workload
    with on_its_node(caller, workload_id, "compute.delete") as (held, now, workload):
        evict(held, [workload], reason=states.USER_TERMINATED, actor=now.actor)
        return find(now, workload_id)
