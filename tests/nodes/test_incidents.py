"""Incidents of agents: opened once, visible to operators, and closed when the problem ends."""

import json
from typing import Any

import pytest
from django.test import Client

from nodes.models import GpuUnit, Node, NodeIncident
from openrelay.audit.models import AuditEvent
from openrelay.audit.services.repeats import write_counted
from tests import factories
from tests.identity.factories import bearer
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db


@pytest.fixture
def node() -> Node:
    return factories.node(factories.organization(), 4)


def post(client: Client, node: Node, path: str, body: Any) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    secret = factories.credential(node)
    return client.post(f"/v1/agent/{path}", raw, content_type="application/json", **bearer(secret))


def events(node: Node, event: str) -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(event=event, target_id=str(node.pk)).order_by("created_at", "id"))


UNREADABLE = {
    "truncated": (b'{"sequence": 5, "complete": tr', "not JSON"),
    "wrong type": ({"sequence": "5", "complete": True, "units": []}, "sequence must be an integer"),
    "unknown field": ({"sequence": 5, "complete": True, "units": [], "extra": 1}, "extra is not a field"),
    "contradicts itself": (
        {"sequence": 5, "complete": True, "units": [factories.unit_report(0), factories.unit_report(0)]},
        "units",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_report_that_cannot_be_read_is_an_event_and_an_incident(
    client: Client, node: Node, case: str
) -> None:
    body, says = UNREADABLE[case]
    assert post(client, node, "inventory", body).status_code == 400
    (event,) = events(node, "node.report_refused")
    assert event.after["operation"] == "agent_inventory"
    assert says in event.after["error"]
    incident = NodeIncident.objects.get(node=node)
    assert (incident.kind, incident.ended_at) == ("unreadable-inventory", None)
    assert says in incident.detail


def test_a_flapping_agent_adds_one_event_a_minute_and_one_incident(
    client: Client, node: Node, clock: Clock
) -> None:
    clock.freeze()
    for number in range(20):
        post(client, node, "inventory", {"sequence": f"x{number}"})
    assert len(events(node, "node.report_refused")) == 1
    clock.advance(61)
    write_counted()
    _, second = events(node, "node.report_refused")
    assert second.after["times"] == 19
    assert NodeIncident.objects.filter(node=node).count() == 1


def test_it_is_over_when_a_report_is_read_again(client: Client, node: Node) -> None:
    post(client, node, "inventory", b"{")
    post(client, node, "reports", b"{")
    report = factories.report(4, sequence=100)
    assert post(client, node, "inventory", report).status_code == 200
    ended = NodeIncident.objects.get(node=node, kind="unreadable-inventory")
    assert ended.ended_at is not None
    assert events(node, "node.incident_over")[0].after == {"incident": "unreadable-inventory"}
    # Refused guest reports have a separate incident.
    assert NodeIncident.objects.get(node=node, kind="unreadable-report").ended_at is None
    body = {"sequence": 1, "complete": True, "guests": [], "disks": []}
    assert post(client, node, "reports", body).status_code == 200
    assert not NodeIncident.objects.filter(node=node, ended_at=None).exists()


def test_a_refusal_by_state_is_no_unreadable_report(client: Client, node: Node) -> None:
    secret = factories.credential(node)
    Node.objects.filter(pk=node.pk).update(removed_at="2026-01-01T00:00:00Z")
    report = factories.report(4, sequence=100)
    answer = client.post(
        "/v1/agent/inventory", json.dumps(report), content_type="application/json", **bearer(secret)
    )
    assert answer.json()["code"] == "NODE_DECOMMISSIONED"
    assert not NodeIncident.objects.exists()


def test_units_that_alternate_are_named_two_hosts_once(node: Node, clock: Clock) -> None:
    clock.freeze()
    one = [factories.unit_report(number) for number in range(4)]
    other = [factories.unit_report(number) for number in range(4, 8)]
    for number in range(8):
        clock.advance(60)
        factories.inventory(node, other if number % 2 == 0 else one, sequence=100 + number)
    incident = NodeIncident.objects.get(node=node)
    assert (incident.kind, incident.ended_at) == ("two-hosts", None)
    assert incident.get_kind_display() == "two hosts with one credential?"
    assert len(events(node, "node.two_hosts_suspected")) == 1


def test_reports_of_two_starts_side_by_side_are_named_two_hosts(node: Node, clock: Clock) -> None:
    clock.freeze()
    units = [factories.unit_report(number) for number in range(4)]
    factories.inventory(node, units, epoch="first", sequence=1)
    for number in range(4):
        clock.advance(61)
        factories.inventory(node, units, epoch="second", sequence=1 + number)
        factories.inventory(node, units[:3], epoch="first", sequence=2 + number)
    assert NodeIncident.objects.get(node=node).kind == "two-hosts"
    assert len(events(node, "node.two_hosts_suspected")) == 1
    assert GpuUnit.objects.present().filter(node=node).count() == 4


def test_one_change_of_hardware_and_its_return_is_no_incident(node: Node) -> None:
    factories.inventory(node, 3)
    factories.inventory(node, 4)
    assert not NodeIncident.objects.exists()


def test_two_hosts_are_over_an_hour_after_the_last_sign(client: Client, node: Node, clock: Clock) -> None:
    clock.freeze()
    for number in range(6):
        clock.advance(60)
        factories.inventory(node, 3 if number % 2 == 0 else 4, sequence=100 + number)
    assert NodeIncident.objects.filter(ended_at=None).count() == 1
    clock.advance(600)
    assert post(client, node, "inventory", factories.report(4, sequence=200)).status_code == 200
    assert NodeIncident.objects.filter(ended_at=None).count() == 1
    clock.advance(3600)
    assert post(client, node, "inventory", factories.report(4, sequence=201)).status_code == 200
    assert not NodeIncident.objects.filter(ended_at=None).exists()
