"""Ending a workload at its user's word."""

from uuid import UUID

from compute import states
from compute.models import Workload
from compute.services.eviction import evict
from nodes.services.locking import locked_for
from openrelay.errors import Conflict, NotFound
from openrelay.identity.caller import Caller


def terminate(*, caller: Caller, workload_id: UUID) -> Workload:
    """Terminate a workload of the caller's organization, for good. One that is terminated already is left so.

    Its claims are given up at once; its guest is torn down by its node. Raises NotFound for one that is not
    the caller's.
    """
    workload = find(caller, workload_id)
    if workload.status == states.TERMINATED:
        return workload
    if workload.node_id is None:
        raise Conflict(f"{workload.name} is {workload.status} and on no node; it cannot be terminated now.")
    with locked_for(workload.node_id, caller) as (held, caller):
        caller.require("compute.delete")
        evict(held, [workload], reason=states.USER_TERMINATED, actor=caller.actor)
        return find(caller, workload_id)


def find(caller: Caller, workload_id: UUID) -> Workload:
    """The caller's workload of that id. Raises NotFound."""
    workload: Workload | None = (
        Workload.objects.visible_to(caller).select_related("gpu_model").filter(pk=workload_id).first()
    )
    if workload is None:
        raise NotFound()
    return workload
