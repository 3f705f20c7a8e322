"""Metrics of a workload's GPUs over time."""

import datetime as dt
from dataclasses import dataclass

from django.db.models import Q

from compute.domain import states
from compute.models import UsageSession, Workload

# For each range of the API: its length and its step, in seconds.
RANGES = {
    "1h": (3600, 60),
    "6h": (6 * 3600, 300),
    "24h": (24 * 3600, 900),
    "7d": (7 * 24 * 3600, 3600),
}


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Time steps from `start`, each of `step_seconds`, and the reason why they have no samples."""

    start: dt.datetime
    end: dt.datetime
    step_seconds: int
    status: str
    reason: str
    detail: str

    @property
    def points(self) -> int:
        """The number of time steps."""
        return int((self.end - self.start).total_seconds()) // self.step_seconds


def telemetry(workload: Workload, range_: str, at: dt.datetime) -> Telemetry:
    """Make the metrics of a workload's GPUs over one of `RANGES` up to `at`.

    The host cannot read GPUs that are passed through to a VM.
    """
    seconds, step = RANGES[range_]
    start, status = at - dt.timedelta(seconds=seconds), "unavailable"
    if not workload.gpu_count:
        reason, detail = "no_gpus_recorded", "It has no GPUs."
    elif workload.kind == Workload.Kind.VM:
        reason = "accelerator_passthrough"
        detail = "The GPUs are passed through to the VM; only the VM itself can read them."
    elif workload.status in (states.PENDING, states.DEPLOYING):
        reason, detail = "guest_not_started", "The pod has not started yet."
    elif not _has_run_since(workload, start):
        reason, detail = "no_session_in_range", "The pod did not run in that time."
    else:
        status, reason = "degraded", "source_unreachable"
        detail = "There are no samples of these GPUs here."
    return Telemetry(start, at, step, status, reason, detail)


def _has_run_since(workload: Workload, since: dt.datetime) -> bool:
    """Whether the workload ran after `since`."""
    rows = UsageSession.objects.filter(workload=workload)
    return rows.filter(Q(ended_at=None) | Q(ended_at__gt=since)).exists()
