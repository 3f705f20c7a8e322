"""The one lock: every change of who holds what on a node is made under its row's lock."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import OperationalError, transaction

from nodes.models import Node
from nodes.services.queueing import NodeBusy, lock_wait
from openrelay.core import clock
from openrelay.core.errors import NotFound
from openrelay.core.idempotency import NO_GUARD, IdempotencyGuard
from openrelay.core.rows import NOTHING, Params, Question, Reading, array, build, columns, query_all
from openrelay.identity.caller import Caller
from openrelay.identity.services.callers import rereading

T = TypeVar("T")

# The node's row and nothing else, by primary key, without a join: under READ COMMITTED a second predicate
# could make a waiter miss the row it waited for. FOR NO KEY UPDATE lets others insert rows that reference the
# node, such as heartbeats. Its id is kept in the transaction, for what is read next.
_LOCK = """
SELECT {columns}, set_config('openrelay.locked_node', id::text, true) FROM (
    SELECT {columns} FROM nodes_node WHERE id = %s::uuid FOR NO KEY UPDATE
) node
"""
# One after the other, in the order given: the limit ends it at the first that no other transaction holds.
_LOCK_FIRST = """
SELECT {columns}, set_config('openrelay.locked_node', id::text, true)
FROM unnest(%s::uuid[]) AS wanted, LATERAL (
    SELECT {columns} FROM nodes_node WHERE id = wanted FOR NO KEY UPDATE SKIP LOCKED
) node LIMIT 1
"""
_SET_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', %s, true)"
_LOCK_NOT_AVAILABLE_SQLSTATE = "55P03"
#: The node that the transaction locked last, in a statement that is read along with the lock.
LOCKED_NODE = "nullif(current_setting('openrelay.locked_node', true), '')::uuid"


@dataclass(frozen=True, slots=True)
class LockedNode:
    """A node whose row this transaction holds, and the one moment at which it decides.

    `read` is what was to be read at that moment. With `closing`, what is decided is the last that is done.
    """

    node: Node
    at: datetime
    read_result: Any = None
    closing: bool = False

    @property
    def is_removed(self) -> bool:
        """Whether the node was removed or has come to its announced end, whoever has noticed."""
        node = self.node
        return node.removed_at is not None or (node.terminate_at is not None and node.terminate_at <= self.at)


@contextmanager
def locked(node_id: UUID, *, seconds: float | None = None) -> Iterator[LockedNode]:
    """One transaction for the platform itself: lock the node, then read the clock.

    The lock is waited for as long as usual, and no longer than `seconds`. Raises NotFound when there is no
    such node, NodeBusy when its lock is not to be had in time.
    """
    with transaction.atomic():
        found = _wait_for_lock_and_query(node_id, clock.asking(NOTHING), seconds)
        if found is None:
            raise NotFound()
        node, (at, _) = found
        yield LockedNode(node, at)


@contextmanager
def locked_for(
    node_id: UUID,
    caller: Caller,
    *,
    guard: IdempotencyGuard = NO_GUARD,
    reading: Reading = NOTHING,
    seconds: float | None = None,
) -> Iterator[tuple[LockedNode, Caller]]:
    """One transaction for `caller`: take `guard`, lock the node, read clock and rights, and `reading`.

    The lock is waited for as long as usual, and no longer than `seconds`. Raises NotFound when there is no
    such node, NodeBusy when its lock is not to be had in time, and what `reread` and `guard.begin` raise.
    """
    with transaction.atomic():
        guard.begin()
        found = _wait_for_lock_and_query(node_id, rereading(caller, reading), seconds)
        if found is None:
            raise NotFound()
        node, (caller, at, read) = found
        yield LockedNode(node, at, read, closing=not guard.has_key), caller


@contextmanager
def first_locked_for(
    node_ids: Sequence[UUID],
    caller: Caller,
    *,
    guard: IdempotencyGuard = NO_GUARD,
    reading: Reading = NOTHING,
) -> Iterator[tuple[LockedNode, Caller] | None]:
    """The same for the first of those nodes, in their order, that no other transaction holds; None when there
    is none.
    """
    with transaction.atomic():
        guard.begin()
        found = _lock_and_query(_LOCK_FIRST, [array(node_ids)], rereading(caller, reading))
        if found is None:
            yield None
            return
        node, (caller, at, read) = found
        yield LockedNode(node, at, read, closing=not guard.has_key), caller


def _wait_for_lock_and_query(
    node_id: UUID, question: Question[T], seconds: float | None = None
) -> tuple[Node, T] | None:
    """Wait for the lock of one node, then ask. Raises NodeBusy when it is not to be had in time."""
    with lock_wait(node_id, max_seconds=seconds) as limit:
        try:
            return _lock_and_query(_LOCK, [node_id], question, seconds=limit)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) == _LOCK_NOT_AVAILABLE_SQLSTATE:
                raise NodeBusy() from error
            raise


def _lock_and_query(
    lock: str, params: Params, question: Question[T], *, seconds: float | None = None
) -> tuple[Node, T] | None:
    """Lock a node's row, and have the question answered after that; None when there was none to lock.

    In one round trip, but by statements of their own: the second begins when the lock is held, so it sees
    what was committed by then, and its time is not from before the wait. A wait that is to be shorter than
    the connection's limit has a limit of its own, which ends with it: later waits have the usual one.
    """
    to_lock: tuple[str, Params] = (_with_node_columns(lock), params)
    statements = [to_lock]
    if seconds is not None and (not (usual := settings.DATABASE_LOCK_TIMEOUT) or seconds < usual):
        # The wait's limit is not 0, which would set no limit.
        statements = [
            _set_lock_timeout(max(1, round(seconds * 1000))),
            to_lock,
            _set_lock_timeout(round(usual * 1000)),
        ]
    *found, answer = query_all(*statements, (question.sql, question.params))
    locked = found[statements.index(to_lock)]
    return (build(Node, locked[0]), question.read(answer)) if locked else None


def _set_lock_timeout(milliseconds: int) -> tuple[str, Params]:
    """The statement that sets how long the transaction waits for a lock from now on; 0 sets no limit."""
    return _SET_LOCK_TIMEOUT, [str(milliseconds)]


@cache
def _with_node_columns(statement: str) -> str:
    return statement.format(columns=columns(Node))
