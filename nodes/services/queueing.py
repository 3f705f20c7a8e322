"""How many threads of this process may wait for the lock of a node, so that one node cannot have them all.

A session that keeps a node's row locked would otherwise stop the process: each request for that node takes a
thread, until none is left for anything else.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from uuid import UUID

from django.conf import settings

from openrelay.core.errors import TryAgain

#: The part of the usual wait that remains for a thread that comes when enough others wait already.
SHORT_WAIT_FRACTION = 0.2


class NodeBusy(TryAgain):
    """503 TRY_AGAIN: the lock of the node's row was not to be had in time."""

    def __init__(self) -> None:
        super().__init__("Others are changing this node, for longer than usual. Try again.")


class _LockQueues:
    """The waits of this process, by node: when each began. All times are of the monotonic clock."""

    def __init__(self) -> None:
        self.guard = Lock()
        self.waits: dict[UUID, list[float]] = {}
        self.waiting = 0
        # Nodes whose lock somebody waited for in vain, and until when nobody else tries.
        self.stuck: dict[UUID, float] = {}

    def enter(self, node_id: UUID, usual: float) -> tuple[float, float]:
        """Join the queue; returns when this wait began and for how many seconds it may last.

        Raises NodeBusy where it is known that a wait would be in vain.
        """
        threads = settings.PROCESS_THREADS
        brief = usual * SHORT_WAIT_FRACTION
        with self.guard:
            now = time.monotonic()
            if now < self.stuck.get(node_id, now):
                raise NodeBusy()
            there = self.waits.get(node_id, [])
            crowded = threads and (
                len(there) >= max(1, threads // 2) or self.waiting >= max(1, threads * 3 // 4)
            )
            if crowded and there and now - there[0] > brief:
                raise NodeBusy()
            self.waits.setdefault(node_id, []).append(now)
            self.waiting += 1
        return now, brief if crowded else usual

    def leave(self, node_id: UUID, since: float) -> None:
        """Leave the queue, with the lock or without."""
        with self.guard:
            there = self.waits[node_id]
            there.remove(since)
            self.waiting -= 1
            if not there:
                del self.waits[node_id]

    def note(self, node_id: UUID, stuck_seconds: float) -> None:
        """Note that a whole wait was in vain."""
        now = time.monotonic()
        with self.guard:
            self.stuck = {node: until for node, until in self.stuck.items() if until > now}
            self.stuck[node_id] = now + stuck_seconds


_queues = _LockQueues()


@contextmanager
def lock_wait(node_id: UUID, *, max_seconds: float | None = None) -> Iterator[float | None]:
    """Wait for the lock of the node's row in the block, no longer than the seconds that it is given; None for
    no limit. `max_seconds` is a limit of the caller's own, in seconds.

    Of the threads of this process, half wait for one node and three quarters for nodes altogether, each for
    `DATABASE_LOCK_TIMEOUT`. Others wait a fifth of that, or not at all once it is known to be in vain. Raises
    NodeBusy then.
    """
    usual: float = settings.DATABASE_LOCK_TIMEOUT
    if not usual:
        yield max_seconds
        return
    since, seconds = _queues.enter(node_id, usual)
    try:
        yield seconds if max_seconds is None else min(seconds, max_seconds)
    except NodeBusy:
        if seconds >= usual and time.monotonic() - since >= usual:
            _queues.note(node_id, usual * SHORT_WAIT_FRACTION)
        raise
    finally:
        _queues.leave(node_id, since)
