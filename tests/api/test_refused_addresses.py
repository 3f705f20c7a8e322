"""A credential used from outside its address ranges: refused on every route, and every attempt noted."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from openrelay.api import throttle
from openrelay.audit.models import AuditEvent
from openrelay.core import counters
from openrelay.core.circuit_breaker import CircuitBreaker
from openrelay.core.ids import new_id
from openrelay.identity.models import Organization
from tests import factories
from tests.api.test_permission_matrix import ROWS, address, send
from tests.identity.factories import bearer

pytestmark = pytest.mark.django_db
ELSEWHERE = ["192.0.2.0/24"]


def narrowed(org: Organization) -> dict[str, str]:
    """Three credentials that do not serve from here, with who each is: by the key, by the role, by both."""
    maker = factories.user(org)
    role = factories.role(org, maker, ip_ranges=ELSEWHERE, permissions=factories.EVERYTHING)
    person = factories.user(org, "viewer")
    person.memberships.update(role="", custom_role=role)
    found = {
        factories.api_key(org, ip_ranges=ELSEWHERE): "",
        factories.api_key(org, created_by=person): "",
        factories.session(person, org): f"user:{person.pk}",
    }
    keys = iter(org.api_keys.order_by("created_at", "id"))
    return {secret: name or f"key:{next(keys).pk}" for secret, name in found.items()}


def refusals() -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(event="request.refused").order_by("created_at", "id"))


@pytest.mark.parametrize(("path", "view", "method", "operation"), ROWS)
def test_every_attempt_at_a_change_is_noted(
    client: Client, path: str, view: Any, method: str, operation: str
) -> None:
    org = factories.organization()
    for secret, name in narrowed(org).items():
        before = len(refusals())
        refused = send(client, method, address(path, org.pk), secret)
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
        assert refused.json()["deniedBy"] in ("key", "role")
        noted = refusals()[before:]
        assert len(noted) == (method != "GET")
        for event in noted:
            assert (event.actor, event.organization_id) == (name, org.pk)
            assert event.source_ip == "127.0.0.1"
            assert (event.after["operation"], event.after["status"]) == (operation, 403)
            assert event.after["deniedBy"] == refused.json()["deniedBy"]
            assert secret not in str(vars(event))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/vms/{}/stop"),
        ("DELETE", "/v1/nodes/{}/reservations/{}"),
        ("DELETE", "/v1/orgs/{}/api-keys/{}"),
    ],
)
def test_it_is_noted_alike_for_what_is_there_and_what_is_not(client: Client, method: str, path: str) -> None:
    org = factories.organization()
    node = factories.node(org)
    for secret in narrowed(org):
        send(client, method, path.format(new_id(), new_id()), secret)
        seen = []
        for first in (node.pk, org.pk, uuid.uuid4()):
            before = len(refusals())
            with CaptureQueriesContext(connection) as queries:
                answer = send(client, method, path.format(first, first), secret)
            seen.append((answer.status_code, answer.content, len(queries), len(refusals()) - before))
            assert refusals()[-1].target_id == str(first)
        assert seen.count(seen[0]) == 3
        assert seen[0][3] == 1


@pytest.fixture
def three_a_minute(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.RATE_LIMIT_PER_MINUTE = settings.RATE_LIMIT_PER_ADDRESS_PER_MINUTE = 3
    settings.REDIS_PREFIX = f"openrelay-test-{uuid.uuid4()}:"
    monkeypatch.setattr(counters, "valkey", CircuitBreaker())
    counters._client.cache_clear()
    throttle.forget_callers()
    yield
    counters._client.cache_clear()
    throttle.forget_callers()


@pytest.mark.usefixtures("three_a_minute")
def test_the_limit_holds_for_the_address_and_leaves_the_key_alone(client: Client) -> None:
    org = factories.organization()
    secret = factories.api_key(org, ip_ranges=ELSEWHERE)
    answers = [client.delete(f"/v1/vms/{new_id()}", **bearer(secret)).status_code for _ in range(5)]
    assert answers == [403, 403, 403, 429, 429]
    assert len(refusals()) == 3
    served = client.get("/v1/whoami", REMOTE_ADDR="192.0.2.9", **bearer(secret))
    assert served.status_code == 200
