"""Report workloads whose start is overdue, once for each run. Their claims are not released for it."""

import datetime as dt
import logging
from uuid import UUID

from django.conf import settings
from django.db.models.functions import Coalesce

from compute.domain import states
from compute.models import Run
from compute.querysets import RunQuerySet
from compute.services.lifecycle.claims import find_awaited_runs
from nodes.services.locking import locked
from openrelay.audit.services.record import SYSTEM, record
from openrelay.core import clock

log = logging.getLogger(__name__)

STUCK_AFTER = dt.timedelta(seconds=settings.DEPLOY_OVERDUE_SECONDS)


def _stuck(before: dt.datetime | clock.Now) -> RunQuerySet:
    """Runs that are not reported yet and were deploying for `STUCK_AFTER` or longer at `before`."""
    rows: RunQuerySet = (
        Run.objects.wanted()
        .filter(workload__status=states.DEPLOYING, stuck_reported_at=None)
        .annotate(since=Coalesce("workload__status_since", "workload__created_at"))
        .filter(since__lte=before - STUCK_AFTER)
    )
    return rows


def stuck_ids() -> list[UUID]:
    """Find runs whose start is overdue and not reported yet, the oldest first."""
    return list(_stuck(clock.Now()).order_by("created_at", "id").values_list("pk", flat=True))


def report_stuck(run_id: UUID) -> bool:
    """Report, once, that the run's workload has been deploying for too long. Returns whether this call did.

    The workload keeps its node, GPUs and disk. It may still start, and its user may stop or terminate it.
    """
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        return False
    with locked(run.node_id) as held:
        run = _stuck(held.at).filter(pk=run_id).select_related("workload").first()
        if run is None:
            return False
        Run.objects.filter(pk=run_id).update(stuck_reported_at=held.at)
        record(
            SYSTEM,
            "vm.deploy_overdue",
            target_type="vm",
            target_id=run.workload_id,
            org_id=run.workload.organization_id,
            after={
                "runId": str(run.pk),
                "nodeId": str(run.node_id),
                "since": clock.rfc3339(run.since),
                "observed": run.observed or None,
                "waitsFor": [str(other) for other in find_awaited_runs([run]).get(run.pk, [])],
            },
            at=held.at,
        )
    log.warning("vm %s does not come up on node %s", run.workload_id, run.node_id)
    return True
