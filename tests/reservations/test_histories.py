"""Random histories of one node against a plain model of the rules, with nothing wrong after any step."""

import datetime as dt
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from compute.models import Claim, Occupancy, Workload
from compute.services.create import VmRequest, create_vm
from compute.services.terminate import terminate
from nodes.models import GpuUnit
from openrelay import clock as database_clock
from openrelay.errors import ApiError, Conflict, Unavailable
from reservations import tasks
from reservations.models import Announcement, Reservation
from reservations.services import amending, booking, capacity, reclaim_spot
from reservations.services.invariants import violations
from tests import factories
from tests.reservations import makers
from tests.support.travel import Clock

UNITS = 5
HOUR = dt.timedelta(hours=1)
some_units = st.sets(st.integers(0, UNITS - 1), min_size=1, max_size=3)
which = st.integers(0, 5)
hours = st.integers(1, 4)

STEPS = st.one_of(
    st.tuples(st.just("reserve"), some_units, st.sampled_from([None, 1, 2]), st.sampled_from([None, 3, 5])),
    st.tuples(st.just("end"), which, st.sampled_from([None, 1, 2, 6])),
    st.tuples(st.just("reaffirm"), which),
    st.tuples(st.just("cancel"), which),
    st.tuples(st.just("release"), which, some_units),
    st.tuples(st.just("reclaim"), which, some_units),
    st.tuples(st.just("reclaim_spot"), st.none() | some_units),
    st.tuples(st.just("report"), st.sets(st.integers(0, UNITS - 1), min_size=3)),
    st.tuples(st.just("create"), st.sampled_from(["spot", "community"]), st.integers(1, 2), st.booleans()),
    st.tuples(st.just("terminate"), which),
    st.tuples(st.just("confirm")),
    st.tuples(st.just("wait"), hours),
    st.tuples(st.just("sweep")),
)


@dataclass
class Contract:
    """What the model knows of one reservation."""

    id: UUID
    units: set[int]
    start: dt.datetime
    end: dt.datetime | None
    generation: int
    released: set[int] = field(default_factory=set)
    cancelled: bool = False

    def status(self, at: dt.datetime, generation: int) -> str:
        if self.cancelled:
            return "cancelled"
        if self.end is not None and self.end <= at:
            return "expired"
        if self.generation != generation:
            return "needs-review"
        return "pending" if self.start > at else "active"

    def withholds(self, at: dt.datetime) -> bool:
        return not self.cancelled and self.start <= at and (self.end is None or at < self.end)


