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

# The longest notice of an interruptible node.
MOST_NOTICE: Final = dt.timedelta(hours=24)
# The shortest and the longest notice that a persistent node gives itself.
LEAVE_FROM, LEAVE_TO = dt.timedelta(minutes=5), dt.timedelta(days=7)
# A removal that is due within this time is queued for its exact time. The sweep finds the others.
_SOON: Final = dt.timedelta(seconds=120)

_HOLDS: Final = {
    NodeStatus.ONLINE: Node.OwnerHold.NONE,
    NodeStatus.MAINTENANCE: Node.OwnerHold.MAINTENANCE,
    NodeStatus.DRAINING: Node.OwnerHold.DRAINING,
}


@dataclass(frozen=True, slots=True)
class Notice:
    """When a node is to end: at a time, or after seconds. Without both, a default applies."""

    at: datetime | None = None
    seconds: int | None = None


def set_status(*, caller: Caller, node_id: UUID, status: str) -> None:
    """Set the status of a node of the caller: `online`, `maintenance`, `draining` or `removed`. Idempotent.

    Maintenance accepts no new workloads. Draining also terminates every VM and pod there that is not stopped.
    Removal also terminates stopped pods and removes the node's units; a stopped VM deploys on another node
    when it is restarted. Online ends maintenance or draining by the owner, but not an announced end.

    Raises NotFound for a node of another organization, Invalid NODE_DECOMMISSIONED for a removed one.
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
    """Remove an interruptible node of the caller at the deadline; without a deadline, now.

    The node accepts no new workloads from now on. Its workloads run until the deadline. A later deadline than
    the present one changes nothing.

    Raises NotFound for a node of another organization, Invalid for a notice of more than 24 hours and
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
    """Record a node's notice of its own end; `caller` is the node. Its workloads run until the deadline.

    For an interruptible node without a deadline in its notice, the notice that it was enrolled with applies.
    A persistent node must give a deadline 5 minutes to 7 days ahead, and its organization must have leave
    notices enabled. A later deadline than the present one changes nothing. Returns the node after the change.

    Raises Invalid for a deadline out of range and NODE_DECOMMISSIONED for a removed node, Conflict
    FEATURE_DISABLED.
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
    """Find nodes that are not removed although their announced end has come, the longest overdue first."""
    return list(Node.objects.leaving(Now()).order_by("terminate_at", "id").values_list("pk", flat=True))


def remove_due(node_id: UUID) -> bool:
    """Remove a node whose announced end has come by PostgreSQL's clock. Returns whether it did."""
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
    """The statusReason of running workloads on a node with an announced end; empty for other nodes."""
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
    """Remove the node. Terminate its workloads except stopped VMs, which get a statusReason."""
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
    """The actor without its address, for tenants' audit events. The node's audit event has the address."""
    return replace(actor, source_ip="")


def _leave(held: LockedNode, deadline: datetime, *, actor: Actor) -> None:
    """Announce the end and set the statusReason of running workloads. Without notice, remove the node."""
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
    """The deadline in an interruptible node's notice. A time in the past means now."""
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
    """The deadline in a persistent node's own notice."""
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
