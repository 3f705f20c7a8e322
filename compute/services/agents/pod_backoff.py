"""When a pod whose job is lost again and again may start next: computed from its runs and their ends.

The first loss costs no time. Each one in a row after it doubles the wait, up to a limit; a run that lasted
ends the row. Nothing is stored: a run is told to its node once its time has come.
"""

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import Q

from compute.models import Run, Workload
from openrelay.core.clock import Now

FIRST_WAIT: Final = dt.timedelta(seconds=10)
LONGEST_WAIT: Final = dt.timedelta(minutes=5)
# A run that was there for so long was not lost for what is wrong with it.
LASTED: Final = dt.timedelta(minutes=10)
# More in a row wait no longer, and are not counted.
_LOOK_BACK: Final = 16


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that is over: from when to when it was there, and whether it was lost though nobody ended it."""

    created_at: datetime
    closed_at: datetime
    lost: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """How many runs in a row were lost, and when the next may start; None for whenever."""

    losses: int
    until: datetime | None

    @property
    def times(self) -> str:
        """How often it was lost, in words."""
        return f"{self.losses} times" if self.losses < _LOOK_BACK else "many times"


def wait_after(ended: Sequence[Ended]) -> Wait:
    """What the next run waits for, by the runs before it, the oldest first."""
    losses, until = 0, None
    for run in ended:
        began = max(run.created_at, until) if until is not None else run.created_at
        if not run.lost:
            losses, until = 0, None
            continue
        losses = 1 if run.closed_at - began >= LASTED else losses + 1
        delay = min(FIRST_WAIT * 2 ** min(losses - 2, _LOOK_BACK), LONGEST_WAIT) if losses > 1 else None
        until = None if delay is None else run.closed_at + delay
    return Wait(losses, until)


def wait_of(pod: Workload, number: int) -> Wait:
    """What the pod's run of that number waits for. One query."""
    rows = Run.objects.filter(workload=pod, number__gte=number - _LOOK_BACK, number__lt=number)
    return wait_after([_ended(run) for run in rows.order_by("number") if run.closed_at is not None])


def held_back(runs: Collection[Run]) -> set[UUID]:
    """Those of the runs, with their workloads, whose time to start has not come by the database's clock.

    One query, and none where no pod was ever started again.
    """
    waiting = {
        run.workload_id: run
        for run in runs
        if run.number > 2
        and run.desired == Run.Desired.RUNNING
        and run.observed == Run.Observed.NOTHING
        and run.workload.kind == Workload.Kind.POD
    }
    if not waiting:
        return set()
    earlier = Q()
    for workload_id, run in waiting.items():
        earlier |= Q(workload_id=workload_id, number__gte=run.number - _LOOK_BACK, number__lt=run.number)
    ended: dict[UUID, list[Ended]] = {}
    now: datetime | None = None
    rows = Run.objects.filter(earlier, closed_at__isnull=False).annotate(now=Now())
    for row in rows.order_by("workload_id", "number"):
        now = row.now
        ended.setdefault(row.workload_id, []).append(_ended(row))
    found = set()
    for workload_id, run in waiting.items():
        until = wait_after(ended.get(workload_id, ())).until
        if until is not None and now is not None and until > now:
            found.add(run.pk)
    return found


def _ended(run: Run) -> Ended:
    if run.closed_at is None:
        raise ValueError(f"{run} is not over")
    lost = run.desired == Run.Desired.RUNNING and run.observed == Run.Observed.GONE
    return Ended(run.created_at, run.closed_at, lost)
