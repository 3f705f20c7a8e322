"""Stop the workloads of suspended, deleted and out-of-balance organizations.

A suspension and a used-up balance stop workloads after a grace period; a deletion ends them at once. The
sweep is level-triggered and goes node by node: it finds what is due, locks the node, decides again and stops.
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
from compute.services.billing.usage_sessions import find_unbilled_ids
from compute.services.lifecycle.claims import release_claims
from compute.services.lifecycle.evict import evict
from compute.services.lifecycle.transitions import move_all
from nodes.querysets import Moment
from nodes.services.locking import LockedNode, locked
from openrelay.audit.services.record import SYSTEM
from openrelay.core.clock import Now
from openrelay.identity.models import Organization

# The most workloads of one organization on one node that one transaction stops.
BATCH: Final = 100
# How long the sweep waits for the lock of a node. The next sweep tries a busy node again.
_LOCK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class DueStop:
    """An organization, and a node on which its workloads must be stopped or ended."""

    organization_id: UUID
    node_id: UUID


def due() -> list[DueStop]:
    """Find the organizations and nodes where workloads must be stopped or ended now. Always four queries."""
    on_nodes = Workload.objects.filter(node__isnull=False)
    holding = list(
        on_nodes.filter(status__in=states.HOLDING, organization__in=_organizations_past_grace(Now()))
    )
    free = find_unbilled_ids(holding, Now())
    deleted = on_nodes.active().filter(organization__deleted_at__isnull=False)
    pairs = {(workload.organization_id, workload.node_id) for workload in holding if workload.pk not in free}
    pairs |= set(deleted.order_by().values_list("organization", "node").distinct())
    return [DueStop(*pair) for pair in sorted(pairs)]


def stop_due(where: DueStop) -> int:
    """Stop the due workloads of that organization on that node, at most `BATCH`. Returns how many.

    The workloads of a deleted organization are all terminated. Otherwise a workload that is not billed keeps
    running. A deploying, running or interrupted workload is stopped and keeps its disk. A pending workload
    has no disk yet, so it fails. On a node whose announced end has come this does nothing: the removal of the
    node ends its workloads.

    Raises NotFound when there is no such node, NodeBusy when another transaction holds its lock.
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
        free = find_unbilled_ids(workloads, held.at)
        stopping = [workload for workload in workloads if workload.pk not in free][:BATCH]
        _stop(held, stopping, reason)
        return len(stopping)


def _stop(held: LockedNode, workloads: list[Workload], reason: str) -> None:
    waiting = [workload for workload in workloads if workload.status == states.PENDING]
    others = [workload for workload in workloads if workload.status != states.PENDING]
    move_all(waiting, states.FAILED, reason=reason, actor=SYSTEM, at=held.at)
    move_all(others, states.STOPPED, reason=reason, actor=SYSTEM, at=held.at)
    release_claims([workload.pk for workload in workloads], held.at)


def _organizations_past_grace(at: Moment) -> QuerySet[Organization]:
    """Organizations whose grace period, by the stored notices, is over at `at`."""
    return Organization.objects.live().filter(
        Q(suspended_at__lte=at - _minutes(settings.SUSPENSION_GRACE_MINUTES))
        | Q(balance_depleted_at__lte=at - _minutes(settings.BALANCE_GRACE_MINUTES))
    )


def _reason(organization: Organization, at: dt.datetime) -> str | None:
    """The statusReason with which the organization's workloads stop at `at`; None when they do not stop."""
    suspended_at, depleted_at = organization.suspended_at, organization.balance_depleted_at
    if suspended_at is not None and suspended_at <= at - _minutes(settings.SUSPENSION_GRACE_MINUTES):
        return states.ACCOUNT_SUSPENDED
    if depleted_at is None or depleted_at > at - _minutes(settings.BALANCE_GRACE_MINUTES):
        return None
    balance = balance_of(organization)
    return states.BALANCE_USED_UP if balance is not None and balance.is_depleted else None


def _minutes(number: int) -> dt.timedelta:
    return dt.timedelta(minutes=number)
