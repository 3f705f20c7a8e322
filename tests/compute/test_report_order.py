"""The order of reports of guests: epochs, sequences within one, and counts that start again."""

import pytest
from django.core.management import CommandError, call_command

from compute.models import FlaggedReport
from openrelay.audit.models import AuditEvent
from tests import factories
from tests.compute.conftest import World, run_of, state
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db

FUTURE = 2**62


def test_a_new_epoch_is_heard_whatever_the_last_sequence_was(world: World) -> None:
    made = world.running(world.buyer)
    assert "flagged" not in world.says((made, "running"), epoch="first", sequence=FUTURE)
    assert "older" in world.says((made, "stopped"), epoch="first", sequence=5)["flagged"]
    assert "flagged" not in world.says((made, "stopped"), epoch="second", sequence=1)
    assert state(made)[0] == "stopped"


def test_a_late_report_of_a_past_epoch_does_not_count(world: World) -> None:
    made = world.running(world.buyer)
    world.says((made, "running"), epoch="first", sequence=10)
    # The inventory alone has begun the new epoch.
    body = {**factories.report(8, sequence=1), "epoch": "second"}
    assert world.agent().post("/v1/agent/inventory", body).status_code == 200
    assert "earlier start" in world.says((made, "stopped"), epoch="first", sequence=11)["flagged"]
    assert "flagged" not in world.says((made, "running"), epoch="second", sequence=1)
    assert "earlier start" in world.says((made, "stopped"), epoch="first", sequence=12)["flagged"]
    assert state(made)[0] == "running"


def test_a_clock_that_ran_ahead_makes_an_agent_without_epochs_deaf_for_a_minute_at_most(
    world: World, clock: Clock
) -> None:
    made = world.running(world.buyer)
    world.says((made, "running"), sequence=FUTURE)
    clock.advance(5)
    for number in range(6):
        assert "older" in world.says((made, "stopped"), sequence=5 + number)["flagged"]
        clock.advance(5)
    assert "flagged" not in world.says((made, "stopped"), sequence=20)
    assert state(made)[0] == "stopped"
    assert "flagged" not in world.says((made, "stopped"), sequence=21)


def test_the_same_sequence_with_other_content_is_flagged_and_changes_nothing(world: World) -> None:
    made = world.running(world.buyer)
    world.says((made, "running"), sequence=900)
    assert "flagged" not in world.says((made, "running"), sequence=900)
    assert "other content" in world.says((made, "stopped"), sequence=900)["flagged"]
    assert state(made)[0] == "running"
    assert FlaggedReport.objects.get(flag__contains="other content").content["guests"] == [
        {"runId": run_of(made), "state": "stopped", "message": ""}
    ]


@pytest.mark.parametrize("epoch", ["", "a\nb\x07", "x" * 65, 5, None])
def test_an_epoch_is_a_short_string(world: World, epoch: object) -> None:
    answer = world.agent().post("/v1/agent/reports", {"epoch": epoch, "sequence": 1, "guests": []})
    assert answer.status_code == 400
    assert "epoch" in answer.json()["error"]


def test_a_node_that_an_operator_reset_is_heard_at_once(world: World) -> None:
    made = world.running(world.buyer)
    world.says((made, "running"), epoch="first", sequence=FUTURE)
    inventory = {**factories.report(8, sequence=FUTURE), "epoch": "first"}
    assert "flagged" not in world.agent().post("/v1/agent/inventory", inventory).json()
    with pytest.raises(CommandError):
        call_command("reset_node_agent", str(world.node.pk), "--reason", " ")
    call_command("reset_node_agent", str(world.node.pk), "--reason", "its clock ran ahead")
    assert "flagged" not in world.says((made, "stopped"), epoch="first", sequence=2)
    inventory = {**factories.report(7, sequence=3), "epoch": "first"}
    assert "flagged" not in world.agent().post("/v1/agent/inventory", inventory).json()
    assert state(made)[0] == "stopped"
    event = AuditEvent.objects.get(event="node.agent_reset")
    assert (event.reason, event.before["reportSequence"]) == ("its clock ran ahead", FUTURE)