class History:
    """One node, and what the model says of it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.freeze(database_clock.read().replace(microsecond=0))
        self.owner, self.tenant, self.buyer = (factories.organization() for _ in range(3))
        self.operator = factories.operator()
        self.owns = factories.caller(self.owner)
        self.callers = {org.pk: factories.caller(org) for org in (self.tenant, self.buyer)}
        self.keys = {org.pk: str(factories.ssh_key(org).pk) for org in (self.tenant, self.buyer)}
        self.node = factories.node(self.owner, UNITS)
        self.present = set(range(UNITS))
        self.contracts: list[Contract] = []
        self.workloads: list[Workload] = []
        self.generation = 1

    @property
    def at(self) -> dt.datetime:
        return database_clock.read()

    def pick(self, number: int) -> Contract | None:
        return self.contracts[number % len(self.contracts)] if self.contracts else None

    def named(self, contract: Contract) -> dict[str, Any]:
        return {"caller": self.operator, "node_id": self.node.pk, "reservation_id": contract.id}

    def clash(self, units: set[int], start: dt.datetime, end: dt.datetime | None, but: Any = None) -> bool:
        return any(
            not other.cancelled
            and other is not but
            and other.units & units
            and (end is None or other.start < end)
            and (other.end is None or start < other.end)
            for other in self.contracts
        )

    # The steps: each says what it expects, does it, and brings the model up to date

    def reserve(self, units: set[int], start: int | None, end: int | None) -> None:
        starts = self.at + HOUR * (start or 0)
        ends = None if end is None else self.at + HOUR * end
        possible = units <= self.present and not self.clash(units, starts, ends)
        made = attempt(
            lambda: booking.reserve(
                caller=self.operator,
                node_id=self.node.pk,
                unit_ids=addresses(units),
                allowed_org_ids=[str(self.tenant.pk)],
                starts_at=None if start is None else starts,
                ends_at=ends,
            )
        )
        assert isinstance(made, Reservation) == possible, made
        if isinstance(made, Reservation):
            self.contracts.append(Contract(made.pk, set(units), starts, ends, self.generation))

    def end(self, number: int, hours_: int | None) -> None:
        contract = self.pick(number)
        if contract is None:
            return
        end = None if hours_ is None else self.at + HOUR * hours_
        live = contract.status(self.at, self.generation) not in ("cancelled", "expired")
        possible = (
            live
            and end != contract.end
            and (end is None or end > contract.start)
            and not self.clash(contract.units, contract.start, end, contract)
        )
        done = attempt(
            lambda: amending.amend(
                **self.named(contract), changes=amending.Changes(set_end=True, ends_at=end)
            )
        )
        assert isinstance(done, Reservation) == possible, done
        if possible:
            contract.end = end

    def reaffirm(self, number: int) -> None:
        contract = self.pick(number)
        if contract is None:
            return
        possible = (
            contract.status(self.at, self.generation) == "needs-review" and contract.units <= self.present
        )
        done = attempt(
            lambda: amending.amend(**self.named(contract), changes=amending.Changes(reaffirm=True))
        )
        assert isinstance(done, Reservation) == possible, done
        if possible:
            contract.generation = self.generation

    def cancel(self, number: int) -> None:
        contract = self.pick(number)
        if contract is None:
            return
        possible = contract.status(self.at, self.generation) not in ("cancelled", "expired")
        done = attempt(lambda: amending.cancel(**self.named(contract)))
        assert isinstance(done, Reservation) == possible, done
        if possible:
            contract.cancelled = True

    def release(self, number: int, units: set[int]) -> None:
        contract = self.pick(number)
        if contract is None:
            return
        possible = contract.status(self.at, self.generation) == "active" and units <= contract.units
        done = attempt(lambda: capacity.release(**self.named(contract), unit_ids=addresses(units)))
        assert isinstance(done, Reservation) == possible, done
        if possible:
            contract.released |= units

    def reclaim(self, number: int, units: set[int]) -> None:
        contract = self.pick(number)
        if contract is None:
            return
        possible = contract.status(self.at, self.generation) == "active" and units <= contract.units
        expected = {w.pk for w in self.on(units) if w.tier == "spot"}
        done = attempt(lambda: capacity.reclaim(**self.named(contract), unit_ids=addresses(units)))
        assert (not isinstance(done, ApiError)) == possible, done
        if possible:
            assert {w.pk for w in done[1].victims} == expected
            contract.released -= units

    def reclaim_spot(self, units: set[int] | None) -> None:
        expected = {w.pk for w in self.on(units or set(range(UNITS))) if w.tier == "spot"}
        done = reclaim_spot.reclaim_spot(
            caller=self.owns, node_id=self.node.pk, unit_ids=addresses(units) if units else None
        )
        assert {w.pk for w in done.victims} == expected

    def report(self, units: set[int]) -> None:
        factories.inventory(self.node, [factories.unit_report(n) for n in sorted(units)])
        if units != self.present:
            self.generation += 1
            self.present = set(units)

    def create(self, tier: str, count: int, tenant: bool) -> None:
        org = self.tenant if tenant else self.buyer
        allowed = self.allowed(tier, tenant)
        names_node = tenant and any(contract.withholds(self.at) for contract in self.contracts)
        before = {row.unit_id: row.workload_id for row in Claim.objects.all()}
        spot = set(Workload.objects.filter(tier="spot").values_list("pk", flat=True))
        made = attempt(
            lambda: create_vm(
                caller=self.callers[org.pk],
                request=VmRequest(
                    name="vm",
                    ssh_key_ids=[self.keys[org.pk]],
                    gpu_count=count,
                    tier=tier,
                    node_id=str(self.node.pk) if names_node else None,
                    guest_mem_mb=1024,  # the least, so that GPUs alone decide
                    disk_size_gb=20,
                ),
            )
        )
        if isinstance(made, ApiError):
            assert isinstance(made, Unavailable) or made.code == "GPU_COUNT_NOT_ALLOCATABLE", made
            assert len(allowed) < count, f"{made}: {allowed}"
            return
        got = {n for n in range(UNITS) if self.pk(n) in self.claims_of(made)}
        assert len(got) == count
        assert got <= allowed, f"{got} of {allowed}"
        # Whoever was there and is not any more was spot.
        gone = set(before.values()) - set(Claim.objects.values_list("workload_id", flat=True))
        assert gone <= spot
        self.workloads.append(made)

    def allowed(self, tier: str, tenant: bool) -> set[int]:
        """The units that a request may have, by the table of who may place where."""
        claims = {row.unit_id: row.workload for row in Claim.objects.select_related("workload")}
        open_ = set(Occupancy.objects.filter(closed_at=None).values_list("unit_id", flat=True))
        found = set()
        for unit in self.present:
            pk = self.pk(unit)
            holds = [c for c in self.contracts if unit in c.units and c.withholds(self.at)]
            assert len(holds) <= 1
            if not holds:
                if pk not in claims and pk not in open_:
                    found.add(unit)
                continue
            contract = holds[0]
            if contract.status(self.at, self.generation) != "active":
                continue
            if tenant:
                if pk not in claims or claims[pk].tier == "spot":
                    found.add(unit)
            elif tier == "spot" and unit in contract.released and pk not in claims and pk not in open_:
                found.add(unit)
        return found

    def terminate(self, number: int) -> None:
        if self.workloads:
            workload = self.workloads[number % len(self.workloads)]
            terminate(caller=self.callers[workload.organization_id], workload_id=workload.pk)

    def confirm(self) -> None:
        for workload in self.workloads:
            if workload.runs.filter(desired="gone", closed_at=None).exists():
                makers.confirm(workload)

    def wait(self, hours_: int) -> None:
        self.clock.advance(hours_ * 3600)
        factories.online(self.node)

    def sweep(self) -> None:
        tasks.announce_all_due()
        at = self.at
        for contract in self.contracts:
            told = set(
                Announcement.objects.filter(reservation_id=contract.id).values_list("event", flat=True)
            )
            status = contract.status(at, self.generation)
            if status == "expired":
                assert "reservation.expired" in told
            if status == "needs-review":
                assert "reservation.needs_review" in told
            if status == "pending":
                assert "reservation.activated" not in told

    # What is compared after each step

    def pk(self, unit: int) -> UUID:
        found: UUID = GpuUnit.objects.values_list("pk", flat=True).get(
            node=self.node, address=factories.address(unit)
        )
        return found

    def claims_of(self, workload: Workload) -> set[UUID]:
        return set(Claim.objects.filter(workload=workload).values_list("unit_id", flat=True))

    def on(self, units: set[int]) -> list[Workload]:
        return list(
            Workload.objects.filter(
                claims__node=self.node, claims__unit__address__in=addresses(units)
            ).distinct()
        )

    def check(self) -> None:
        assert violations() == []
        at = self.at
        rows = {row.pk: row for row in Reservation.objects.with_facts(at)}
        assert rows.keys() == {contract.id for contract in self.contracts}
        for contract in self.contracts:
            row = rows[contract.id]
            assert row.status == contract.status(at, self.generation)
            assert row.unit_addresses == addresses(contract.units)
            assert row.released_addresses == addresses(contract.released)
            assert (row.starts_at, row.ends_at) == (contract.start, contract.end)


def addresses(units: set[int]) -> list[str]:
    return [factories.address(unit) for unit in sorted(units)]


def attempt(call: Any) -> Any:
    """What the call returns, or the refusal it raises."""
    try:
        return call()
    except ApiError as error:
        refusal = error
    assert refusal.status < 500 or isinstance(refusal, Unavailable), refusal
    assert not isinstance(refusal, Conflict) or refusal.code != "INVALID_STATE", refusal
    return refusal


class Histories(TestCase):
    @settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],  # a history is short enough to read as it is
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(STEPS, min_size=4, max_size=16))
    def test_nothing_is_wrong_after_any_step_of_any_history(self, steps: list[tuple[Any, ...]]) -> None:
        history = History()
        for name, *arguments in steps:
            history.clock.advance(0.000001)  # no two steps are of one instant
            getattr(history, name)(*arguments)
            history.check()
