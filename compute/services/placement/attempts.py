"""Trying nodes for a workload, each decided under its lock, in a transaction of its own."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from django.conf import settings

from compute.models import Workload
from compute.services.access.ssh_keys import keys_are_there
from compute.services.billing.accounts import require_active
from compute.services.placement.commit import may_target_node, unknown_node
from compute.services.placement.decide import Rejection
from nodes.models import Node
from nodes.services.locking import LockedNode, first_locked_for, locked_for
from nodes.services.queueing import NodeBusy
from openrelay.core.clock import Now
from openrelay.core.errors import NotFound
from openrelay.core.idempotency import IdempotencyGuard
from openrelay.core.ids import parse_id
from openrelay.core.rows import NOTHING, Reading
from openrelay.identity.caller import Caller

# So many candidates are offered to the lock at once: some more than others may be changing.
_AT_ONCE = 16


class Candidate(Protocol):
    """What there is to know of a node that the workload may fit on."""

    @property
    def node_id(self) -> UUID: ...


C = TypeVar("C", bound=Candidate)


@dataclass(slots=True)
class AttemptResult(Generic[C]):
    """What became of some candidates: the workload once it is placed; else why there was no room, and those
    passed over since others were changing them.
    """

    made: Workload | None
    refusals: list[Rejection]
    busy: list[C]


@dataclass(frozen=True, slots=True)
class AttemptLoop(Generic[C]):
    """A request to place something. `action` is what its caller needs, judged anew under each lock; `reading`
    what is read of the locked node along with it.
    """

    caller: Caller
    guard: IdempotencyGuard
    action: str
    decide: Callable[[LockedNode, Caller, C], Workload | Rejection]
    reading: Reading = NOTHING

    def first_pass(self, candidates: Iterable[C]) -> AttemptResult[C]:
        """Try the candidates in their order, passing over those that others are changing just now."""
        later = iter(candidates)
        tried: AttemptResult[C] = AttemptResult(None, [], [])
        first = list(islice(later, _AT_ONCE))
        while first:
            ids = [candidate.node_id for candidate in first]
            with (
                keys_are_there(),
                first_locked_for(ids, self.caller, guard=self.guard, reading=self.reading) as found,
            ):
                if found is None:
                    tried.busy += first
                    first = list(islice(later, _AT_ONCE))
                    continue
                held, now = found
                candidate = first.pop(ids.index(held.node.pk))
                first += islice(later, 1)
                outcome = self._decided(held, now, candidate)
            if isinstance(outcome, Workload):
                tried.made = outcome
                return tried
            tried.refusals.append(outcome)
        return tried

    def second_pass(self, tried: AttemptResult[C]) -> AttemptResult[C]:
        """Try those that the first pass passed over, waiting for the lock of each, but for all of them no
        longer than for one.

        Raises NodeBusy when nothing was placed, and a lock was not to be had in time.
        """
        limit = settings.DATABASE_LOCK_TIMEOUT
        deadline = time.monotonic() + limit
        busy: NodeBusy | None = None
        for candidate in tried.busy:
            try:
                left = max(0.0, deadline - time.monotonic()) if limit else None
                outcome = self.wait_for(candidate, seconds=left)
            except NodeBusy as error:
                busy = error
                continue
            if isinstance(outcome, Workload):
                tried.made = outcome
                break
            if outcome is not None:
                tried.refusals.append(outcome)
        if busy is not None and tried.made is None:
            raise busy
        return tried

    def wait_for(self, candidate: C, *, seconds: float | None = None) -> Workload | Rejection | None:
        """Decide on one node, waiting for its lock, no longer than `seconds`; None when it is gone.

        Raises NodeBusy when the lock is not to be had in time.
        """
        try:
            node_id = candidate.node_id
            with (
                keys_are_there(),
                locked_for(node_id, self.caller, guard=self.guard, reading=self.reading, seconds=seconds) as (
                    held,
                    now,
                ),
            ):
                return self._decided(held, now, candidate)
        except NotFound:
            return None

    def _decided(self, held: LockedNode, caller: Caller, candidate: C) -> Workload | Rejection:
        caller.require(self.action)
        require_active(caller)
        outcome = self.decide(held, caller, candidate)
        if isinstance(outcome, Workload):
            self.guard.store(outcome)
        return outcome


@dataclass(frozen=True, slots=True)
class TargetNode:
    """A node that a request names."""

    node_id: UUID


def find_target_node(caller: Caller, node_id: str) -> TargetNode:
    """The node that a caller names, looked up without the lock, so that nobody without rights there can queue
    for it. One query, whether or not there is such a node. Raises Invalid UNKNOWN_NODE.
    """
    pk = parse_id(node_id)
    if pk is None or not Node.objects.filter(may_target_node(caller, Now()), pk=pk).exists():
        raise unknown_node()
    return TargetNode(pk)
