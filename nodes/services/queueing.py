"""Limit how many threads of this process wait for the lock of one node.

Without a limit, a session that keeps a node's row locked would stop the process: each request for that node
blocks one thread, until no thread is left for other requests.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from uuid import UUID

from django.conf import settings

from openrelay.core.errors import TryAgain

#: The fraction of `DATABASE_LOCK_TIMEOUT` that a thread may wait while the queue is full.
SHORT_WAIT_FRACTION = 0.2


class NodeBusy(TryAgain):
    """503 TRY_AGAIN: the wait for the lock of the node's row timed out."""

    def __init__(self) -> None:
        super().__init__("Other requests are changing this node and take longer than usual. Try again.")


class _LockQueues:
    """The lock waits of this process: the start time of each, by node. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self.mutex = Lock()
        self.waits: dict[UUID, list[float]] = {}
        self.waiting = 0
        # Nodes for which a wait timed out, and until when further waits are refused.
        self.blocked_until: dict[UUID, float] = {}

    def enter(self, node_id: UUID, full_wait_seconds: float) -> tuple[float, float]:
        """Join the node's queue. Returns the start time of the wait and its limit in seconds.

        Raises NodeBusy if a wait for this node timed out shortly before, or if the queue is full and its
        oldest wait has already lasted longer than the short limit.
        """
        threads = settings.PROCESS_THREADS
        short_wait_seconds = full_wait_seconds * SHORT_WAIT_FRACTION
        with self.mutex:
            now = time.monotonic()
            if now < self.blocked_until.get(node_id, now):
                raise NodeBusy()
            node_waits = self.waits.get(node_id, [])
            is_crowded = threads and (
                len(node_waits) >= max(1, threads // 2) or self.waiting >= max(1, threads * 3 // 4)
            )
            if is_crowded and node_waits and now - node_waits[0] > short_wait_seconds:
                raise NodeBusy()
            self.waits.setdefault(node_id, []).append(now)
            self.waiting += 1
        return now, short_wait_seconds if is_crowded else full_wait_seconds

    def leave(self, node_id: UUID, started_at: float) -> None:
        """Leave the node's queue, whether or not the lock was acquired."""
        with self.mutex:
            node_waits = self.waits[node_id]
            node_waits.remove(started_at)
            self.waiting -= 1
            if not node_waits:
                del self.waits[node_id]

    def block(self, node_id: UUID, seconds: float) -> None:
        """Refuse further waits for the node for `seconds`, because a full wait timed out."""
        now = time.monotonic()
        with self.mutex:
            self.blocked_until = {node: until for node, until in self.blocked_until.items() if until > now}
            self.blocked_until[node_id] = now + seconds


_queues = _LockQueues()


@contextmanager
def lock_wait(node_id: UUID, *, max_seconds: float | None = None) -> Iterator[float | None]:
    """Yield for how many seconds the block may wait for the lock of the node's row; None means no limit.

    `max_seconds` is the caller's own limit. At most half of the process's threads wait for one node for the
    full `DATABASE_LOCK_TIMEOUT`, and at most three quarters for all nodes together. Any further thread waits
    for SHORT_WAIT_FRACTION of it. Raises NodeBusy without waiting if a wait would probably time out (see
    `_LockQueues.enter`).
    """
    full_wait_seconds: float = settings.DATABASE_LOCK_TIMEOUT
    if not full_wait_seconds:
        yield max_seconds
        return
    started_at, seconds = _queues.enter(node_id, full_wait_seconds)
    try:
        yield seconds if max_seconds is None else min(seconds, max_seconds)
    except NodeBusy:
        if seconds >= full_wait_seconds and time.monotonic() - started_at >= full_wait_seconds:
            _queues.block(node_id, full_wait_seconds * SHORT_WAIT_FRACTION)
        raise
    finally:
        _queues.leave(node_id, started_at)
