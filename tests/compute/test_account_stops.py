"""Workloads of an organization with a used-up balance or a suspended account are stopped."""

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from compute import tasks
from compute.domain import states
from compute.models import Claim, UsageSession, Workload
from compute.services.billing import balances
from compute.services.lifecycle import account_stops
from nodes.models import Node
from openrelay.audit.models import AuditEvent
from openrelay.core.clock import Now, rfc3339
from openrelay.identity.models import Organization
from reservations.services import amending
from tests import factories
from tests.compute.conftest import World, consistent, refused, state
from tests.compute.test_accounts import SPENT, SUSPENDED, act, set_to
from tests.compute.test_pods import Pods, pod_node
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db

GRACE = 3600
BALANCE, SUSPENSION = "auto_stopped_insufficient_balance", "auto_stopped_account_suspended"
WORSE: list[tuple[dict[str, Any], dict[str, Any], str, tuple[Any, ...]]] = [
    ({"balance_cents": 0}, {"balance_cents": 10_000}, BALANCE, SPENT),
    ({"account_status": "suspended"}, {"account_status": "active"}, SUSPENSION, SUSPENDED),
]
CPU = {"gpuCount": None, "resourceSize": "cpu-small"}


def later(clock: Clock, seconds: float, *nodes: Node) -> None:
    """Time goes on, and the nodes are heard from."""
    clock.freeze(clock.now() + dt.timedelta(seconds=seconds))
    for node in nodes:
        factories.online(node)


def events(*names: str) -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(event__in=names).order_by("created_at", "id"))


def told() -> list[tuple[str, str]]:
    found = events("balance.low", "balance.depleted", "balance.restored")
    return [(event.event, event.actor) for event in found]


@pytest.mark.parametrize(("worse", "better", "reason", "why"), WORSE)
def test_all_kinds_are_stopped_once_the_grace_period_is_over(
    world: World,
    clock: Clock,
    worse: dict[str, Any],
    better: dict[str, Any],
    reason: str,
    why: tuple[Any, ...],
) -> None:
    clock.freeze()
    pods = Pods(world, pod_node(world.provider))
    runs, spot, small = (world.running(world.buyer, **body) for body in ({}, {"tier": "spot"}, CPU))
    pod = pods.running()
    deploys = world.vm(world.buyer)
    others = world.running(world.tenant)
    every = [runs, spot, small, pod, deploys]
    set_to(world.buyer, **worse)
    tasks.sweep_accounts()
    later(clock, GRACE - 1, world.node, pod.node)
    tasks.sweep_accounts()
    assert "stopped" not in [state(made)[0] for made in every]
    later(clock, 1, world.node, pod.node)
    tasks.sweep_accounts()
    assert [state(made) for made in every] == [("stopped", reason)] * len(every)
    assert state(others)[0] == "running"
    assert Claim.objects.exclude(workload=others).count() == 0
    assert not UsageSession.objects.open().filter(organization=world.buyer).exists()
    assert UsageSession.objects.get(workload=runs).end_reason == reason
    stopped = [event for event in events("vm.stopped") if event.after["statusReason"] == reason]
    assert {event.target_id for event in stopped} == {str(made.pk) for made in every}
    assert {(event.actor, event.organization_id) for event in stopped} == {("system", world.buyer.pk)}
    # Twice does no harm, and nothing restarts until it is lifted; the disk is kept.
    before = AuditEvent.objects.count()
    tasks.sweep_accounts()
    assert AuditEvent.objects.count() == before
    world.says((runs, "gone"), (spot, "gone"), (small, "gone"), (deploys, "gone"))
    world.says((pod, "gone"), node=pod.node)
    for made in every:
        refused(act(world, made, "restart"), *why)
    set_to(world.buyer, **better)
    for made in every:
        assert act(world, made, "restart").status_code == 200
    tasks.sweep_accounts()
    assert {state(made)[0] for made in every} == {"deploying"}
    consistent()


