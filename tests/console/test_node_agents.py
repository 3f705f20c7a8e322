"""What operators decide about nodes' agents: credentials, and the order of reports. And who may not."""

import logging
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from compute.models import AgentState
from nodes.models import Node, NodeCredential
from openrelay.audit.models import AuditEvent
from openrelay.core.clock import Now
from tests import factories
from tests.console.world import World

REISSUE, REVOKE, RESET = "nodes_node_reissue", "nodes_node_revoke", "compute_agentstate_reset"


def page(name: str, node: Node) -> str:
    return reverse(f"admin:{name}", args=[node.pk])


def send(client: Client, name: str, node: Node, reason: str = "disk was stolen") -> Any:
    return client.post(page(name, node), {"reason": reason})


def status(secret: str) -> int:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return int(client.get("/v1/agent/work").status_code)


def test_the_nodes_page_leads_to_each_decision(console: Client, world: World) -> None:
    shown = console.get(page("nodes_node_change", world.node)).content.decode()
    for name in (REISSUE, REVOKE, RESET):
        assert page(name, world.node) in shown
        assert console.get(page(name, world.node)).status_code == 200
        assert console.get(reverse(f"admin:{name}", args=[uuid4()])).status_code == 302
    assert not AuditEvent.objects.filter(event__in=["node.credential_issued", "node.agent_reset"]).exists()


def test_a_new_credential_is_shown_once_and_kept_nowhere(
    console: Client, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    old = factories.credential(world.node)
    assert f"{old[:10]}…: refused with 401" in console.get(page(REISSUE, world.node)).content.decode()
    answer = send(console, REISSUE, world.node)
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    secret = answer.context["secret"]
    assert answer.content.decode().count(secret) == 1
    assert (status(secret), status(old)) == (200, 401)
    issued = AuditEvent.objects.get(event="node.credential_issued")
    revoked = AuditEvent.objects.get(event="node.credentials_revoked")
    assert revoked.reason == "disk was stolen"
    assert issued.actor == revoked.actor == f"user:{world.operator.pk}"
    assert secret not in console.get(page("nodes_node_change", world.node)).content.decode()
    assert secret not in str([session.get_decoded() for session in Session.objects.all()])
    assert secret not in str(answer.cookies)
    assert secret not in str(list(AuditEvent.objects.values()))
    assert secret not in caplog.text


def test_revoked_credentials_are_refused_and_there_is_then_nothing_to_revoke(
    console: Client, world: World
) -> None:
    secret = factories.credential(world.node)
    assert send(console, REVOKE, world.node)["Location"] == page("nodes_node_change", world.node)
    assert status(secret) == 401
    assert "no credential to revoke" in console.get(page(REVOKE, world.node)).content.decode()
    send(console, REVOKE, world.node)
    assert AuditEvent.objects.filter(event="node.credentials_revoked").count() == 1


def test_a_reset_forgets_the_order_of_reports(console: Client, world: World) -> None:
    AgentState.objects.update_or_create(node=world.node, defaults={"last_sequence": 9})
    assert send(console, RESET, world.node, "agent was installed anew").status_code == 302
    assert AgentState.objects.get(node=world.node).last_sequence == 0
    event = AuditEvent.objects.get(event="node.agent_reset")
    assert (event.actor, event.reason) == (f"user:{world.operator.pk}", "agent was installed anew")
    assert (event.before or {})["reportSequence"] == 9


def test_a_removed_node_gets_no_new_credential(console: Client, world: World) -> None:
    Node.objects.filter(pk=world.node.pk).update(removed_at=Now())
    assert "Enrol it again" in console.get(page(REISSUE, world.node)).content.decode()
    send(console, REISSUE, world.node)
    assert not NodeCredential.objects.filter(node=world.node).exists()


@pytest.mark.parametrize("name", [REISSUE, REVOKE, RESET])
def test_nothing_is_decided_without_a_reason_or_the_right(console: Client, world: World, name: str) -> None:
    secret = factories.credential(world.node)
    AgentState.objects.update_or_create(node=world.node, defaults={"last_sequence": 9})
    assert send(console, name, world.node, " ").status_code == 400
    viewer = Client()
    viewer.force_login(world.viewer)
    assert send(viewer, name, world.node).status_code == 403
    outsider = Client()
    outsider.force_login(world.outsider)
    assert send(outsider, name, world.node).status_code == 302
    assert status(secret) == 200
    assert NodeCredential.objects.filter(node=world.node).count() == 1
    assert AgentState.objects.get(node=world.node).last_sequence == 9
