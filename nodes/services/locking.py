"""The one lock: every change of who holds what on a node is made under its row's lock."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from nodes.models import Node
from openrelay import clock
from openrelay.api.idempotency import NO_KEY, Once
from openrelay.errors import NotFound
from openrelay.identity.caller import Caller
from openrelay.identity.services.callers import reread_with
from openrelay.rows import NOTHING, Reading, array, fetch

_LOCK = "WHERE id = %s FOR NO KEY UPDATE"
_FIRST = """
WHERE id = ANY(%(ids)s::uuid[]) ORDER BY array_position(%(ids)s::uuid[], id) LIMIT 1
FOR NO KEY UPDATE SKIP LOCKED
"""


@dataclass(frozen=True, slots=True)
class LockedNode:
    """A node whose row this transaction holds, and the one moment at which it decides.

    `read` is what was to be read at that moment.
    """

    node: Node
    at: datetime
    read: Any = None


def lock(node_id: UUID) -> Node | None:
    """Lock the node's row in the current transaction, and nothing else; None when it is not there.

    By primary key, without a join: under READ COMMITTED a second predicate could make a waiter miss the row
    it waited for. FOR NO KEY UPDATE lets others insert rows that reference the node, such as heartbeats.
    """
    rows = fetch(Node, _LOCK, [node_id])
    return rows[0] if rows else None


def lock_first(node_ids: Sequence[UUID]) -> Node | None:
    """Lock the first of those rows that no other transaction holds, in the order given; None when there is
    none.

    One row at most: the limit ends the search at the first that could be locked.
    """
    rows = fetch(Node, _FIRST, {"ids": array(node_ids)})
    return rows[0] if rows else None


@contextmanager
def locked(node_id: UUID) -> Iterator[LockedNode]:
    """One transaction for the platform itself: lock the node, then read the clock.

    Raises NotFound when there is no such node.
    """
    with transaction.atomic():
        node = lock(node_id)
        if node is None:
            raise NotFound()
        yield LockedNode(node, clock.read())


@contextmanager
def locked_for(
    node_id: UUID, caller: Caller, *, once: Once = NO_KEY, reading: Reading = NOTHING
) -> Iterator[tuple[LockedNode, Caller]]:
    """One transaction for `caller`: take `once`, lock the node, read clock and rights, and `reading`.

    Raises NotFound when there is no such node, and what `reread` and `once.begin` raise.
    """
    with transaction.atomic():
        once.begin()
        node = lock(node_id)
        if node is None:
            raise NotFound()
        caller, at, read = reread_with(caller, reading)
        yield LockedNode(node, at, read), caller


@contextmanager
def first_locked_for(
    node_ids: Sequence[UUID],
    caller: Caller,
    *,
    once: Once = NO_KEY,
    reading: Callable[[UUID], Reading] = lambda _: NOTHING,
) -> Iterator[tuple[LockedNode, Caller] | None]:
    """The same for the first of those nodes that no other transaction holds; None when there is none.

    `reading` says what to read of the node that it came to be.
    """
    with transaction.atomic():
        once.begin()
        node = lock_first(node_ids)
        if node is None:
            yield None
            return
        caller, at, read = reread_with(caller, reading(node.pk))
        yield LockedNode(node, at, read), caller
