"""Find a workload of the caller, and lock its node to change it."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from compute.domain import states
from compute.models import Workload
from nodes.services.locking import LockedNode, locked_for
from openrelay.core.errors import Conflict, NotFound
from openrelay.identity.caller import Caller


def find(caller: Caller, workload_id: UUID) -> Workload:
    """Find the caller's workload by its id. Raises NotFound."""
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
def lock_workload(
    caller: Caller, workload_id: UUID, action: str
) -> Iterator[tuple[LockedNode, Caller, Workload]]:
    """Open a transaction, lock the workload's node, then read the caller's rights and the workload again.

    Raises NotFound for a workload of another organization, Forbidden when the caller may not do `action`,
    Conflict for a workload without a node.
    """
    while True:
        node_id = find(caller, workload_id).node_id
        if node_id is None:
            raise Conflict("The workload has no node yet. Read it again and retry.")
        with locked_for(node_id, caller) as (held, now):
            now.require(action)
            workload = find(now, workload_id)
            # A workload that was deployed on another node in the meantime needs that node's lock.
            if workload.node_id == node_id:
                yield held, now, workload
                return


def has_lost_disk(held: LockedNode, workload: Workload) -> bool:
    """Whether the workload lost its disk: its node, locked here, was removed or came to its announced end."""
    return held.is_removed or workload.status_reason == states.NODE_REMOVED


def require_its_node(held: LockedNode, workload: Workload) -> None:
    """Refuse to change a workload whose node, locked here, has come to its announced end.

    The removal of the node ends the workload, even if no task has done so yet. Raises Conflict INVALID_STATE.
    """
    if held.is_removed:
        raise Conflict(
            f"The node of {workload.name} has come to its announced end, and it ends with its node. "
            "Create a new one."
        )


def refuse_state(workload: Workload, what: str, needed: str) -> Conflict:
    """Make the Conflict INVALID_STATE for an action that the workload's state does not allow."""
    return Conflict(
        f"{workload.name} is {workload.status}. {what.capitalize()} needs a workload that is {needed}."
    )
