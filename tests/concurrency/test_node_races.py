"""An owner who takes a node away at the moment that others place, start and stop there."""

import datetime as dt
from functools import partial
from typing import Any

from compute.models import Workload
from compute.services.agents.guest_reports import Guest, Report, take_report
from compute.services.lifecycle import drain, interrupt
from nodes.models import Node, NodeHeartbeat
from openrelay.audit.actor import Actor
from openrelay.audit.models import AuditEvent
from openrelay.core import clock
from openrelay.core.clock import rfc3339
from reservations.services.invariants import violations
from tests import factories
from tests.concurrency.conftest import Crowd, statuses, together
from tests.reservations import makers

ALIVE = ("pending", "deploying", "running", "interrupted", "failed")


def set_status(crowd: Crowd, status: str, node: Node | None = None) -> Any:
    node = node or crowd.fleet.node
    path = f"/v1/orgs/{crowd.fleet.provider.pk}/provider/nodes/{node.pk}"
    return crowd.call("PATCH", path, "provider", status=status)


def test_nothing_is_placed_on_a_node_that_is_drained_at_that_moment(crowd: Crowd) -> None:
    for _ in range(8):
        creates = [partial(crowd.create, "tenant")] * 6
        answers = together(*creates, partial(set_status, crowd, "draining"))
        assert answers[-1].status_code == 200
        assert set(statuses(answers[:-1])) <= {200, 503}
        assert not Workload.objects.filter(status__in=ALIVE).exists()
        for workload in Workload.objects.filter(runs__closed_at=None):
            makers.confirm(workload)
        assert set_status(crowd, "online").status_code == 200


def test_a_node_is_removed_once_and_nobody_is_left_on_it(crowd: Crowd) -> None:
    ended = AuditEvent.objects.filter(event="node.removed")
    vm = crowd.create("tenant").json()["id"]
    answers = together(
        *[partial(set_status, crowd, "removed")] * 4,
        *[partial(crowd.create, "tenant")] * 4,
        partial(crowd.terminate, "tenant", vm),
        partial(crowd.reserve, 5),
    )
    assert statuses(answers[:4]) == [200, 400, 400, 400]
    assert ended.count() == 1
    assert AuditEvent.objects.filter(event="vm.terminated", target_id=vm).count() == 1
    assert not Workload.objects.filter(status__in=ALIVE).exists()


def test_of_many_notices_the_earliest_stands(crowd: Crowd) -> None:
    node = factories.node(crowd.fleet.provider, 2, node_class="interruptible", notice_seconds=30)
    until = [clock.read() + dt.timedelta(seconds=600 + 60 * n) for n in range(6)]
    path = f"/v1/orgs/{crowd.fleet.provider.pk}/provider/nodes/{node.pk}/offboard"
    answers = together(
        *(partial(crowd.call, "POST", path, "provider", terminateAt=rfc3339(at)) for at in until)
    )
    assert statuses(answers) == [200] * 6
    node.refresh_from_db()
    assert node.terminate_at == until[0]


def test_a_removal_that_is_due_happens_once_whoever_works(crowd: Crowd) -> None:
    node = factories.node(crowd.fleet.provider, 2, node_class="interruptible")
    makers.workload(node, crowd.fleet.tenant, [0])
    Node.objects.filter(pk=node.pk).update(terminate_at=clock.read())
    assert sorted(together(*[partial(drain.remove_due, node.pk)] * 6)) == [False] * 5 + [True]
    assert AuditEvent.objects.filter(event="node.removed").count() == 1


def test_a_node_that_falls_silent_while_it_reports_ends_as_its_agent_says(crowd: Crowd) -> None:
    node = crowd.fleet.node
    made = makers.workload(node, crowd.fleet.tenant, [0])
    (run,) = made.runs.all()
    actor = Actor(f"node:{node.pk}")

    def report(sequence: int) -> None:
        take_report(
            node=node,
            report=Report(sequence, True, (Guest(run.pk, "running"),)),
            actor=actor,
        )

    report(1)
    for number in range(20):
        NodeHeartbeat.objects.filter(node=node).update(seen_at=None)
        together(partial(interrupt.interrupt_lost, node.pk), partial(report, 2 * number + 2))
        made.refresh_from_db()
        assert made.status in ("running", "interrupted")
        assert violations() == []
        report(2 * number + 3)
        made.refresh_from_db()
        assert made.status == "running"
