"""Replaced GPU cards: a failure belongs to the card and not to the slot."""

import pytest

from nodes.models import Gpu, Node
from openrelay.audit.models import AuditEvent
from tests import factories
from tests.nodes.test_inventory import H100, four, gpus, reports
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db


@pytest.fixture
def node() -> Node:
    return factories.node(factories.organization(), four(unit0=gpus(H100, serial="old")))


def card() -> Gpu:
    return Gpu.objects.get(unit__address=factories.address(0))


def test_another_card_in_a_slot_is_an_event_with_both_serials(node: Node) -> None:
    reports(node, four(unit0=gpus(H100, serial="new")))
    assert (card().serial, card().previous_serial) == ("new", "old")
    event = AuditEvent.objects.get(event="gpu.card_changed")
    assert (event.after["serialBefore"], event.after["serial"]) == ("old", "new")
    assert node.topology_gen == 1


def test_another_card_does_not_inherit_the_failure_of_the_old_one(node: Node, clock: Clock) -> None:
    broken = {"healthy": False, "failure": "it fell off the bus"}
    reports(
        node, four(unit0=gpus(H100, serial="old") | {"gpus": [gpus(H100, serial="old")["gpus"][0] | broken]})
    )
    failed_at = card().failed_at
    clock.advance(60)
    new = gpus(H100, serial="new")["gpus"][0]
    reports(node, four(unit0={"gpus": [new | {"healthy": False}]}))
    assert (card().failure, card().failed_at != failed_at) == ("", True)
    reports(node, four(unit0={"gpus": [new]}))
    assert card().failed_at is None


def test_a_serial_that_is_not_reported_is_no_change(node: Node) -> None:
    for fields in ({}, {"serial": ""}, {"serial": "old"}):
        reports(node, four(unit0=gpus(H100, **fields)))
    assert card().serial == "old"
    assert not AuditEvent.objects.filter(event="gpu.card_changed").exists()
