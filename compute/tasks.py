"""Compute's background work: each task calls one service, and may run twice or late."""

from uuid import UUID

from celery import shared_task

from compute.services import teardown


@shared_task(name="compute.tear_down")
def tear_down(run_id: str) -> None:
    """See after one run that is to go; the node's agent is told of it whenever it asks for its work."""
    teardown.report_overdue(UUID(run_id))


@shared_task(name="compute.sweep_teardowns")
def sweep_teardowns() -> None:
    """Report every run whose teardown is overdue and that nobody was told of."""
    for run_id in teardown.overdue_ids():
        teardown.report_overdue(run_id)
