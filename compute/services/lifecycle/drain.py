"""Nodes that their owners take out of service: what becomes of the workloads there."""

import datetime as dt
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from compute.domain import states
from compute.models import Workload
from compute.services.lifecycle.evict import evict
from compute.services.lifecycle.transitions import set_status_reason
from nodes.models import Node
from nodes.querysets import NodeStatus
from nodes.services import owner
from nodes.services.locking import LockedNode, locked, locked_for
from openrelay.audit.services.record import SYSTEM, Actor
from openrelay.core import jobs
from openrelay.core.clock import Now, rfc3339
from openrelay.core.errors import Conflict, Invalid, NotFound
from openrelay.identity.caller import Caller
from openrelay.identity.models import Organization

# An interruptible node's end is at most so far ahead.
MOST_NOTICE: Final = dt.timedelta(hours=24)
# A persistent node's own notice, at least and at most.
LEAVE_FROM, LEAVE_TO = dt.timedelta(minutes=5), dt.timedelta(days=7)
# A removal that is due within this is queued for its very moment; the sweep finds every other.
_SOON: Final = dt.timedelta(seconds=120)

_HOLDS: Final = {
    NodeStatus.ONLINE: Node.OwnerHold.NONE,
    NodeStatus.MAINTENANCE: Node.OwnerHold.MAINTENANCE,
    NodeStatus.DRAINING: Node.OwnerHold.DRAINING,
}


@dataclass(frozen=True, slots=True)
class Notice:
    """When a node is to end: at a time, in so many seconds, or (neither) by what goes without saying."""

    at: datetime | None = None
    seconds: int | None = None


def set_status(*, caller: Caller, node_id: UUID, status: str) -> None:
    """Set what the owner wants of a node of theirs: `online`, `maintenance`, `draining` or `removed`.

    Maintenance keeps new work away. Draining also terminates every VM and pod there that is not stopped.
    Removing ends stopped pods too, and the node's units leave; its stopped VMs deploy afresh elsewhere when
    they are restarted. Online lifts the owner's hold, not an announced end. Safe to repeat.

    Raises NotFound for a node that is not the caller's, Invalid NODE_DECOMMISSIONED for a removed one.
    """
    with locked_for(node_id, caller) as (held, caller):
        _require_owner(held, caller)
        owner.require_enrolled(held)
        if status == NodeStatus.REMOVED:
            _remove(held, actor=caller.actor)
            return
        owner.set_owner_hold(held, _HOLDS[status], actor=caller.actor)
        if status == NodeStatus.DRAINING:
            _clear(held, actor=caller.actor)


def offboard(*, caller: Caller, node_id: UUID, notice: Notice) -> None:
    """Have an interruptible node of the caller's removed at the deadline; without one, now.

    It takes no new work from now on; what runs there runs until the deadline. A deadline only ever moves
    earlier.

    Raises NotFound for a node that is not the caller's, Invalid for a notice of more than 24 hours and
    NODE_DECOMMISSIONED for a removed node, Conflict for a persistent one.
    """
    with locked_for(node_id, caller) as (held, caller):
        _require_owner(held, caller)
        owner.require_enrolled(held)
        if held.node.node_class != Node.Class.INTERRUPTIBLE:
            raise Conflict(
                "Only an interruptible node can be offboarded. This one is persistent: set its status to "
                "draining or removed instead."
            )
        _leave(held, _short_notice(notice, default=0, at=held.at), actor=caller.actor)


def take_notice(*, caller: Caller, node_id: UUID, notice: Notice) -> Node:
    """Take a node's own word that it will end; `caller` is the node. What runs there runs until then.

    An interruptible node that names no deadline gives the notice that it was enrolled with. A persistent one
    has to name a deadline five minutes to seven days ahead, and its organization to have leave notices
    enabled. A deadline only ever moves earlier. Returns the node as it is then.

    Raises Invalid for another deadline and NODE_DECOMMISSIONED for a removed node, Conflict FEATURE_DISABLED.
    """
    with locked_for(node_id, caller) as (held, caller):
        owner.require_enrolled(held)
        node = held.node
        if node.node_class == Node.Class.INTERRUPTIBLE:
            deadline = _short_notice(notice, default=node.notice_seconds or 0, at=held.at)
        else:
            deadline = _leave_notice(held, notice)
        _leave(held, deadline, actor=caller.actor)
        return node


