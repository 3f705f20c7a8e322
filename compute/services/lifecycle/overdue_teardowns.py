"""Report teardowns that are overdue, and close occupancies by an operator's override.

The agent reads in its work which runs are to be gone. The work repeats them until the agent confirms.
"""

import datetime as dt
import logging
from uuid import UUID

from django.conf import settings

from compute.models import Run
from compute.querysets import RunQuerySet
from compute.services.lifecycle.claims import close, let_waiting_deploy
from nodes.services.locking import locked, locked_for
from openrelay.audit.services.record import SYSTEM, record
from openrelay.core import clock
from openrelay.core.errors import Conflict, Invalid, NotFound
from openrelay.identity.caller import Caller

log = logging.getLogger(__name__)

OVERDUE_AFTER = dt.timedelta(seconds=settings.TEARDOWN_OVERDUE_SECONDS)


def _overdue(at: dt.datetime | clock.Now) -> RunQuerySet:
    """Runs whose teardown is overdue at `at` and not reported yet."""
    rows: RunQuerySet = Run.objects.being_torn_down().filter(
        gone_asked_at__lte=at - OVERDUE_AFTER, overdue_reported_at=None
    )
    return rows


def overdue_ids() -> list[UUID]:
    """Find runs whose teardown is overdue and not reported yet, the longest overdue first."""
    return list(_overdue(clock.Now()).order_by("gone_asked_at", "id").values_list("pk", flat=True))


def report_overdue(run_id: UUID) -> bool:
    """Report, once, that the teardown of the run is overdue: its node has not confirmed it.

    Returns whether this call reported it. A teardown that is confirmed, not overdue or already reported is
    not reported.
    """
    # Read without the lock first: this is called for every teardown, and most are confirmed in time.
    run = _overdue(clock.Now()).filter(pk=run_id).first()
    if run is None:
        return False
    with locked(run.node_id) as held:
        run = _overdue(held.at).filter(pk=run_id).select_related("workload").first()
        if run is None or run.gone_asked_at is None:
            return False
        Run.objects.filter(pk=run_id).update(overdue_reported_at=held.at)
        record(
            SYSTEM,
            "vm.teardown_overdue",
            target_type="vm",
            target_id=run.workload_id,
            org_id=held.node.organization_id,
            after={
                "runId": str(run.pk),
                "nodeId": str(held.node.pk),
                "askedAt": clock.rfc3339(run.gone_asked_at),
                "observed": run.observed or None,
            },
            at=held.at,
        )
    log.warning("run %s of vm %s is not confirmed gone by node %s", run.pk, run.workload_id, run.node_id)
    return True


def close_occupancy_by_override(*, caller: Caller, run_id: UUID, reason: str) -> Run:
    """Close a run and its occupancies on an operator's statement that the guest is gone.

    It replaces the agent's report when the agent cannot send one. The units are free afterwards. They are
    occupied again if the agent reports the guest alive.

    Raises NotFound for a caller that is not an operator and for an unknown run, Invalid without a reason,
    Conflict when the run is wanted or has already ended.
    """
    if not caller.operates("compute.operate"):
        raise NotFound()
    if not reason.strip():
        raise Invalid("reason is required: say how you know that the guest is gone.")
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise NotFound()
    with locked_for(run.node_id, caller) as (held, caller):
        if not caller.operates("compute.operate"):
            raise NotFound()
        run = Run.objects.select_related("workload").filter(pk=run_id).first()
        if run is None:
            raise NotFound()
        if run.closed_at is not None:
            raise Conflict("The run has already ended. There is nothing to override.")
        if run.desired != Run.Desired.GONE:
            raise Conflict(
                f"The run is to run: {run.workload.name} is {run.workload.status}. Terminate it first."
            )
        close(run, by=f"operator:{caller.principal}"[:80], at=held.at, override_reason=reason[:500])
        record(
            caller.actor,
            "vm.occupancy_overridden",
            target_type="vm",
            target_id=run.workload_id,
            org_id=held.node.organization_id,
            after={"runId": str(run.pk), "nodeId": str(held.node.pk)},
            reason=reason,
            at=held.at,
        )
        let_waiting_deploy(held.node, actor=caller.actor, at=held.at)
        closed: Run = run
    return closed
