"""What a node's agent says of its guests, and what becomes of it."""

import datetime as dt

import pytest
from rest_framework.test import APIClient

from compute.models import Claim, FlaggedReport, Occupancy, Run, Workload
from compute.services.lifecycle import overdue_teardowns
from nodes.models import GpuUnit, Node, NodeCredential, NodeHeartbeat
from openrelay.audit.models import AuditEvent
from openrelay.core.clock import Now
from openrelay.core.errors import Conflict, Invalid, NotFound
from tests import factories
from tests.compute.conftest import World, consistent, refused, run_of, state

pytestmark = pytest.mark.django_db


def events(made: Workload) -> list[str]:
    rows = AuditEvent.objects.filter(target_id=str(made.pk)).order_by("created_at", "id")
    return [row.event for row in rows]


def occupied(world: World) -> int:
    return Occupancy.objects.open().filter(node=world.node).count()


def test_a_guest_reported_running_makes_its_vm_run_once(world: World) -> None:
    made = world.running(world.buyer)
    started = made.started_at
    assert started is not None
    world.says((made, "running"))
    made.refresh_from_db()
    assert made.started_at == started
    assert events(made) == ["vm.created", "vm.running"]


def test_a_guest_that_stops_by_itself_stops_its_vm_and_frees_its_unit(world: World) -> None:
    made = world.running(world.buyer)
    world.says((made, "stopped"))
    assert state(made) == ("stopped", "vm_exited")
    assert not Claim.objects.exists()
    assert occupied(world) == 0


def test_a_failed_start_says_why_and_gives_up_its_unit_once(world: World) -> None:
    made = world.vm(world.buyer)
    answer = {"message": "out of hugepages"}
    world.sequence += 1
    world.agent().post(
        "/v1/agent/reports",
        {"sequence": world.sequence, "guests": [{"runId": run_of(made), "state": "failed", **answer}]},
    )
    assert state(made) == ("failed", "out of hugepages")
    assert world.terminate(world.buyer, made).status_code == 200
    world.says((made, "failed"))
    assert state(made) == ("terminated", "user_terminated")
    assert events(made) == ["vm.created", "vm.failed", "vm.terminated"]
    assert not Claim.objects.exists()
    assert occupied(world) == 0


def test_what_a_runtime_says_of_a_failure_never_keeps_its_nodes_reports_out(world: World) -> None:
    made, other = world.vm(world.buyer), world.vm(world.buyer)
    message = "\x1b[31mfatal\x1b[0m: hugepages\r\nare\x08 short " + "x" * 5000
    answer = world.says(
        (other, "running"),
        guests=[
            {"runId": run_of(other), "state": "running"},
            {"runId": run_of(made), "state": "failed", "message": message},
        ],
    )
    assert "flagged" not in answer
    assert state(other) == ("running", "")
    status, reason = state(made)
    assert (status, len(reason)) == ("failed", 300)
    assert reason.startswith("fatal: hugepages\nare short xxx")


@pytest.mark.parametrize(
    "message",
    [
        "node_removed",
        "user_stopped",
        "spot_reclaimed_by_capacity_owner",
        "auto_stopped_account_suspended",
        "node leaving at 2030-01-31T12:00:00Z",
        "  ",
    ],
)
def test_a_guests_message_is_never_read_as_a_reason_of_the_platforms(world: World, message: str) -> None:
    made = world.running(world.buyer)
    world.says(guests=[{"runId": run_of(made), "state": "failed", "message": message}])
    status, reason = state(made)
    assert status == "failed"
    assert reason.startswith("the guest failed")
    assert message.strip() in reason
    assert world.client(world.buyer).post(f"/v1/vms/{made.pk}/restart").status_code == 200


def test_absence_is_no_evidence(world: World) -> None:
    first, second = world.running(world.buyer), world.running(world.buyer)
    answer = world.says((second, "running"))
    assert "leaves out 1" in answer["flagged"]
    answer = world.says()
    assert "empty" in answer["flagged"]
    assert (state(first)[0], state(second)[0]) == ("running", "running")
    assert occupied(world) == 2
    assert FlaggedReport.objects.count() == 2
    assert "flagged" not in world.says((first, "running"), (second, "running"))


def test_a_partial_report_changes_nothing(world: World) -> None:
    made = world.running(world.buyer)
    answer = world.says((made, "stopped"), complete=False)
    assert "partial" in answer["flagged"]
    assert state(made)[0] == "running"
    assert occupied(world) == 1


