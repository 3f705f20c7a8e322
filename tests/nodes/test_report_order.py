"""The order of inventory reports: epochs, sequences within an epoch, and restarted sequences."""

import pytest

from nodes.models import AgentEpoch, InventoryReport, Node
from nodes.services import report_order
from openrelay.audit.models import AuditEvent
from tests import factories
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db

FUTURE = 2**62


@pytest.fixture
def node() -> Node:
    return factories.node(factories.organization(), 4)


def says(node: Node, units: int, **fields: object) -> str:
    """Report `units` as the agent, and return why the report was flagged."""
    return str(factories.inventory(node, units, **fields).flagged)


def test_a_new_epoch_is_heard_whatever_the_last_sequence_was(node: Node) -> None:
    assert not says(node, 4, epoch="first", sequence=FUTURE)
    assert "older" in says(node, 3, epoch="first", sequence=5)
    assert not says(node, 3, epoch="second", sequence=1)
    assert node.topology_gen == 2


def test_a_late_report_of_a_past_epoch_does_not_count(node: Node) -> None:
    says(node, 4, epoch="first", sequence=10)
    says(node, 3, epoch="second", sequence=1)
    assert "earlier start" in says(node, 4, epoch="first", sequence=11)
    assert "has no epoch" in says(node, 4, sequence=FUTURE)
    assert node.topology_gen == 2


def test_a_sequence_from_the_future_makes_an_agent_without_epochs_deaf_for_a_minute_at_most(
    node: Node, clock: Clock
) -> None:
    says(node, 4, sequence=FUTURE)
    clock.advance(60)
    assert "older" in says(node, 3, sequence=5)
    clock.advance(60)
    assert not says(node, 3, sequence=6)
    assert (node.topology_gen, node.inventory_sequence) == (2, 6)


def test_older_reports_beside_taken_ones_never_count(node: Node, clock: Clock) -> None:
    says(node, 4, sequence=1000)
    for number in range(5):
        clock.advance(30)
        assert "older" in says(node, 3, sequence=5 + number)
        clock.advance(30)
        assert not says(node, 4, sequence=1001 + number)
    assert node.topology_gen == 1


def test_an_older_report_that_is_repeated_never_counts(node: Node, clock: Clock) -> None:
    says(node, 4, sequence=1000)
    for _ in range(5):
        clock.advance(60)
        assert "older" in says(node, 3, sequence=5)
    assert node.topology_gen == 1


def test_an_agent_that_names_no_epoch_any_more_is_heard_again(node: Node, clock: Clock) -> None:
    says(node, 4, epoch="first", sequence=10)
    clock.advance(60)
    assert says(node, 3, sequence=1)
    clock.advance(60)
    assert not says(node, 3, sequence=2)
    assert not says(node, 4, epoch="next", sequence=1)
    assert node.topology_gen == 3


def test_the_same_sequence_with_other_content_is_flagged(node: Node) -> None:
    says(node, 4, epoch="first", sequence=7)
    assert not says(node, 4, epoch="first", sequence=7)
    assert "other content" in says(node, 3, epoch="first", sequence=7)
    assert node.topology_gen == 1


def test_past_epochs_are_remembered_up_to_a_bound(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_order, "EPOCHS_KEPT", 3)
    for number in range(6):
        assert not says(node, 4, epoch=f"epoch-{number}", sequence=1)
    assert list(AgentEpoch.objects.filter(node=node).values_list("epoch", flat=True)) == [
        "epoch-5",
        "epoch-4",
        "epoch-3",
    ]


def test_a_trouble_that_comes_and_goes_adds_a_row_a_minute_at_most(node: Node) -> None:
    for number in range(5):
        says(node, 4, sequence=100 + 2 * number)
        assert says(node, 3, sequence=50 + number)
        assert says(node, 3, sequence=101 + 2 * number, complete=False)
    assert InventoryReport.objects.exclude(flagged="").count() == 2
    assert AuditEvent.objects.filter(event="node.report_flagged").count() == 2
