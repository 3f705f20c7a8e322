"""Trying nodes for a workload, each decided under its lock, in a transaction of its own."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from django.conf import settings

from compute.models import Workload
from compute.services.access.ssh_keys import refuse_deleted_keys
from compute.services.billing.accounts import require_active
from compute.services.placement.commit import place
from compute.services.placement.request import PlacementRequest, Rejection
from compute.services.placement.snapshot import snapshot_reading
from nodes.services.locking import LockedNode, first_locked_for, locked_for
from nodes.services.queueing import NodeBusy
from openrelay.core.errors import NotFound
from openrelay.core.idempotency import IdempotencyGuard
from openrelay.core.rows import NOTHING, Reading
from openrelay.identity.caller import Caller

# So many candidates are offered to the lock at once: some more than others may be changing.
_AT_ONCE = 16


class Candidate(Protocol):
    """A node that the workload may fit on, and of which of its GPU models; None for the model asked for."""

    @property
    def node_id(self) -> UUID: ...

    @property
    def model_id(self) -> UUID | None: ...


C = TypeVar("C", bound=Candidate)


@dataclass(slots=True)
class AttemptResult(Generic[C]):
    """The result of trying some candidates: the workload once it is placed; else the rejections, and the
    candidates that were skipped because other transactions held their locks.
    """

    made: Workload | None
    rejections: list[Rejection]
    busy: list[C]


@dataclass(frozen=True, slots=True)
class AttemptLoop:
    """The attempts to place one request. The caller's permission is judged again under each lock."""

    caller: Caller
    guard: IdempotencyGuard
    request: PlacementRequest
    named: bool = False

    def first_pass(self, candidates: Iterable[C]) -> AttemptResult[C]:
        """Try the candidates in their order and skip those whose locks are held."""
        later = iter(candidates)
        result: AttemptResult[C] = AttemptResult(None, [], [])
        first = list(islice(later, _AT_ONCE))
        while first:
            ids = [candidate.node_id for candidate in first]
            with (
                refuse_deleted_keys(),
                first_locked_for(ids, self.caller, guard=self.guard, reading=self._reading()) as found,
            ):
                if found is None:
                    result.busy += first
                    first = list(islice(later, _AT_ONCE))
                    continue
                held, now = found
                candidate = first.pop(ids.index(held.node.pk))
                first += islice(later, 1)
                outcome = self._attempt(held, now, candidate.model_id)
            if isinstance(outcome, Workload):
                result.made = outcome
                return result
            result.rejections.append(outcome)
        return result

    def second_pass(self, result: AttemptResult[C]) -> AttemptResult[C]:
        """Try the candidates that the first pass skipped. Waits for the lock of each, in all no longer than
        the lock timeout.

        Raises NodeBusy when nothing was placed and a lock was not available in time.
        """
        limit = settings.DATABASE_LOCK_TIMEOUT
        deadline = time.monotonic() + limit
        busy: NodeBusy | None = None
        for candidate in result.busy:
            try:
                seconds = max(0.0, deadline - time.monotonic()) if limit else None
                outcome = self.wait_for(candidate.node_id, candidate.model_id, seconds=seconds)
            except NodeBusy as error:
                busy = error
                continue
            if isinstance(outcome, Workload):
                result.made = outcome
                break
            if outcome is not None:
                result.rejections.append(outcome)
        if busy is not None and result.made is None:
            raise busy
        return result

    def wait_for(
        self, node_id: UUID, model_id: UUID | None = None, *, seconds: float | None = None
    ) -> Workload | Rejection | None:
        """Try one node, waiting for its lock no longer than `seconds`; None when the node does not exist.

        Raises NodeBusy when the lock is not available in time.
        """
        try:
            with (
                refuse_deleted_keys(),
                locked_for(
                    node_id, self.caller, guard=self.guard, reading=self._reading(), seconds=seconds
                ) as (held, now),
            ):
                return self._attempt(held, now, model_id)
        except NotFound:
            return None

    def _reading(self) -> Reading:
        """What is read with the lock of a node: the snapshot that placing GPUs there needs."""
        request = self.request
        if not request.gpu_count:
            return NOTHING
        return snapshot_reading(
            self.caller.organization_id, request.tier, excluding_workload=request.restarted_id
        )

    def _attempt(self, held: LockedNode, caller: Caller, model_id: UUID | None) -> Workload | Rejection:
        caller.require(self.request.action)
        require_active(caller)
        outcome = place(held, caller, self.request.of_model(model_id), named=self.named)
        if isinstance(outcome, Workload):
            self.guard.store(outcome)
        return outcome
