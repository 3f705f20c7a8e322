"""Nodes that go offline and return: their workloads, and the level and version of their agents."""

import datetime as dt
from typing import Any

import pytest

from compute import tasks
from compute.models import Claim, Run, UsageSession, Workload
from nodes.levels import AMD_GRANT
from nodes.models import Node, NodeHeartbeat
from nodes.services.liveness import agent_level_of
from openrelay.audit.models import AuditEvent
from openrelay.identity.models import Organization
from reservations.services.invariants import violations
from tests import factories
from tests.compute.conftest import World, refused, state, world

__all__ = ["world"]

pytestmark = pytest.mark.django_db

WEEK = dt.timedelta(days=7).total_seconds()


def interrupted(world: World, clock: Any, **body: Any) -> Workload:
    """Create a VM that was running on the world's node when the node went offline."""
    made = world.running(world.buyer, **body)
    clock.advance(91)
    tasks.sweep_lost_nodes()
    assert state(made) == ("interrupted", "node_lost")
    return made


def test_what_runs_or_deploys_is_interrupted_once_the_grace_is_over(world: World, clock: Any) -> None:
    running, deploying = world.running(world.buyer), world.vm(world.buyer)
    clock.freeze()
    factories.online(world.node)
    clock.advance(89)
    tasks.sweep_lost_nodes()
    assert state(running)[0] == "running"
    clock.advance(2)
    for _ in range(2):
        tasks.sweep_lost_nodes()
    assert state(running) == state(deploying) == ("interrupted", "node_lost")
    assert running.interrupted_at is not None
    assert Claim.objects.count() == 2
    assert Run.objects.wanted().count() == 2
    assert AuditEvent.objects.filter(event="vm.interrupted").count() == 2
    assert violations() == []


@pytest.mark.parametrize("call", ["inventory", "work", "report", "notice"])
def test_silence_is_free_though_no_task_has_noticed_it(world: World, clock: Any, call: str) -> None:
    Organization.objects.filter(pk=world.provider.pk).update(leave_notices_enabled=True)
    at = clock.freeze()
    factories.online(world.node)
    made = world.running(world.buyer)
    clock.advance(3600)
    if call == "inventory":
        body = factories.report(8, sequence=world.node.inventory_sequence + 1)
        assert world.agent().post("/v1/agent/inventory", body).status_code == 200
    elif call == "work":
        world.work()
    elif call == "notice":
        answer = world.agent().post("/v1/nodes/termination-notice", {"noticeSeconds": 86_400})
        assert answer.status_code == 200
    world.says((made, "running"))
    assert state(made)[0] == "running"
    silent, now = UsageSession.objects.filter(workload=made).order_by("started_at")
    assert silent.ended_at == at + dt.timedelta(seconds=90)
    assert (now.started_at, now.ended_at) == (clock.now(), None)
    names = AuditEvent.objects.filter(target_id=str(made.pk)).order_by("created_at", "id")
    assert [row.event for row in names if row.event != "vm.node_leaving"] == [
        "vm.created",
        "vm.running",
        "vm.interrupted",
        "vm.running",
    ]
    assert violations() == []


def test_it_runs_again_when_its_agent_says_so_though_that_is_nothing_new(world: World, clock: Any) -> None:
    made = interrupted(world, clock)
    world.work()  # a heartbeat without a report of the guest
    tasks.sweep_lost_nodes()
    assert state(made)[0] == "interrupted"
    world.says()
    assert state(made)[0] == "interrupted"
    world.says((made, "running"))
    assert state(made) == ("running", "")
    assert made.interrupted_at is None
    assert violations() == []


def test_what_never_ran_starts_when_it_first_does(world: World, clock: Any) -> None:
    made = world.vm(world.buyer)
    clock.advance(91)
    tasks.sweep_lost_nodes()
    world.says((made, "starting"))
    assert state(made)[0] == "interrupted"
    world.says((made, "running"))
    assert state(made)[0] == "running"
    assert made.started_at is not None