def due_node_ids() -> list[UUID]:
    """Nodes whose announced end has come and that were not removed yet, the longest overdue first."""
    return list(Node.objects.leaving(Now()).order_by("terminate_at", "id").values_list("pk", flat=True))


def remove_due(node_id: UUID) -> bool:
    """Remove a node whose announced end has come by the database's clock; returns whether this call did."""
    try:
        with locked(node_id) as held:
            node = held.node
            if node.removed_at is not None or node.terminate_at is None or node.terminate_at > held.at:
                return False
            _remove(held, actor=SYSTEM)
            return True
    except NotFound:
        return False


def leaving_reason(node: Node) -> str:
    """The statusReason of what runs on a node that announced its end; empty on any other."""
    return f"{states.NODE_LEAVING}{rfc3339(node.terminate_at)}" if node.terminate_at else ""


def _require_owner(held: LockedNode, caller: Caller) -> None:
    caller.require("provider.write")
    if held.node.organization_id != caller.organization_id:
        raise NotFound()


def _clear(held: LockedNode, *, actor: Actor) -> None:
    """Terminate every VM and pod on the node that is not stopped."""
    gone = Workload.objects.active().filter(node=held.node).exclude(status=states.STOPPED)
    evict(held, list(gone), reason=states.NODE_REMOVED, actor=actor)


def _remove(held: LockedNode, *, actor: Actor) -> None:
    """Clear the node, end its stopped pods, tell its stopped VMs, and take it out."""
    _clear(held, actor=actor)
    stopped = Workload.objects.filter(node=held.node, status=states.STOPPED).order_by("created_at", "id")
    evict(held, list(stopped.filter(kind=Workload.Kind.POD)), reason=states.NODE_REMOVED, actor=actor)
    set_status_reason(
        list(stopped.filter(kind=Workload.Kind.VM)),
        states.NODE_REMOVED,
        event="vm.node_removed",
        actor=_for_tenants(actor),
        at=held.at,
    )
    owner.remove_node(held, actor=actor)


def _for_tenants(actor: Actor) -> Actor:
    """The actor as tenants' logs name it: not from which address it called, which the node's own log has."""
    return replace(actor, source_ip="")


def _leave(held: LockedNode, deadline: datetime, *, actor: Actor) -> None:
    """Announce the end and tell what runs there, or remove the node when it is now."""
    if not owner.announce_removal(held, deadline, actor=actor):
        return
    if deadline <= held.at:
        _remove(held, actor=actor)
        return
    set_status_reason(
        list(Workload.objects.filter(node=held.node, status=states.RUNNING).order_by("created_at", "id")),
        leaving_reason(held.node),
        event="vm.node_leaving",
        actor=_for_tenants(actor),
        at=held.at,
    )
    if deadline <= held.at + _SOON:
        jobs.on_commit("compute.remove_leaving_node", str(held.node.pk), eta=deadline)


def _short_notice(notice: Notice, *, default: int, at: datetime) -> datetime:
    """The end that an interruptible node's notice names; what is past is now."""
    if notice.at is not None:
        deadline = max(notice.at, at)
    else:
        seconds = default if notice.seconds is None else notice.seconds
        deadline = at + dt.timedelta(seconds=seconds)
    if deadline > at + MOST_NOTICE:
        raise Invalid(
            "The deadline is more than 24 hours ahead. Give terminateAt or noticeSeconds within that."
        )
    return deadline


def _leave_notice(held: LockedNode, notice: Notice) -> datetime:
    """The end that a persistent node's own notice names."""
    enabled = Organization.objects.filter(pk=held.node.organization_id, leave_notices_enabled=True)
    if not enabled.exists():
        raise Conflict(
            "Leave notices are not enabled for this node's organization. Ask an operator, or have its owner "
            "set the node's status to draining or removed.",
            code="FEATURE_DISABLED",
        )
    if notice.at is None and notice.seconds is None:
        raise Invalid("A persistent node has to name its deadline: give terminateAt or noticeSeconds.")
    deadline = notice.at or held.at + dt.timedelta(seconds=notice.seconds or 0)
    if not held.at + LEAVE_FROM <= deadline <= held.at + LEAVE_TO:
        raise Invalid(
            f"The deadline of a persistent node has to be 5 minutes to 7 days ahead; it is "
            f"{rfc3339(held.at)} now."
        )
    return deadline