@pytest.mark.parametrize(("worse", "better", "reason", "why"), WORSE)
def test_lifting_it_within_the_grace_period_stops_nothing(
    world: World, clock: Clock, worse: dict[str, Any], better: dict[str, Any], reason: str, why: object
) -> None:
    clock.freeze()
    runs = world.running(world.buyer)
    set_to(world.buyer, **worse)
    tasks.sweep_accounts()
    later(clock, GRACE - 1, world.node)
    set_to(world.buyer, **better)
    later(clock, 2, world.node)
    # Nobody has noticed yet that it was lifted, and still nothing is stopped.
    assert account_stops.stop_due(account_stops.DueStop(world.buyer.pk, world.node.pk)) == 0
    tasks.sweep_accounts()
    later(clock, GRACE * 2, world.node)
    tasks.sweep_accounts()
    assert state(runs)[0] == "running"
    # A new time has a grace period of its own.
    set_to(world.buyer, **worse)
    tasks.sweep_accounts()
    assert state(runs)[0] == "running"
    later(clock, GRACE, world.node)
    tasks.sweep_accounts()
    assert state(runs) == ("stopped", reason)


@pytest.mark.parametrize(("worse", "better", "reason", "why"), WORSE)
def test_what_waits_for_its_units_fails_and_can_be_started_later(
    world: World,
    clock: Clock,
    worse: dict[str, Any],
    better: dict[str, Any],
    reason: str,
    why: tuple[Any, ...],
) -> None:
    """From pending nothing is stopped: it has no disk yet."""
    clock.freeze()
    world.reserve(*range(8))
    first = world.running(world.tenant, gpuCount=8, nodeId=str(world.node.pk))
    world.terminate(world.tenant, first)
    waits = world.vm(world.tenant, nodeId=str(world.node.pk))
    assert state(waits)[0] == "pending"
    set_to(world.tenant, **worse)
    # As a change of the balance queues it: nothing is billed yet, so no sweep looks at it.
    tasks.note_balance(str(world.tenant.pk))
    later(clock, GRACE, world.node)
    tasks.sweep_accounts()
    assert state(waits) == ("failed", reason)
    assert not Claim.objects.exists()
    refused(act(world, waits, "restart"), *why)
    set_to(world.tenant, **better)
    world.says((first, "gone"), (waits, "gone"))
    assert act(world, waits, "restart").status_code == 200


@pytest.mark.parametrize(("worse", "better", "reason", "why"), WORSE)
def test_what_is_interrupted_is_stopped_too(
    world: World, clock: Clock, worse: dict[str, Any], better: object, reason: str, why: object
) -> None:
    clock.freeze()
    runs = world.running(world.buyer)
    set_to(world.buyer, **worse)
    tasks.sweep_accounts()
    later(clock, GRACE)
    tasks.sweep_lost_nodes()
    assert state(runs)[0] == "interrupted"
    tasks.sweep_accounts()
    assert state(runs) == ("stopped", reason)
    # Its node returns, and its guest is to go.
    later(clock, 1, world.node)
    assert world.work()[str(runs.pk)]["desired"] == "gone"
    world.says((runs, "running"))
    assert state(runs) == ("stopped", reason)


@pytest.mark.parametrize(("worse", "better", "reason", "why"), WORSE)
def test_what_is_not_billed_runs_on(
    world: World, clock: Clock, worse: dict[str, Any], better: object, reason: str, why: object
) -> None:
    clock.freeze()
    owned = World(world.node, world.provider, world.provider, world.buyer)
    contract = owned.reserve(0, 1, 2, 3)
    here = {"nodeId": str(world.node.pk)}
    free = owned.running(world.provider, **here)
    pending_free = owned.vm(world.provider, **here)
    billed = owned.running(world.provider)
    # More units than are reserved to it: all of it is billed.
    both = owned.running(world.provider, gpuCount=3, **here)
    small = owned.running(world.provider, **CPU, **here)
    set_to(world.provider, **worse)
    tasks.sweep_accounts()
    later(clock, GRACE, world.node)
    with CaptureQueriesContext(connection) as asked:
        tasks.sweep_accounts()
    assert [state(made) for made in (billed, both, small)] == [("stopped", reason)] * 3
    assert [state(made)[0] for made in (free, pending_free)] == ["running", "deploying"]
    # Nodes where nothing is due are not locked.
    with CaptureQueriesContext(connection) as asked:
        tasks.sweep_accounts()
    assert not any("FOR NO KEY UPDATE" in query["sql"] and "nodes_node" in query["sql"] for query in asked)
    # What began free stays free until it starts again; what deploys is billed once its contract is over.
    amending.cancel(caller=factories.operator(), node_id=world.node.pk, reservation_id=contract.pk)
    later(clock, 1, world.node)
    tasks.sweep_accounts()
    assert [state(made)[0] for made in (free, pending_free)] == ["running", "stopped"]


