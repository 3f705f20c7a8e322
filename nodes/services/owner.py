"""The owner's decisions about a node: hold new work, announce the removal, remove the node.

Each function writes one fact under the node's lock. The compute app acts on the workloads.
"""

from datetime import datetime

from nodes.models import GpuUnit, TopologyGeneration
from nodes.services import incidents
from nodes.services.locking import LockedNode
from openrelay.audit.services.record import Actor, record
from openrelay.core.clock import rfc3339
from openrelay.core.errors import Invalid


def require_enrolled(locked_node: LockedNode) -> None:
    """Raise Invalid NODE_DECOMMISSIONED if the node is removed (see `LockedNode.is_removed`)."""
    if locked_node.is_removed:
        raise Invalid(
            "The node was removed, and can no longer be changed. Enrol it again to bring it back.",
            code="NODE_DECOMMISSIONED",
        )


def set_owner_hold(locked_node: LockedNode, value: str, *, actor: Actor) -> bool:
    """Set the owner's hold on new work, or lift it (`""`). Returns whether it changed."""
    node = locked_node.node
    if node.owner_hold == value:
        return False
    before, node.owner_hold = node.owner_hold, value
    node.save(update_fields=["owner_hold"])
    record(
        actor,
        "node.hold_changed",
        target_type="node",
        target_id=node.pk,
        org_id=node.organization_id,
        before={"hold": before or None},
        after={"hold": value or None},
        at=locked_node.at,
    )
    return True


def announce_removal(locked_node: LockedNode, deadline: datetime, *, actor: Actor) -> bool:
    """Announce that the node will be removed at `deadline`. Returns whether the announced time changed.

    The announced time can only move earlier: a later `deadline` changes nothing.
    """
    node = locked_node.node
    if node.terminate_at is not None and node.terminate_at <= deadline:
        return False
    before, node.terminate_at = node.terminate_at, deadline
    node.save(update_fields=["terminate_at"])
    record(
        actor,
        "node.leaving",
        target_type="node",
        target_id=node.pk,
        org_id=node.organization_id,
        before={"terminateAt": rfc3339(before) if before else None},
        after={"terminateAt": rfc3339(deadline)},
        at=locked_node.at,
    )
    return True


def remove_node(locked_node: LockedNode, *, actor: Actor) -> None:
    """Remove the node: mark its units as gone (a change of topology) and close its incidents.

    The agent's credential stays valid, so that the agent can tear down the remaining guests.
    """
    node, at = locked_node.node, locked_node.at
    before = node.topology_gen
    if GpuUnit.objects.present().filter(node=node).update(gone_at=at):
        node.topology_gen += 1
        TopologyGeneration.objects.create(
            node=node, number=node.topology_gen, at=at, cause="the node was removed", units=[]
        )
    node.removed_at = at
    # An empty digest: after a new enrolment, the same report must count as changed.
    node.inventory_digest = ""
    node.save(update_fields=["topology_gen", "removed_at", "inventory_digest"])
    incidents.close_all_incidents(locked_node, actor=actor)
    record(
        actor,
        "node.removed",
        target_type="node",
        target_id=node.pk,
        org_id=node.organization_id,
        before={"generation": before},
        after={"generation": node.topology_gen},
        at=at,
    )
