"""The threads that run the application, and the bounded queue before them."""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

Job = Callable[[], None]

log = logging.getLogger(__name__)

# Of the queue's places, this part is for jobs that go on, and of those this part for one client.
_PART_GOING_ON = 8
_PART_OF_ONE_CLIENT = 8


@dataclass(slots=True)
class Waiting:
    """A queued job: what to run, and what to run instead when it is not reached in time."""

    run: Job
    refuse: Job
    since: float = field(default_factory=time.monotonic)


class Threads:
    """A fixed number of threads with a queue that serves its clients in turn.

    A client with many waiting requests delays its own: each thread takes the next request of the next client.
    A full queue refuses the newest request of the client that has the most waiting. Jobs that go on after a
    first turn, such as long lists, have a smaller queue of their own, which serves clients in turn too, and
    at most a quarter of the threads.
    """

    def __init__(self, number: int, queue: int, queue_seconds: float) -> None:
        self.number = number
        self.queue = queue
        self.queue_seconds = queue_seconds
        self.waiting: OrderedDict[str, deque[Waiting]] = OrderedDict()
        self.length = 0
        self.going_on: OrderedDict[str, deque[Waiting]] = OrderedDict()
        self.going_on_length = 0
        self.going_on_queue = max(1, queue // _PART_GOING_ON)
        self.going_on_of_client = max(1, self.going_on_queue // _PART_OF_ONE_CLIENT)
        self.going_on_busy = 0
        self.going_on_most = max(1, number // 4)
        self.busy = 0
        self.finished_at = time.monotonic()
        self.lock = threading.Lock()
        # One entry for each queued job: cheaper to wait for than a condition.
        self.arrivals: SimpleQueue[None] = SimpleQueue()
        for index in range(number):
            threading.Thread(target=self._work, name=f"request-{index}", daemon=True).start()

    def put(self, client: str, run: Job, refuse: Job) -> None:
        """Queue `run` for `client`. `refuse` is called instead when there is no room or no time for it."""
        refused = None
        with self.lock:
            if self.length >= self.queue:
                largest = max(self.waiting, key=lambda name: len(self.waiting[name]))
                if largest == client:
                    refused = refuse
                else:
                    refused = self.waiting[largest].pop().refuse
                    self.length -= 1
                    if not self.waiting[largest]:
                        del self.waiting[largest]
            if refused is not refuse:
                if self.busy < self.number:
                    self.finished_at = time.monotonic()
                self.waiting.setdefault(client, deque()).append(Waiting(run, refuse))
                self.length += 1
                self.arrivals.put(None)
        if refused is not None:
            refused()

    def put_again(self, client: str, run: Job, refuse: Job) -> None:
        """Queue the next turn of a job that has had one; `refuse` is called instead when there is no room."""
        with self.lock:
            jobs = self.going_on.get(client, ())
            has_room = self.going_on_length < self.going_on_queue and len(jobs) < self.going_on_of_client
            if has_room:
                self.going_on.setdefault(client, deque()).append(Waiting(run, refuse))
                self.going_on_length += 1
                self.arrivals.put(None)
        if not has_room:
            refuse()

    def others_wait(self) -> bool:
        """Whether a job waits for a thread, or more jobs than may go on have had a turn."""
        return self.length > 0 or self.going_on_length > 0

    def seconds_without_progress(self) -> float:
        """How long no thread has finished a request although one waits; 0 while there is progress."""
        with self.lock:
            if not self.length or self.busy < self.number:
                return 0.0
            return time.monotonic() - self.finished_at

    def _take(self) -> tuple[Job, bool] | None:
        """The job that has waited longest, and whether it goes on; None when none may be taken now."""
        with self.lock:
            if self._is_going_on_next():
                job, goes_on = _next_in_turn(self.going_on), True
                self.going_on_length -= 1
                self.going_on_busy += 1
            elif self.length:
                job, goes_on = _next_in_turn(self.waiting), False
                self.length -= 1
            else:
                return None  # it was refused to make room, or enough jobs go on
            self.busy += 1
        return job.refuse if time.monotonic() - job.since > self.queue_seconds else job.run, goes_on

    def _is_going_on_next(self) -> bool:
        if not self.going_on or self.going_on_busy >= self.going_on_most:
            return False
        if not self.length:
            return True
        return next(iter(self.going_on.values()))[0].since < next(iter(self.waiting.values()))[0].since

    def _work(self) -> None:
        while True:
            self.arrivals.get()
            taken = self._take()
            if taken is None:
                continue
            job, goes_on = taken
            try:
                job()
            except Exception as error:
                # A thread that ended here would be missing from then on.
                log.error("a job of a request thread failed", exc_info=error)
            finally:
                with self.lock:
                    self.busy -= 1
                    self.finished_at = time.monotonic()
                    if goes_on:
                        self.going_on_busy -= 1
                        if self.going_on:
                            self.arrivals.put(None)  # its entry was used up while enough jobs went on


def _next_in_turn(jobs_of: OrderedDict[str, deque[Waiting]]) -> Waiting:
    """Take the next job of the next client, who goes to the end of the turn."""
    client, jobs = jobs_of.popitem(last=False)
    job = jobs.popleft()
    if jobs:
        jobs_of[client] = jobs
    return job
