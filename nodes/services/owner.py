"""What a node's owner decides of it: who may start there, when it leaves, that it is gone.

Each is one fact, written under the node's lock. What becomes of the workloads is compute's to see to.
"""

from datetime import datetime

from nodes.models import GpuUnit, TopologyGeneration
from nodes.services import incidents
from nodes.services.locking import LockedNode
from openrelay.audit.services.record import Actor, record
from openrelay.core.clock import rfc3339
from openrelay.core.errors import Invalid


def require_enrolled(locked_node: LockedNode) -> None:
    """Raise Invalid NODE_DECOMMISSIONED for a node that was removed, or whose announced end has come."""
    if locked_node.is_removed:
        raise Invalid(
            "The node was removed, and can no longer be changed. Enrol it again to bring it back.",
            code="NODE_DECOMMISSIONED",
        )


def set_owner_hold(locked_node: LockedNode, value: str, *, actor: Actor) -> bool:
    """Set or lift (`""`) the owner's hold on new work; returns whether that changed anything."""
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
    """Announce that the node will be removed at `deadline`; returns whether that changed anything.

    A deadline only ever moves earlier: a later one than was announced leaves it as it is.
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
    """Take the node out: its units leave, which is a change of its topology, its incidents end, and it is
    removed from now on.

    Its agent's credential goes on serving for what is left to tear down.
    """
    node, at = locked_node.node, locked_node.at
    before = node.topology_gen
    if GpuUnit.objects.present().filter(node=node).update(gone_at=at):
        node.topology_gen += 1
        TopologyGeneration.objects.create(
            node=node, number=node.topology_gen, at=at, cause="the node was removed", units=[]
        )
    node.removed_at = at
    # What it reports when it is enrolled again is news, whatever it was before.
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
