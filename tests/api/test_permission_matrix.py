"""Every route and method, for callers who must not pass: nobody, the dead, the powerless, the foreign."""

import uuid
from typing import Any

import pytest
from django.test import Client

from openrelay.api.auth import BearerAuthentication
from openrelay.api.views import OrgView
from openrelay.audit.models import AuditEvent
from openrelay.core.errors import NotFound
from openrelay.identity.operations import OPERATIONS, Access
from tests.api.test_operations import api_views
from tests.identity.factories import bearer, make_key, make_org

pytestmark = pytest.mark.django_db

ROWS = [
    pytest.param(path, view, method, operation, id=operation)
    for path, view in api_views()
    for method, operation in view.operations.items()
    if BearerAuthentication in view.authentication_classes and not OPERATIONS[operation].public
]


# Below these a thing is looked up first: one that is not the caller's is 404 for anyone.
BY_ID = ("v1/vms/", "api/nomad/")


def address(path: str, org_id: uuid.UUID) -> str:
    parts = [
        part if not part.startswith("<") else str(org_id if "org_id" in part else uuid.uuid4())
        for part in path.split("/")
    ]
    return "/" + "/".join(parts)


def send(client: Client, method: str, url: str, secret: str | None, body: bytes = b"{") -> Any:
    headers = bearer(secret) if secret else {}
    return client.generic(method, url, body, "application/json", **headers)


@pytest.mark.parametrize(("path", "view", "method", "operation"), ROWS)
def test_who_must_not_pass_does_not(
    client: Client, path: str, view: Any, method: str, operation: str
) -> None:
    access: Access = OPERATIONS[operation]
    org = make_org()
    url = address(path, org.id)

    assert send(client, method, url, None).status_code == 401
    assert send(client, method, url, "or_" + "0" * 43).status_code == 401
    assert not AuditEvent.objects.filter(event="request.refused").exists()

    # "self.read" alone: what everyone holds.
    _, powerless = make_key(org, "self.read")
    refused = send(client, method, url, powerless)
    passes = access.action == "self.read" and not access.session_only
    if access.node:
        assert refused.status_code == 403
    elif access.hidden or path.startswith(BY_ID):
        assert refused.status_code == 404
        assert refused.json() == {"error": NotFound().message, "code": "NOT_FOUND"}
    elif not passes:
        assert refused.status_code == 403
        assert refused.json()["permission"] == access.action
        assert refused.json()["deniedBy"] in ("key", "platform")
    if method != "GET" and not passes:
        event = AuditEvent.objects.get(event="request.refused")
        assert event.after["operation"] == operation

    if issubclass(view, OrgView):
        _, foreign = make_key(make_org())
        answers = [send(client, method, address(path, other), foreign) for other in (org.id, uuid.uuid4())]
        assert [answer.status_code for answer in answers] == [403, 403]
        assert answers[0].content == answers[1].content
        assert "permission" not in answers[0].json()


@pytest.mark.parametrize(("path", "view", "method", "operation"), ROWS)
def test_another_method_tells_the_powerless_no_more(
    client: Client, path: str, view: Any, method: str, operation: str
) -> None:
    org = make_org()
    _, powerless = make_key(org, "self.read")
    accesses = [OPERATIONS[name] for name in view.operations.values()]
    for other in ("PUT", "OPTIONS", "TRACE", "BREW"):
        if other in view.operations:
            continue
        status = send(client, other, address(path, org.id), powerless).status_code
        if all(access.hidden for access in accesses) or path.startswith(BY_ID):
            assert status == 404
        elif any(access.action == "self.read" and not access.session_only for access in accesses):
            assert status == 405
        else:
            assert status == 403
