"""Reissue and revoke the credentials of nodes' agents."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from rest_framework.test import APIClient

from nodes.models import Node, NodeIncident
from openrelay.audit.models import AuditEvent
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def node() -> Node:
    return factories.node(factories.organization(), 1)


def status(secret: str) -> int:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return int(client.get("/v1/agent/work").status_code)


def test_a_reissued_credential_serves_and_the_earlier_ones_answer_401(node: Node) -> None:
    old, other = factories.credential(node), factories.credential(factories.node(node.organization, 1))
    out = StringIO()
    call_command("node_credential", "reissue", str(node.pk), "--reason", "leaked", stdout=out)
    assert status(out.getvalue().split()[0]) == 200
    assert (status(old), status(other)) == (401, 200)
    event = AuditEvent.objects.get(event="node.credentials_revoked")
    assert (event.reason, event.before) == ("leaked", {"prefixes": [old[:10]]})
    assert AuditEvent.objects.filter(event="node.credential_issued").count() == 1


def test_revoked_credentials_answer_401(node: Node) -> None:
    secrets = [factories.credential(node), factories.credential(node)]
    call_command("node_credential", "revoke", str(node.pk), "--reason", "leaked")
    assert [status(secret) for secret in secrets] == [401, 401]
    call_command("node_credential", "revoke", str(node.pk), "--reason", "again")
    assert AuditEvent.objects.filter(event="node.credentials_revoked").count() == 1


def test_an_incident_ends_with_the_credentials_and_not_with_a_new_one(node: Node) -> None:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.credential(node)}")
    assert client.post("/v1/agent/inventory", {"sequence": "x"}, format="json").status_code == 400
    for action, is_open in (("reissue", True), ("revoke", False)):
        call_command("node_credential", action, str(node.pk), "--reason", "leaked")
        assert NodeIncident.objects.filter(node=node, ended_at=None).exists() is is_open


def test_revoking_needs_a_reason(node: Node) -> None:
    with pytest.raises(CommandError, match="reason"):
        call_command("node_credential", "revoke", str(node.pk), "--reason", " ")
