"""What the one lock is for: the same races with the lock taken away break a promise, and with it they do not.

Each race is steered: one side decides, then waits a moment for the other to get all the way through. Under
the lock the other cannot, so the wait runs out.
"""

import datetime as dt
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError
from psycopg.errors import DeadlockDetected

from compute.services.placement import commit
from compute.services.requests.create_vm import create_vm
from compute.services.requests.vm_request import VmRequest
from nodes.services import locking
from openrelay.core import clock
from openrelay.core.errors import Conflict
from openrelay.identity.caller import Caller
from reservations.models import Reservation
from reservations.services import amending, booking, capacity, contracts
from reservations.services.invariants import violations
from tests import factories
from tests.concurrency.conftest import together
from tests.reservations.conftest import Fleet

pytestmark = pytest.mark.django_db(transaction=True)

# For the other side, where the lock lets it through, however busy the machine; and where it does not.
PATIENCE, WAIT = 60.0, 1.0


def unlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the same rows read, and none of them locked."""
    for name in ("_LOCK", "_LOCK_FIRST"):
        statement = getattr(locking, name)
        unlocked = re.sub("FOR NO KEY UPDATE( SKIP LOCKED)?", "", statement)
        assert unlocked != statement
        monkeypatch.setattr(locking, name, unlocked)


@pytest.fixture(params=["locked", "unlocked"])
def locked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the lock is there."""
    if request.param == "unlocked":
        unlock(monkeypatch)
    return bool(request.param == "locked")


class Race:
    """One side pauses once it has decided; the other starts then, and says when it is through."""

    def __init__(self, *, locked: bool) -> None:
        self.wait = WAIT if locked else PATIENCE
        self.decided, self.through = threading.Event(), threading.Event()
        self.overtaken = False
        self.pausing: int | None = None

    def pause(self) -> None:
        """Wait a moment for the other side, on the thread of the side that pauses."""
        if threading.get_ident() == self.pausing and not self.decided.is_set():
            self.decided.set()
            self.overtaken = self.through.wait(self.wait)

    def run(self, pausing: Callable[[], Any], overtaking: Callable[[], Any]) -> list[Any]:
        def first() -> Any:
            self.pausing = threading.get_ident()
            return pausing()

        def second() -> Any:
            assert self.decided.wait(PATIENCE)
            try:
                return overtaking()
            finally:
                self.through.set()

        return together(first, second)


@pytest.fixture
def operator(fleet: Fleet) -> Caller:
    return factories.operator()


def reserve(fleet: Fleet, operator: Caller, *units: int, **terms: Any) -> Reservation:
    return booking.reserve(
        caller=operator,
        node_id=fleet.node.pk,
        unit_ids=[factories.address(unit) for unit in units],
        allowed_org_ids=[str(fleet.tenant.pk)],
        **terms,
    )


def after(race: Race, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with the pause after it."""

    def paused(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        race.pause()
        return result

    return paused


def test_an_amendment_and_a_cancellation(
    fleet: Fleet, operator: Caller, locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reserve(fleet, operator, 0)
    race = Race(locked=locked)
    # The amendment has found the reservation alive; then it is cancelled.
    monkeypatch.setattr(contracts, "require_not_ended", after(race, contracts.require_not_ended))
    end = clock.read() + dt.timedelta(days=1)
    amended, cancelled = race.run(
        lambda: amending.amend(
            caller=operator,
            node_id=fleet.node.pk,
            reservation_id=made.pk,
            changes=amending.Changes(set_end=True, ends_at=end),
        ),
        lambda: amending.cancel(caller=operator, node_id=fleet.node.pk, reservation_id=made.pk),
    )
    assert isinstance(amended, Reservation)
    assert isinstance(cancelled, Reservation)
    assert race.overtaken == (not locked)
    # Unlocked, the units of what was cancelled are withheld again, for a day.
    found = violations()
    assert bool(found) == (not locked), found
    assert locked or any("its contract says" in sentence for sentence in found)


def test_a_spot_purchase_and_a_reclaim(
    fleet: Fleet, operator: Caller, locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reserve(fleet, operator, *range(8))
    named = {
        "caller": operator,
        "node_id": fleet.node.pk,
        "reservation_id": made.pk,
        "unit_ids": [factories.address(0)],
    }
    capacity.release(**named)
    key = factories.ssh_key(fleet.outsider)
    buyer = factories.caller(fleet.outsider)
    race = Race(locked=locked)
    # The purchase has found room, the unit on the market; then it is taken back.
    monkeypatch.setattr(commit, "decide", after(race, commit.decide))
    request = VmRequest(name="vm", ssh_key_ids=[str(key.pk)], gpu_count=1, tier="spot", disk_size_gb=20)
    bought, reclaimed = race.run(
        lambda: create_vm(caller=buyer, request=request), lambda: capacity.reclaim(**named)
    )
    assert not isinstance(bought, Exception), bought
    assert not isinstance(reclaimed, Exception), reclaimed
    assert race.overtaken == (not locked)
    bought.refresh_from_db()
    # Unlocked, a bystander sits on what its owner took back.
    assert bought.status == ("terminated" if locked else "deploying")
    found = violations()
    assert bool(found) == (not locked), found
    assert locked or any("withheld from it" in sentence for sentence in found)


def test_reserving_one_unit_twice_is_refused_by_the_database_without_any_lock(
    fleet: Fleet, operator: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlock(monkeypatch)
    results = together(*[lambda: reserve(fleet, operator, 0)] * 20)
    made = [result for result in results if isinstance(result, Reservation)]
    assert len(made) == 1
    refused = [result for result in results if not isinstance(result, Reservation)]
    # Two that wrote at one instant wait for each other, until PostgreSQL ends one of them.
    caught = [result for result in refused if not _is_deadlock(result)]
    assert all(isinstance(result, Conflict) for result in caught), caught
    assert {result.code for result in caught} <= {"RESERVATION_OVERLAP"}
    assert violations() == []


def _is_deadlock(error: Exception) -> bool:
    return isinstance(error, OperationalError) and isinstance(error.__cause__, DeadlockDetected)
