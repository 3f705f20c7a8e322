"""The threads that run the application, and the bounded queue before them."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

Job = Callable[[], None]


@dataclass(slots=True)
class Waiting:
    """A queued job: what to run, and what to run instead when it is not reached in time."""

    run: Job
    refuse: Job
    since: float = field(default_factory=time.monotonic)


class Threads:
    """A fixed number of threads with a queue that serves its clients in turn.

    A client with many waiting requests delays its own: each thread takes the next request of the next client.
    A full queue refuses the newest request of the client that has the most waiting.
    """

    def __init__(self, number: int, queue: int, queue_seconds: float) -> None:
        self.number = number
        self.queue = queue
        self.queue_seconds = queue_seconds
        self.waiting: OrderedDict[str, deque[Waiting]] = OrderedDict()
        self.length = 0
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

    def others_wait(self) -> bool:
        """Whether a request waits for a thread."""
        return self.length > 0

    def seconds_without_progress(self) -> float:
        """How long no thread has finished a request although one waits; 0 while there is progress."""
        with self.lock:
            if not self.length or self.busy < self.number:
                return 0.0
            return time.monotonic() - self.finished_at

    def _take(self) -> Job | None:
        with self.lock:
            if not self.length:
                return None  # it was refused to make room
            client, jobs = self.waiting.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self.waiting[client] = jobs
            self.length -= 1
            self.busy += 1
        return job.refuse if time.monotonic() - job.since > self.queue_seconds else job.run

    def _work(self) -> None:
        while True:
            self.arrivals.get()
            job = self._take()
            if job is None:
                continue
            try:
                job()
            finally:
                with self.lock:
                    self.busy -= 1
                    self.finished_at = time.monotonic()
