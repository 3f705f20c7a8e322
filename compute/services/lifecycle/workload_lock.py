"""The caller's own workloads: finding one, and changing it under its node's lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from compute.domain import states
from compute.models import Workload
from nodes.services.locking import LockedNode, locked_for
from openrelay.core.errors import Conflict, NotFound
from openrelay.identity.caller import Caller


def find(caller: Caller, workload_id: UUID) -> Workload:
    """The caller's workload of that id. Raises NotFound."""
    workload: Workload | None = (
        Workload.objects.visible_to(caller)
        .with_guest()
        .select_related("gpu_model")
        .filter(pk=workload_id)
        .first()
    )
    if workload is None:
        raise NotFound()
    return workload


@contextmanager
def on_its_node(
    caller: Caller, workload_id: UUID, action: str
) -> Iterator[tuple[LockedNode, Caller, Workload]]:
    """One transaction for `caller`: lock the workload's node, then read rights and workload again.

    Raises NotFound for a workload that is not the caller's, Forbidden without `action`, Conflict for one that
    is on no node.
    """
    while True:
        node_id = find(caller, workload_id).node_id
        if node_id is None:
            raise Conflict("The workload has no node yet. Read it again and retry.")
        with locked_for(node_id, caller) as (held, now):
            now.require(action)
            workload = find(now, workload_id)
            # One that was deployed on another node meanwhile is changed under that node's lock.
            if workload.node_id == node_id:
                yield held, now, workload
                return


def disk_is_gone(held: LockedNode, workload: Workload) -> bool:
    """Whether the locked node, the workload's, was removed or has come to its announced end."""
    return held.is_removed or workload.status_reason == states.NODE_REMOVED


def require_its_node(held: LockedNode, workload: Workload) -> None:
    """Refuse to change a workload that runs, or is to run, on the locked node once that has come to its
    announced end: it ends with its node, whether or not a task has ended it yet.

    Raises Conflict INVALID_STATE.
    """
    if held.is_removed:
        raise Conflict(
            f"The node of {workload.name} has come to its announced end, and it ends with its node. "
            "Create a new one."
        )


def refuse_state(workload: Workload, what: str, needed: str) -> Conflict:
    """The answer to an action that the workload's state forbids, naming both: Conflict INVALID_STATE."""
    return Conflict(
        f"{workload.name} is {workload.status}. {what.capitalize()} needs a workload that is {needed}."
    )