def test_a_report_older_than_one_taken_changes_nothing(world: World) -> None:
    made = world.running(world.buyer)
    world.sequence += 10
    world.says((made, "running"))
    answer = world.says((made, "stopped"), sequence=world.sequence - 5)
    assert "older" in answer["flagged"]
    assert state(made)[0] == "running"


def test_an_odd_report_repeated_for_hours_is_noted_once(world: World) -> None:
    world.running(world.buyer)
    for _ in range(5):
        world.says()
    assert FlaggedReport.objects.count() == 1
    assert AuditEvent.objects.filter(event="node.report_flagged").count() == 1


def test_the_same_report_again_changes_and_audits_nothing(world: World) -> None:
    made = world.running(world.buyer)
    before = AuditEvent.objects.count()
    for _ in range(3):
        world.says((made, "running"), sequence=world.sequence)
        world.says((made, "running"))
    assert AuditEvent.objects.count() == before


def test_marked_gone_while_alive_the_unit_waits_for_the_agent(world: World) -> None:
    made = world.running(world.buyer, gpuCount=8)
    NodeHeartbeat.objects.update(seen_at=Now() - dt.timedelta(hours=1))
    world.terminate(world.buyer, made)
    assert state(made) == ("terminated", "user_terminated")
    factories.online(world.node)
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_GPU_CAPACITY")
    world.says((made, "gone"))
    world.vm(world.buyer)
    consistent()


def test_an_operators_word_frees_a_unit_with_a_reason_on_record(world: World) -> None:
    made = world.running(world.buyer, gpuCount=8)
    run = made.runs.get()
    operator = factories.operator()
    with pytest.raises(Conflict):
        overdue_teardowns.close_occupancy_by_override(caller=operator, run_id=run.pk, reason="it is dead")
    world.terminate(world.buyer, made)
    with pytest.raises(Invalid):
        overdue_teardowns.close_occupancy_by_override(caller=operator, run_id=run.pk, reason=" ")
    with pytest.raises(NotFound):
        overdue_teardowns.close_occupancy_by_override(
            caller=factories.caller(world.provider), run_id=run.pk, reason="it is mine"
        )
    overdue_teardowns.close_occupancy_by_override(caller=operator, run_id=run.pk, reason="power was cut")
    assert occupied(world) == 0
    event = AuditEvent.objects.get(event="vm.occupancy_overridden")
    assert event.reason == "power was cut"
    world.vm(world.buyer)


def test_a_guest_that_returns_after_an_override_occupies_its_unit_again(world: World) -> None:
    made = world.running(world.buyer)
    world.terminate(world.buyer, made)
    run = made.runs.get()
    operator = factories.operator()
    overdue_teardowns.close_occupancy_by_override(caller=operator, run_id=run.pk, reason="power was cut")
    successor = world.vm(world.buyer)
    assert world.units(successor) == [0]
    answer = world.says((made, "running"))
    assert answer["tearDown"] == [str(run.pk)]
    assert "said to be over" in answer["flagged"]
    assert world.work()[str(successor.pk)]["waitsFor"] == [str(run.pk)]
    assert state(made)[0] == "terminated"
    world.says((made, "gone"))
    assert world.work()[str(successor.pk)]["waitsFor"] == []


def test_a_late_word_that_it_runs_does_not_bring_a_terminated_vm_back(world: World) -> None:
    made = world.vm(world.buyer)
    world.terminate(world.buyer, made)
    world.says((made, "running"))
    assert state(made) == ("terminated", "user_terminated")
    assert world.work()[str(made.pk)]["desired"] == "gone"
    assert occupied(world) == 1
    world.says((made, "gone"))
    assert occupied(world) == 0
    assert world.work() == {}


def test_a_node_speaks_of_its_own_runs_only(world: World) -> None:
    made = world.running(world.buyer)
    other = factories.node(world.provider, 1)
    answer = world.says((made, "running"), ("0192f3a0-0000-7000-8000-000000000000", "running"), node=other)
    assert len(answer["tearDown"]) == 2
    world.says((made, "failed"), node=other)
    assert state(made)[0] == "running"
    assert world.work(other) == {}


