"""The simulated node against a real server: a failed GPU, going offline, an old level, removal."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from compute import tasks
from compute.models import Occupancy, Run
from compute.services.lifecycle.drain import set_status
from compute.simulation.node import Memory, SimulatedNode
from nodes.levels import BASE, LATEST
from nodes.models import Gpu
from nodes.services.liveness import agent_level_of
from reservations.services.invariants import violations
from tests import factories
from tests.compute.conftest import World, state, world
from tests.support.web import Server

__all__ = ["world"]

pytestmark = pytest.mark.django_db(transaction=True)


class Host:
    """The simulated agent of the world's node, advanced step by step."""

    def __init__(self, server: Server, http: httpx.Client, world: World, credential: str = "") -> None:
        units = [factories.unit_report(number) for number in range(8)]
        self.entry: dict[str, Any] = {
            "nodeId": str(world.node.pk),
            "credential": credential or factories.credential(world.node),
            "inventory": {"runtime": "qemu", "host": {"ramMb": 2**20, "diskTotalGb": 16000}, "units": units},
            "bootSeconds": 0,
            "stopSeconds": 0,
        }
        self._http, self._base_url = http, server.url
        self.forget()

    def forget(self) -> None:
        """Replace the agent with a new one that has no memory."""
        self.agent = SimulatedNode(
            self.entry,
            Memory(),
            http=self._http,
            base_url=self._base_url,
            clock=time.time,
            remember=lambda: None,
        )

    def turn(self, times: int = 3, **behaviour: Any) -> None:
        """Change the agent's behaviour, then run it for some turns."""
        self.entry |= behaviour
        self.agent.configure(self.entry)
        for _ in range(times):
            self.agent.turn()


@pytest.fixture
def host(server: Server, world: World) -> Iterator[Host]:
    with httpx.Client(trust_env=False) as http:
        yield Host(server, http, world)


def test_it_can_be_told_to_fail_a_gpu_and_to_heal_it(host: Host, world: World) -> None:
    vm = world.vm(world.buyer)
    host.turn()
    assert state(vm)[0] == "running"
    (unit,) = world.units(vm)
    host.turn(failedGpus=[factories.address(unit)])
    (gpu,) = Gpu.objects.exclude(failed_at=None)
    assert (gpu.address, gpu.failure) == (factories.address(unit), "it fell off the bus")
    assert state(vm)[0] == "running"
    host.turn(failedGpus=[])
    assert not Gpu.objects.exclude(failed_at=None).exists()


def test_it_can_be_of_an_old_level(host: Host, world: World) -> None:
    host.turn()
    assert agent_level_of(world.node) == LATEST
    host.turn(agentLevel=BASE)
    assert agent_level_of(world.node) == BASE


def test_it_can_go_silent_and_return(host: Host, world: World, clock: Any) -> None:
    vm = world.vm(world.buyer)
    host.turn()
    clock.advance(100)
    host.turn(offline=True)
    tasks.sweep_lost_nodes()
    assert state(vm) == ("interrupted", "node_lost")
    host.agent.REPORT_EVERY = 0.0
    host.turn(offline=False)
    assert state(vm) == ("running", "")


def test_one_that_lost_its_memory_ends_where_the_platform_wants_it(host: Host, world: World) -> None:
    kept, ended = world.vm(world.buyer), world.vm(world.buyer)
    host.turn()
    assert (state(kept)[0], state(ended)[0]) == ("running", "running")
    host.forget()
    world.terminate(world.buyer, ended)
    host.turn(6)
    assert (state(kept)[0], state(ended)[0]) == ("running", "terminated")
    assert [run.workload_id for run in Run.objects.open()] == [kept.pk]
    assert violations() == []


def test_two_with_one_credential_leave_nothing_wrong(host: Host, server: Server, world: World) -> None:
    with httpx.Client(trust_env=False) as http:
        double = Host(server, http, world, credential=host.entry["credential"])
        for each in (host, double):
            each.agent.REPORT_EVERY = 0.0
        first = world.vm(world.buyer, gpuCount=8)
        for _ in range(4):
            host.turn(1)
            double.turn(1)
        assert state(first)[0] == "running"
        world.terminate(world.buyer, first)
        # One host reports that the guest is gone; the other still has it.
        double.turn(2, keepsGuests=True)
        host.turn(3)
        # The server takes reports of the agent that started last; those of the other free nothing.
        assert set(Occupancy.objects.open().values_list("run__workload", flat=True)) == {first.pk}
        for _ in range(6):
            double.turn(1, keepsGuests=False)
            host.turn(1)
        second = world.vm(world.buyer, gpuCount=8)
        for _ in range(6):
            double.turn(1)
            host.turn(1)
    assert (state(first)[0], state(second)[0]) == ("terminated", "running")
    assert set(Occupancy.objects.open().values_list("run__workload", flat=True)) == {second.pk}
    assert violations() == []


def test_removed_it_tears_down_what_it_has(host: Host, world: World) -> None:
    vm = world.vm(world.buyer)
    host.turn()
    set_status(caller=factories.caller(world.provider), node_id=world.node.pk, status="removed")
    host.turn(bootSeconds=1)  # a new inventory is due, and refused
    host.agent.REPORT_EVERY = 0.0
    host.agent._inventory_at = float("-inf")
    host.turn()
    assert state(vm) == ("terminated", "node_removed")
    assert not Run.objects.open().exists()
