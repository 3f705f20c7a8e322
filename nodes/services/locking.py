"""Lock a node's row: every change of reservations, claims and hardware of a node runs under this lock."""

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

# Lock the row by primary key alone, without a join: under READ COMMITTED a waiter could miss the row it
# waited for if a second predicate no longer matched. FOR NO KEY UPDATE allows other transactions to insert
# rows that reference the node, such as heartbeats. The setting passes the node's id to later statements
# (LOCKED_NODE).
_LOCK = """
SELECT {columns}, set_config('openrelay.locked_node', id::text, true) FROM (
    SELECT {columns} FROM nodes_node WHERE id = %s::uuid FOR NO KEY UPDATE
) node
"""
# Try the nodes in the given order. LIMIT 1 stops at the first that no other transaction has locked.
_LOCK_FIRST = """
SELECT {columns}, set_config('openrelay.locked_node', id::text, true)
FROM unnest(%s::uuid[]) AS wanted, LATERAL (
    SELECT {columns} FROM nodes_node WHERE id = wanted FOR NO KEY UPDATE SKIP LOCKED
) node LIMIT 1
"""
_SET_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', %s, true)"
_LOCK_NOT_AVAILABLE_SQLSTATE = "55P03"
#: SQL expression: the id of the node that this transaction locked last. Null if it locked none.
LOCKED_NODE = "nullif(current_setting('openrelay.locked_node', true), '')::uuid"


@dataclass(frozen=True, slots=True)
class LockedNode:
    """A node whose row this transaction has locked.

    `at` is the database's clock after the lock; every decision in the transaction uses it. `read_result` is
    the result of the caller's `reading`. `closing` is true if the caller's last statement may also commit: no
    idempotency key has to be saved after it.
    """

    node: Node
    at: datetime
    read_result: Any = None
    closing: bool = False

    @property
    def is_removed(self) -> bool:
        """Whether the node was removed, or its announced removal time has passed, at `at`."""
        node = self.node
        return node.removed_at is not None or (node.terminate_at is not None and node.terminate_at <= self.at)


@contextmanager
def locked(node_id: UUID, *, seconds: float | None = None) -> Iterator[LockedNode]:
    """Open a transaction for the platform itself: lock the node, then read the database's clock.

    Waits for the lock for `DATABASE_LOCK_TIMEOUT`, or for `seconds` if that is shorter. Raises NotFound for
    an unknown node, and NodeBusy if the wait times out.
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
    """Open a transaction for `caller`: begin `guard`, lock the node, then read the database's clock, the
    caller's current rights, and `reading`.

    Waits for the lock for `DATABASE_LOCK_TIMEOUT`, or for `seconds` if that is shorter. Raises NotFound for
    an unknown node, NodeBusy if the wait times out, and the errors of `reread` and `guard.begin`.
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
    """Open a transaction as `locked_for` does, on the first of `node_ids` that no other transaction has
    locked.

    Never waits. Yields None if other transactions have locked all of them.
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
    """Wait for the lock of one node, then run `question`. Raises NodeBusy if the wait times out."""
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
    """Lock a node's row, then run `question`. Returns None if `lock` found no row.

    One round trip with separate statements. The second statement starts once the lock is held, so it sees
    every commit up to then and reads the clock after the wait. `seconds` shortens `lock_timeout` for this
    wait only; the usual timeout is restored afterwards.
    """
    to_lock: tuple[str, Params] = (_with_node_columns(lock), params)
    statements = [to_lock]
    if seconds is not None and (
        not (usual_timeout := settings.DATABASE_LOCK_TIMEOUT) or seconds < usual_timeout
    ):
        # At least 1 ms: PostgreSQL reads 0 as no timeout.
        statements = [
            _set_lock_timeout(max(1, round(seconds * 1000))),
            to_lock,
            _set_lock_timeout(round(usual_timeout * 1000)),
        ]
    *found, answer = query_all(*statements, (question.sql, question.params))
    locked = found[statements.index(to_lock)]
    return (build(Node, locked[0]), question.read(answer)) if locked else None


def _set_lock_timeout(milliseconds: int) -> tuple[str, Params]:
    """Build the statement that sets `lock_timeout` for the transaction; 0 means no timeout."""
    return _SET_LOCK_TIMEOUT, [str(milliseconds)]


@cache
def _with_node_columns(statement: str) -> str:
    return statement.format(columns=columns(Node))
