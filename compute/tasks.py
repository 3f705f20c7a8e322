"""Background tasks of compute. Each calls one service, and may run twice or late."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from celery import shared_task

from compute.services.billing import balances
from compute.services.fleet import refresh
from compute.services.lifecycle import (
    account_stops,
    drain,
    interrupt,
    overdue_starts,
    overdue_teardowns,
    removed_nodes,
)
from openrelay.core.errors import TryAgain

log = logging.getLogger(__name__)


T = TypeVar("T")


def _each(due: Iterable[T], act: Callable[[T], object]) -> None:
    """Act on each item in a transaction of its own. A failure is logged and does not stop the others."""
    for one in due:
        try:
            act(one)
        except TryAgain as busy:
            log.warning("%s of %s is left to the next sweep: %s", act.__name__, one, busy)
        except Exception:
            log.exception("%s of %s failed; the next sweep tries again", act.__name__, one)


@shared_task(name="compute.tear_down", throws=(TryAgain,))
def tear_down(run_id: str) -> None:
    """Report the teardown of one run if it is overdue. The agent reads in its work that the run is to go."""
    overdue_teardowns.report_overdue(UUID(run_id))


@shared_task(name="compute.sweep_teardowns")
def sweep_teardowns() -> None:
    """Report every overdue teardown that is not reported yet."""
    _each(overdue_teardowns.overdue_ids(), overdue_teardowns.report_overdue)


@shared_task(name="compute.sweep_stuck")
def sweep_stuck() -> None:
    """Report every overdue start that is not reported yet."""
    _each(overdue_starts.stuck_ids(), overdue_starts.report_stuck)


@shared_task(name="compute.sweep_lost_nodes")
def sweep_lost_nodes() -> None:
    """Interrupt the workloads of silent nodes, node by node."""
    _each(interrupt.lost_node_ids(), interrupt.interrupt_lost)


@shared_task(name="compute.sweep_interrupted")
def sweep_interrupted() -> None:
    """Stop or terminate workloads that have been interrupted for too long."""
    _each(interrupt.overdue_ids(), interrupt.expire_interrupted)


@shared_task(name="compute.note_balance")
def note_balance(organization_id: str) -> None:
    """Record whether the balance of one organization is low or used up."""
    balances.note_balance(UUID(organization_id))


@shared_task(name="compute.sweep_accounts")
def sweep_accounts() -> None:
    """Record low and used-up balances, and stop the workloads whose grace period is over."""
    _each(balances.organization_ids_to_notify(), balances.note_balance)
    _each(account_stops.due(), account_stops.stop_due)


@shared_task(name="compute.remove_leaving_node", throws=(TryAgain,))
def remove_leaving_node(node_id: str) -> None:
    """Remove a node at its announced end."""
    drain.remove_due(UUID(node_id))


@shared_task(name="compute.sweep_leaving_nodes")
def sweep_leaving_nodes() -> None:
    """Remove every node whose announced end has come."""
    _each(drain.due_node_ids(), drain.remove_due)


@shared_task(name="compute.sweep_retired_nodes")
def sweep_retired_nodes() -> None:
    """Revoke the credentials of removed nodes whose agents have nothing left to confirm."""
    _each(removed_nodes.retired_node_ids(), removed_nodes.revoke_retired)


@shared_task(name="compute.refresh_offers")
def refresh_offers() -> None:
    """Refresh the offers of the nodes that changed, so that requests need not do it."""
    refresh.refresh()
