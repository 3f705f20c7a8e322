"""Interrupt workloads whose node went offline, and end those that stay interrupted for too long.

An interrupted workload keeps its node, GPUs and disk, and is not billed. It runs again when the agent reports
explicitly that its guest runs.
"""

import datetime as dt
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import Exists, OuterRef

from compute.domain import states
from compute.models import Workload
from compute.services.lifecycle.claims import release_claims
from compute.services.lifecycle.evict import evict
from compute.services.lifecycle.transitions import move, move_all
from nodes.models import Node
from nodes.services.liveness import offline_since
from nodes.services.locking import LockedNode, locked
from openrelay.audit.services.record import SYSTEM, Actor
from openrelay.core.clock import Now
from openrelay.core.errors import NotFound

# How long a workload may be interrupted.
GIVE_UP_AFTER: Final = dt.timedelta(days=7)
# The statusReason of a pod whose node is online.
JOB_GIVEN_UP: Final = "its job was lost on its node and did not come up again for seven days"
_ON_THE_NODE: Final = (states.DEPLOYING, states.RUNNING)


def lost_node_ids() -> list[UUID]:
    """Find silent nodes with workloads that are still deploying or running."""
    affected = Workload.objects.filter(node=OuterRef("pk"), status__in=_ON_THE_NODE)
    silent = Node.objects.silent(Now()).filter(Exists(affected)).order_by()
    return list(silent.values_list("pk", flat=True))


def interrupt_lost(node_id: UUID) -> list[Workload]:
    """Interrupt the deploying and running workloads of a silent node, and return them.

    The statusReason is `node_lost`. The interruption is dated to when the node went offline, even when the
    sweep runs late. It is decided by PostgreSQL's clock under the node's lock: a node that called in the
    meantime keeps its workloads.
    """
    try:
        with locked(node_id) as held:
            if not Node.objects.silent(held.at).filter(pk=node_id).exists():
                return []
            affected = list(
                Workload.objects.filter(node=held.node, status__in=_ON_THE_NODE).order_by("created_at", "id")
            )
            silent_since = offline_since(held.node)
            interrupt(held, affected, reason=states.NODE_LOST, actor=SYSTEM, since=silent_since)
            return affected
    except NotFound:
        return []


def interrupt(
    held: LockedNode,
    workloads: Sequence[Workload],
    *,
    reason: str,
    actor: Actor,
    since: datetime | None = None,
) -> None:
    """Interrupt deploying or running workloads of the locked node. They keep node, GPUs and disk.

    The node went silent, or a pod lost its supervisor or job on a live node. `since` is when that happened,
    if it is noticed late.
    """
    for status in _ON_THE_NODE:
        group = [workload for workload in workloads if workload.status == status]
        move_all(group, states.INTERRUPTED, reason=reason, actor=actor, at=held.at, since=since)


def overdue_ids() -> list[UUID]:
    """Find workloads that have been interrupted for `GIVE_UP_AFTER` or longer, the longest first."""
    overdue = Workload.objects.filter(
        status=states.INTERRUPTED, interrupted_at__lte=Now() - GIVE_UP_AFTER
    ).order_by("interrupted_at", "id")
    return list(overdue.values_list("pk", flat=True))


def expire_interrupted(workload_id: UUID) -> bool:
    """End the interruption of a workload that was interrupted for seven days.

    A VM is stopped and keeps its disk. A pod is terminated, and so is a VM whose node has come to its
    announced end. The node tears down what is left of the guest when it returns.

    Decided again under the node's lock. Returns whether this call changed the workload.
    """
    workload = Workload.objects.filter(pk=workload_id).first()
    if workload is None or workload.node_id is None:
        return False
    with locked(workload.node_id) as held:
        workload = Workload.objects.filter(
            pk=workload_id,
            node=held.node,
            status=states.INTERRUPTED,
            interrupted_at__lte=held.at - GIVE_UP_AFTER,
        ).first()
        if workload is None:
            return False
        if held.is_removed:
            evict(held, [workload], reason=states.NODE_REMOVED, actor=SYSTEM)
            return True
        if workload.kind == Workload.Kind.POD:
            lost = workload.status_reason == states.NODE_LOST
            evict(held, [workload], reason=states.NODE_LOST if lost else JOB_GIVEN_UP, actor=SYSTEM)
            return True
        move(workload, states.STOPPED, reason=states.NODE_LOST, actor=SYSTEM, at=held.at)
        release_claims([workload.pk], held.at)
    return True