def test_who_may_not_stop_vms_is_stopped_all_the_same(world: World, clock: Clock) -> None:
    """The switch is of what tenants may do."""
    clock.freeze()
    runs = world.running(world.buyer)
    set_to(world.buyer, stop_enabled=False, account_status="suspended")
    later(clock, GRACE, world.node)
    tasks.sweep_accounts()
    assert state(runs) == ("stopped", SUSPENSION)


def test_what_is_on_a_node_at_its_end_goes_with_its_node(world: World, clock: Clock) -> None:
    clock.freeze()
    runs = world.running(world.buyer)
    set_to(world.buyer, account_status="suspended")
    later(clock, GRACE, world.node)
    Node.objects.filter(pk=world.node.pk).update(terminate_at=clock.now())
    tasks.sweep_accounts()
    assert state(runs)[0] == "running"
    tasks.sweep_leaving_nodes()
    assert state(runs) == ("terminated", "node_removed")


def test_the_organization_is_told_once_each_time(world: World, clock: Clock) -> None:
    start = clock.freeze()
    runs = world.running(world.buyer)  # 200 cents an hour
    set_to(world.buyer, balance_cents=200 * 25)
    tasks.sweep_accounts()
    assert told() == []
    assert shown(world) == "active"
    later(clock, 3618, world.node)
    for _ in range(2):
        tasks.sweep_accounts()
    assert told() == [("balance.low", "system")]
    assert shown(world) == "balance_low"
    later(clock, 24 * 3600 - 18, world.node)
    for _ in range(2):
        tasks.sweep_accounts()
    assert told() == [("balance.low", "system"), ("balance.depleted", "system")]
    (event,) = events("balance.depleted")
    assert (event.target_type, event.target_id, event.organization_id) == (
        "org",
        str(world.buyer.pk),
        world.buyer.pk,
    )
    assert event.after == {
        "leftCents": 0,
        "centsPerHour": 200,
        "stopsAt": rfc3339(start + dt.timedelta(hours=26)),
    }
    assert shown(world) == "balance_depleted"
    set_to(world.buyer, account_status="suspended")
    assert shown(world) == "suspended"
    set_to(world.buyer, account_status="active", balance_cents=200 * 26)
    for _ in range(2):
        tasks.note_balance(str(world.buyer.pk))
    assert [name for name, _ in told()] == ["balance.low", "balance.depleted", "balance.restored"]
    # Some is left, and it will not last.
    assert shown(world) == "balance_low"
    set_to(world.buyer, balance_cents=200 * 100)
    tasks.note_balance(str(world.buyer.pk))
    assert shown(world) == "active"
    assert len(told()) == 3
    assert state(runs)[0] == "running"


def shown(world: World) -> str:
    answer = world.client(world.buyer).get(f"/v1/orgs/{world.buyer.pk}")
    return str(answer.json()["accountStatus"])


def test_nobody_is_stopped_before_they_were_told(world: World, clock: Clock) -> None:
    """However long the worker was away."""
    clock.freeze()
    runs = world.running(world.buyer)
    set_to(world.buyer, balance_cents=1)
    later(clock, 50 * 3600, world.node)
    tasks.sweep_accounts()
    assert state(runs)[0] == "running"
    assert [name for name, _ in told()] == ["balance.depleted"]
    later(clock, GRACE, world.node)
    tasks.sweep_accounts()
    assert state(runs) == ("stopped", BALANCE)


def test_a_sweep_locks_only_who_is_to_be_told(world: World, clock: Clock) -> None:
    clock.freeze()
    for org, cents in ((world.buyer, 10**6), (world.tenant, 200)):
        world.running(org)
        set_to(org, balance_cents=cents)
    assert balances.organization_ids_to_notify() == [world.tenant.pk]
    tasks.sweep_accounts()
    assert balances.organization_ids_to_notify() == []
    later(clock, 3600, world.node)
    assert balances.organization_ids_to_notify() == [world.tenant.pk]
    tasks.sweep_accounts()
    assert [name for name, _ in told()] == ["balance.low", "balance.depleted"]
    set_to(world.tenant, balance_cents=10**6)
    assert balances.organization_ids_to_notify() == [world.tenant.pk]