def test_a_lost_gpu_is_not_placed_on_and_the_others_are(world: World) -> None:
    world.agent().post(
        "/v1/agent/inventory",
        {**factories.report([factories.unit_report(n) for n in range(1, 8)], sequence=99)},
    )
    world.node.refresh_from_db()
    assert world.units(world.vm(world.buyer, gpuCount=7)) == [1, 2, 3, 4, 5, 6, 7]
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_GPU_CAPACITY")


def test_a_run_starts_only_when_every_earlier_one_is_off_its_units(world: World) -> None:
    reservation = world.reserve(*range(8))
    world.release(reservation, 0, 1)
    spots = [world.running(world.buyer, tier="spot") for _ in range(2)]
    made = world.vm(world.tenant, nodeId=str(world.node.pk), gpuCount=8)
    assert sorted(world.work()[str(made.pk)]["waitsFor"]) == sorted(run_of(spot) for spot in spots)
    world.says((spots[0], "gone"), (spots[1], "running"))
    assert world.work()[str(made.pk)]["waitsFor"] == [run_of(spots[1])]
    assert state(made)[0] == "pending"
    world.says((spots[1], "gone"))
    assert state(made)[0] == "deploying"
    world.says((made, "running"))
    assert state(made)[0] == "running"
    consistent()


def test_an_overdue_teardown_is_reported_once(world: World, clock) -> None:  # type: ignore[no-untyped-def]
    made = world.running(world.buyer)
    world.terminate(world.buyer, made)
    assert overdue_teardowns.overdue_ids() == []
    clock.advance(121)
    (run_id,) = overdue_teardowns.overdue_ids()
    assert overdue_teardowns.report_overdue(run_id)
    assert not overdue_teardowns.report_overdue(run_id)
    assert overdue_teardowns.overdue_ids() == []
    assert AuditEvent.objects.filter(event="vm.teardown_overdue").count() == 1
    assert occupied(world) == 1


@pytest.mark.parametrize("path", ["inventory", "work", "reports"])
def test_only_a_live_node_credential_serves(world: World, path: str) -> None:
    def status(client: APIClient) -> int:
        call = client.get if path == "work" else client.post
        return call(f"/v1/agent/{path}").status_code

    assert status(APIClient()) == 401
    assert status(world.client(world.provider)) == 401
    agent = world.agent()
    assert status(agent) in (200, 400)
    assert agent.get("/v1/whoami").status_code == 401
    NodeCredential.objects.update(revoked_at=Now())
    assert status(agent) == 401
    NodeCredential.objects.update(revoked_at=None)
    # A removed node has guests to tear down, and has to say so.
    Node.objects.update(removed_at=Now())
    assert status(agent) in (200, 400)


def test_every_call_is_a_sign_of_life_written_now_and_then(world: World, clock) -> None:  # type: ignore[no-untyped-def]
    clock.freeze()
    NodeHeartbeat.objects.update(seen_at=None)
    world.work()
    seen = NodeHeartbeat.objects.get(node=world.node).seen_at
    assert seen is not None
    world.work()
    assert NodeHeartbeat.objects.get(node=world.node).seen_at == seen
    clock.advance(4)
    world.work()
    assert NodeHeartbeat.objects.get(node=world.node).seen_at > seen


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sequence": 0, "guests": []},
        {"sequence": 1},
        {"sequence": 1, "guests": [{"runId": "x", "state": "running"}]},
        {"sequence": 1, "guests": [{"runId": "0192f3a0-0000-7000-8000-000000000000", "state": "flying"}]},
        {"sequence": 1, "guests": [{"runId": "0192f3a0-0000-7000-8000-000000000000", "state": "gone"}] * 2},
    ],
)
def test_a_malformed_report_is_refused(world: World, body: dict) -> None:  # type: ignore[type-arg]
    refused(world.agent().post("/v1/agent/reports", body), 400, "VALIDATION_ERROR")


def test_the_same_number_of_queries_for_one_guest_and_for_eight(
    world: World,
    django_assert_num_queries,  # type: ignore[no-untyped-def]
) -> None:
    world.running(world.buyer)
    agent = world.agent()
    agent.get("/v1/agent/work")
    with django_assert_num_queries(7):
        agent.get("/v1/agent/work")
    for _ in range(7):
        world.vm(world.buyer)
    with django_assert_num_queries(7):
        agent.get("/v1/agent/work")
    assert Run.objects.open().count() == 8
    assert GpuUnit.objects.filter(claims__isnull=False).count() == 8
