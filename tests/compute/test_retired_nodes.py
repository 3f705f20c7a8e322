"""Credentials of removed nodes: they serve until the agent has heard of it and confirmed its guests gone."""

from typing import Any

import pytest
from django.db import connection

from compute import tasks
from compute.services.lifecycle import overdue_teardowns, removed_nodes
from nodes.models import NodeCredential, NodeIncident
from nodes.services.enrolment import enrol_node, issue_credential
from openrelay.audit.models import AuditEvent
from openrelay.audit.services.record import OPERATOR
from openrelay.celery import app
from tests import factories
from tests.compute.conftest import World, run_of

pytestmark = pytest.mark.django_db


def remove(world: World) -> None:
    path = f"/v1/orgs/{world.provider.pk}/provider/nodes/{world.node.pk}"
    answer = world.client(world.provider).patch(path, {"status": "removed"})
    assert answer.status_code == 200, answer.content


def revocations() -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(event="node.credentials_revoked"))


def status(world: World) -> int:
    return int(world.agent().get("/v1/agent/work").status_code)


def test_a_removed_nodes_credentials_are_revoked_once_after_an_hour(world: World, clock: Any) -> None:
    other = factories.credential(world.node)
    assert status(world) == 200
    remove(world)
    clock.advance(3500)
    tasks.sweep_retired_nodes()
    assert (status(world), revocations()) == (200, [])
    clock.advance(200)
    for _ in range(2):
        tasks.sweep_retired_nodes()
    assert status(world) == 401
    (event,) = revocations()
    assert (event.actor, event.organization_id) == ("system", world.provider.pk)
    prefixes = NodeCredential.objects.filter(node=world.node).values_list("prefix", flat=True)
    assert event.before == {"prefixes": sorted(prefixes)}
    assert other[:10] in event.before["prefixes"]


def test_a_nodes_incidents_end_with_it_and_with_its_last_credential(world: World, clock: Any) -> None:
    def opened() -> int:
        return NodeIncident.objects.filter(node=world.node, ended_at=None).count()

    def send_unreadable(path: str) -> None:
        answer = world.agent().post(f"/v1/agent/{path}", {"sequence": "x"}, format="json")
        assert answer.status_code == 400

    for path in ("inventory", "reports"):
        send_unreadable(path)
    assert opened() == 2
    remove(world)
    assert opened() == 0
    over = AuditEvent.objects.filter(event="node.incident_over", target_id=str(world.node.pk))
    assert sorted(event.after["incident"] for event in over) == ["unreadable-inventory", "unreadable-report"]
    # The agent is still to report its guests gone.
    clock.advance(61)
    send_unreadable("reports")
    assert opened() == 1
    clock.advance(3600)
    tasks.sweep_retired_nodes()
    assert (revocations()[0].actor, opened()) == ("system", 0)


def test_an_agent_that_has_guests_to_confirm_keeps_its_credential(world: World, clock: Any) -> None:
    vm = world.running(world.buyer)
    remove(world)
    clock.advance(7200)
    tasks.sweep_retired_nodes()
    assert not removed_nodes.revoke_retired(world.node.pk)
    assert world.work()[str(vm.pk)]["desired"] == "gone"
    world.says((vm, "gone"))
    tasks.sweep_retired_nodes()
    assert (status(world), len(revocations())) == (401, 1)


def test_an_operators_word_for_the_last_guest_ends_the_credential_too(world: World, clock: Any) -> None:
    vm = world.running(world.buyer)
    remove(world)
    clock.advance(7200)
    overdue_teardowns.close_occupancy_by_override(
        caller=factories.operator(), run_id=run_of(vm), reason="host was scrapped"
    )
    tasks.sweep_retired_nodes()
    assert status(world) == 401


def test_nodes_that_are_there_and_nodes_enrolled_again_keep_theirs(world: World, clock: Any) -> None:
    assert status(world) == 200
    clock.advance(7200)
    assert not removed_nodes.revoke_retired(world.node.pk)
    remove(world)
    clock.advance(7200)
    again = enrol_node(actor=OPERATOR, organization_id=world.provider.pk, hostname=world.node.hostname)
    issue_credential(actor=OPERATOR, node=again)
    tasks.sweep_retired_nodes()
    assert NodeCredential.objects.filter(node=again, revoked_at=None).count() == 1
    assert [event.target_id for event in revocations()] == [str(world.node.pk)]


def test_the_sweep_is_scheduled_and_finds_credentials_by_index() -> None:
    assert tasks.sweep_retired_nodes.name in {entry["task"] for entry in app.conf.beat_schedule.values()}
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    assert "node_credential_live" in NodeCredential.objects.filter(revoked_at=None).order_by().explain()