def test_whose_balance_is_taken_away_owes_nothing(world: World, clock: Clock) -> None:
    clock.freeze()
    runs = world.running(world.buyer)
    set_to(world.buyer, balance_cents=0)
    tasks.sweep_accounts()
    set_to(world.buyer, balance_cents=None)
    assert shown(world) == "active"
    later(clock, GRACE, world.node)
    tasks.sweep_accounts()
    assert state(runs)[0] == "running"


def test_grace_and_warning_are_settings(world: World, clock: Clock, settings: Any) -> None:
    settings.BALANCE_GRACE_MINUTES, settings.BALANCE_LOW_HOURS = 0, 1
    settings.SUSPENSION_GRACE_MINUTES = 1
    clock.freeze()
    runs, other = world.running(world.buyer), world.running(world.tenant)
    set_to(world.buyer, balance_cents=201)
    set_to(world.tenant, account_status="suspended")
    tasks.sweep_accounts()
    assert told() == []
    set_to(world.buyer, balance_cents=199)
    tasks.sweep_accounts()
    assert told() == [("balance.low", "system")]
    set_to(world.buyer, balance_cents=0)
    tasks.sweep_accounts()
    assert state(runs) == ("stopped", BALANCE)
    assert state(other)[0] == "running"
    later(clock, 60, world.node)
    tasks.sweep_accounts()
    assert state(other) == ("stopped", SUSPENSION)


def test_each_node_is_stopped_in_a_transaction_and_batches_of_its_own(
    world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.freeze()
    second = factories.node(world.provider)
    made = [world.running(world.buyer) for _ in range(12)]
    assert {workload.node_id for workload in made} == {world.node.pk, second.pk}
    set_to(world.buyer, account_status="suspended")
    later(clock, GRACE, world.node, second)
    monkeypatch.setattr(account_stops, "BATCH", 3)
    assert len(account_stops.due()) == 2
    for left in (6, 2, 0):
        tasks.sweep_accounts()
        assert Workload.objects.filter(status="running").count() == left
    assert account_stops.due() == []


def test_one_node_that_fails_does_not_keep_the_others_waiting(
    world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.freeze()
    second = factories.node(world.provider)
    made = [world.running(world.buyer) for _ in range(12)]
    set_to(world.buyer, account_status="suspended")
    later(clock, GRACE, world.node, second)
    stuck = min(world.node.pk, second.pk)
    stop, calls = account_stops.stop_due, []

    def stop_due(where: account_stops.DueStop) -> int:
        calls.append(where)
        if where.node_id == stuck:
            raise RuntimeError
        return stop(where)

    monkeypatch.setattr(account_stops, "stop_due", stop_due)
    tasks.sweep_accounts()
    assert len(calls) == 2
    for workload in made:
        assert (state(workload)[0] == "stopped") == (workload.node_id != stuck)


def test_a_sweep_costs_the_same_for_many_organizations(world: World, clock: Clock) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as asked:
            account_stops.due()
            balances.organization_ids_to_notify()
        return len(asked)

    clock.freeze()
    world.running(world.buyer)
    set_to(world.buyer, account_status="suspended")
    later(clock, GRACE, world.node)
    few = cost()
    for number in range(5):
        org = factories.organization(f"Org {number}")
        world.running(org)
        set_to(org, account_status="suspended")
    later(clock, GRACE, world.node)
    assert len({where.organization_id for where in account_stops.due()}) == 6
    assert cost() == few


def test_the_database_knows_no_used_up_balance_that_nobody_has(world: World) -> None:
    with pytest.raises(IntegrityError, match="no_balance_is_not_used_up"), transaction.atomic():
        Organization.objects.filter(pk=world.buyer.pk).update(balance_low_at=Now())


def test_the_reasons_read_as_the_platforms_own() -> None:
    for reason in (states.BALANCE_USED_UP, states.ACCOUNT_SUSPENDED, states.ORGANIZATION_DELETED):
        assert states.read_by_programs(reason)