def test_a_guest_that_ended_meanwhile_has_ended(world: World, clock: Any) -> None:
    made = interrupted(world, clock)
    world.says((made, "stopped"))
    assert state(made) == ("stopped", "vm_exited")
    assert not Claim.objects.exists()


def test_an_interrupted_workload_can_be_terminated_and_its_unit_waits_for_the_node(
    world: World, clock: Any
) -> None:
    made = interrupted(world, clock)
    assert world.terminate(world.buyer, made).status_code == 200
    world.work()
    refused(world.ask(world.buyer, gpuCount=8), 503, "INSUFFICIENT_GPU_CAPACITY", "7")
    world.says((made, "running"))
    assert state(made)[0] == "terminated"
    world.says((made, "gone"))
    world.vm(world.buyer, gpuCount=8)


@pytest.mark.parametrize(("kind", "end"), [("vm", "stopped"), ("pod", "terminated")])
def test_after_a_week_a_vm_is_stopped_and_a_pod_ended(world: World, clock: Any, kind: str, end: str) -> None:
    made = interrupted(world, clock)
    Workload.objects.update(kind=kind)
    clock.advance(WEEK - 10)
    tasks.sweep_interrupted()
    assert state(made)[0] == "interrupted"
    clock.advance(20)
    for _ in range(2):
        tasks.sweep_interrupted()
    assert state(made) == (end, "node_lost")
    assert made.interrupted_at is not None  # kept when it ended so
    assert made.disk_size_gb
    assert not Claim.objects.exists()
    assert Run.objects.being_torn_down().count() == 1
    assert violations() == []
    world.says((made, "running"))
    assert state(made)[0] == end


def test_a_node_that_is_heard_from_when_the_lock_is_had_is_left_alone(
    world: World, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world.running(world.buyer)
    clock.advance(91)
    found = tasks.interrupt.lost_node_ids()
    assert found == [world.node.pk]
    factories.online(world.node)
    assert tasks.interrupt.interrupt_lost(found[0]) == []
    assert state(made)[0] == "running"


def test_a_sweep_goes_on_past_what_cannot_be_done(
    world: World, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    acted: list[object] = []

    def act(node_id: object) -> None:
        acted.append(node_id)
        raise RuntimeError("no")

    monkeypatch.setattr(tasks.interrupt, "lost_node_ids", lambda: [1, 2])
    monkeypatch.setattr(tasks.interrupt, "interrupt_lost", act)
    tasks.sweep_lost_nodes()
    assert acted == [1, 2]


def heartbeat(node: Node) -> NodeHeartbeat:
    return NodeHeartbeat.objects.get(node=node)


def test_agents_say_their_level_and_version_and_a_change_is_noted_at_once(world: World) -> None:
    agent = world.agent()
    agent.get("/v1/agent/work")
    assert agent_level_of(world.node) == 1
    agent.get("/v1/agent/work", headers={"OpenRelay-Agent-Level": "3", "OpenRelay-Agent-Version": "2.1.0"})
    assert agent_level_of(world.node) == AMD_GRANT
    assert heartbeat(world.node).agent_version == "2.1.0"
    agent.get("/v1/agent/work", headers={"OpenRelay-Agent-Level": "2"})
    assert agent_level_of(world.node) == 2


@pytest.mark.parametrize(
    "headers",
    [
        {"OpenRelay-Agent-Level": "0"},
        {"OpenRelay-Agent-Level": "-1"},
        {"OpenRelay-Agent-Level": "two"},
        {"OpenRelay-Agent-Level": "99999"},
        {"OpenRelay-Agent-Version": "a b"},
        {"OpenRelay-Agent-Version": "x" * 65},
    ],
)
def test_a_level_that_is_none_is_refused(world: World, headers: dict[str, str]) -> None:
    refused(world.agent().get("/v1/agent/work", headers=headers), 400, "VALIDATION_ERROR", "OpenRelay-Agent")
