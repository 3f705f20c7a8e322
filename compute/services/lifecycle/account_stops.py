"""Stopping what runs for organizations that may not have it any more: their account was suspended, or their
balance is used up, for longer than the grace period; or they were deleted.

Level-triggered, node by node: find what is due, lock the node, decide again, stop.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db.models import Q, QuerySet

from compute.domain import states
from compute.models import Workload
from compute.services.billing.balances import balance_of
from compute.services.billing.usage_sessions import unbilled
from compute.services.lifecycle.claims import release_claims
from compute.services.lifecycle.evict import evict
from compute.services.lifecycle.transitions import move_all
from nodes.querysets import Moment
from nodes.services.locking import LockedNode, locked
from openrelay.audit.services.record import SYSTEM
from openrelay.core.clock import Now
from openrelay.identity.models import Organization

# Of one organization on one node, in one transaction.
BATCH: Final = 100
# How long the lock of a node is waited for; the next sweep tries a busy one again.
_LOCK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Due:
    """An organization and a node on which workloads of it have to be stopped or ended."""

    organization_id: UUID
    node_id: UUID


def due() -> list[Due]:
    """Where workloads have to be stopped or ended now. Four queries, whatever there is."""
    on_nodes = Workload.objects.filter(node__isnull=False)
    holding = list(on_nodes.filter(status__in=states.HOLDING, organization__in=_ending(Now())))
    free = unbilled(holding, Now())
    deleted = on_nodes.active().filter(organization__deleted_at__isnull=False)
    pairs = {(workload.organization_id, workload.node_id) for workload in holding if workload.pk not in free}
    pairs |= set(deleted.order_by().values_list("organization", "node").distinct())
    return [Due(*pair) for pair in sorted(pairs)]


def stop_due(where: Due) -> int:
    """Stop what has to be stopped of that organization on that node, `BATCH` at most; returns how many.

    A workload that is not billed runs on, unless its organization was deleted: then everything ends. What
    deploys, runs or is interrupted is stopped and keeps its disk; what waits for its units, and so has none,
    fails. Whatever is on a node that has come to its announced end goes with its node.

    Raises NotFound when there is no such node, NodeBusy when others hold its lock.
    """
    with locked(where.node_id, seconds=_LOCK_SECONDS) as held:
        organization = Organization.objects.get(pk=where.organization_id)
        rows = Workload.objects.filter(organization=organization, node=held.node).order_by("created_at", "id")
        if organization.deleted_at is not None:
            ending = list(rows.active()[:BATCH])
            return len(evict(held, ending, reason=states.ORGANIZATION_DELETED, actor=SYSTEM))
        reason = _reason(organization, held.at)
        if held.is_removed or reason is None:
            return 0
        workloads = list(rows.filter(status__in=states.HOLDING))
        free = unbilled(workloads, held.at)
        stopping = [workload for workload in workloads if workload.pk not in free][:BATCH]
        _stop(held, stopping, reason)
        return len(stopping)


def _stop(held: LockedNode, workloads: list[Workload], reason: str) -> None:
    waiting = [workload for workload in workloads if workload.status == states.PENDING]
    others = [workload for workload in workloads if workload.status != states.PENDING]
    move_all(waiting, states.FAILED, reason=reason, actor=SYSTEM, at=held.at)
    move_all(others, states.STOPPED, reason=reason, actor=SYSTEM, at=held.at)
    release_claims([workload.pk for workload in workloads], held.at)


def _ending(at: Moment) -> QuerySet[Organization]:
    """Organizations whose workloads are to be stopped at `at`, as far as was noted."""
    return Organization.objects.live().filter(
        Q(suspended_at__lte=at - _minutes(settings.SUSPENSION_GRACE_MINUTES))
        | Q(balance_depleted_at__lte=at - _minutes(settings.BALANCE_GRACE_MINUTES))
    )


def _reason(organization: Organization, at: dt.datetime) -> str | None:
    """Why the organization's workloads are stopped at `at`; None when they are not, or not any more."""
    suspended_at, depleted_at = organization.suspended_at, organization.balance_depleted_at
    if suspended_at is not None and suspended_at <= at - _minutes(settings.SUSPENSION_GRACE_MINUTES):
        return states.ACCOUNT_SUSPENDED
    if depleted_at is None or depleted_at > at - _minutes(settings.BALANCE_GRACE_MINUTES):
        return None
    balance = balance_of(organization)
    return states.BALANCE_USED_UP if balance is not None and balance.is_depleted else None


def _minutes(number: int) -> dt.timedelta:
    return dt.timedelta(minutes=number)
