"""When beat sends what."""

import datetime as dt
import os
import signal
from typing import Any

from celery.beat import Scheduler, Service

LONG_AGO = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
# For how long a beat that was told to stop may take to end by itself.
STOP_SECONDS = 2.0


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


def stop_on_sigterm(service: Service) -> None:
    """Have beat end within STOP_SECONDS of SIGTERM or SIGINT, whatever it is doing.

    Celery only raises SystemExit, wherever the signal happens to arrive: what it interrupts may swallow it,
    and a publish to a broker that does not answer goes on. Beat has nothing to save.
    """

    def stop(_number: int, _frame: object) -> None:
        service.stop()
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, STOP_SECONDS)
        raise SystemExit

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
