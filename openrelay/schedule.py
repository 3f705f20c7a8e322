"""When beat sends what."""

import datetime as dt
from typing import Any

from celery.beat import Scheduler

LONG_AGO = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)


def every(seconds: float, task: str) -> dict[str, dict[str, Any]]:
    """An entry of the schedule: `task` every so many seconds.

    What no worker took before the next one is due is dropped: a sweep finds all that is due, so ten of them
    in a row after a pause would find it once and nothing nine times.
    """
    return {task: {"task": task, "schedule": seconds, "options": {"expires": max(seconds, 10)}}}


class SoonScheduler(Scheduler):
    """Beat's scheduler without a file: everything is due when it starts.

    Sweeps do no harm when they run once more, and what fell due while beat was down is not kept waiting.
    """

    def setup_schedule(self) -> None:
        """Take the schedule of the application, each entry as never run."""
        super().setup_schedule()
        for entry in self.schedule.values():
            entry.last_run_at = LONG_AGO
