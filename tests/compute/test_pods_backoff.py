"""Pods that lose their job again and again wait longer each time."""

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from compute.models import Run, Workload
from compute.services.agents.pod_backoff import FIRST_WAIT, LASTED, LONGEST_WAIT, Ended, wait_after
from openrelay.audit.models import AuditEvent
from openrelay.core.clock import rfc3339
from tests import factories
from tests.compute.conftest import World, consistent, state
from tests.compute.test_pods import Pods, pod_node
from tests.support.travel import Clock

START = dt.datetime(2026, 11, 2, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


def runs(*spans: float, lost: bool = True) -> list[Ended]:
    """Runs that were there for so many seconds, each begun when the one before may be followed."""
    found: list[Ended] = []
    for seconds in spans:
        begin = found[-1].closed_at if found else START
        due = wait_after(found).until or begin
        found.append(Ended(begin, due + seconds * SECOND, lost))
    return found


def waits(found: list[Ended]) -> float:
    until = wait_after(found).until
    return 0 if until is None else (until - found[-1].closed_at).total_seconds()


def test_each_loss_in_a_row_doubles_the_wait_up_to_five_minutes() -> None:
    found = [waits(runs(*[1.0] * number)) for number in range(1, 9)]
    assert found == [0, 10, 20, 40, 80, 160, 300, 300]
    assert wait_after([]) == wait_after(runs(5, lost=False))
    assert waits(runs(*[1.0] * 60)) == 300


def test_a_run_that_lasted_ends_the_row() -> None:
    lasted = LASTED.total_seconds()
    assert [waits(runs(1, 1, 1, seconds)) for seconds in (lasted - 1, lasted)] == [40, 0]
    assert waits(runs(1, 1, 1, lasted, 1)) == 10
    stopped = Ended(START + 100 * SECOND, START + 200 * SECOND, lost=False)
    assert waits([*runs(1, 1), stopped]) == 0


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=20))
def test_the_wait_is_never_longer_than_the_longest_and_only_after_two_losses(spans: list[int]) -> None:
    wait = wait_after(runs(*spans))
    assert 1 <= wait.losses <= len(spans)
    assert (wait.until is None) == (wait.losses == 1)
    if wait.until is not None:
        assert FIRST_WAIT <= wait.until - runs(*spans)[-1].closed_at <= LONGEST_WAIT


@pytest.fixture
def pods(world: World) -> Pods:
    return Pods(world, pod_node(world.provider))


def shown(pods: Pods, pod: Workload) -> dict[str, Any]:
    return pods.client(pods.world.buyer).get(f"/v1/vms/{pod.pk}").json()


@pytest.mark.django_db
def test_a_pod_that_is_lost_again_is_told_to_its_node_when_its_time_has_come(
    pods: Pods, clock: Clock
) -> None:
    pod, node, world = pods.running(), pods.node, pods.world
    at = clock.freeze(clock.now())
    pods.says((pod, "gone"))
    assert state(pod) == ("interrupted", "its job was lost on its node and is started again")
    assert shown(pods, pod)["provisioningStage"] == "waiting_to_restart"
    assert world.work(node)[str(pod.pk)]["number"] == 2
    pods.says((pod, "starting"))
    assert shown(pods, pod)["provisioningStage"] == "starting"
    pods.says((pod, "running"))
    assert "provisioningStage" not in shown(pods, pod)

    clock.freeze(at + 60 * SECOND)
    factories.online(node)
    pods.says((pod, "gone"))
    due = at + 70 * SECOND
    sentence = f"its job was lost 2 times in a row and is started again at {rfc3339(due)}"
    assert state(pod) == ("interrupted", sentence)
    assert shown(pods, pod)["provisioningStage"] == "waiting_to_restart"
    assert world.work(node) == {}
    consistent()
    clock.freeze(due - SECOND)
    assert world.work(node) == {}
    clock.freeze(due)
    assert world.work(node)[str(pod.pk)]["number"] == 3
    # Lost before it ever ran: interrupted as it was, and the next waits twice as long.
    pods.says((pod, "gone"))
    assert state(pod)[1].endswith(f"3 times in a row and is started again at {rfc3339(due + 20 * SECOND)}")
    told = AuditEvent.objects.filter(target_id=str(pod.pk), event="vm.job_lost")
    assert told.get().after["statusReason"] == state(pod)[1]
    clock.freeze(due + 20 * SECOND)
    pods.says((pod, "running"))
    assert state(pod) == ("running", "")
    # Ten minutes on it is as if it had never been lost.
    clock.freeze(due + 20 * SECOND + LASTED)
    factories.online(node)
    pods.says((pod, "gone"))
    assert world.work(node)[str(pod.pk)]["number"] == 5
    consistent()


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["stop", "terminate"])
def test_a_pod_that_waits_can_be_ended_at_once(pods: Pods, clock: Clock, verb: str) -> None:
    pod = pods.running()
    pods.says((pod, "gone"))
    pods.says((pod, "running"))
    pods.says((pod, "gone"))
    assert pods.world.work(pods.node) == {}
    assert pods.act(pod, verb).status_code == 200
    assert pods.world.work(pods.node)[str(pod.pk)]["desired"] == "gone"
    pods.says((pod, "never-started"))
    assert not Run.objects.open().exists()
    consistent()
    if verb == "stop":
        # Its user's start waits for nothing.
        assert pods.act(pod, "restart").status_code == 200
        assert pods.world.work(pods.node)[str(pod.pk)]["desired"] == "running"


@pytest.mark.django_db
def test_asking_for_work_costs_one_question_more_however_many_were_lost(pods: Pods) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            pods.world.work(pods.node)
        return len(queries)

    first, *others = (pods.running() for _ in range(4))
    pods.world.work(pods.node)
    before = cost()
    for made in (first, first):
        pods.says((made, "gone"))
    assert cost() <= before + 1
    lost = cost()
    for made in [*others, *others]:
        pods.says((made, "gone"))
    assert cost() <= lost
