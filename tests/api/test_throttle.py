"""The limit on requests: off unless set, each principal by itself, and never in the way of a dead Valkey."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.test import Client
from redis.client import Pipeline
from rest_framework.settings import api_settings

from openrelay import counters
from openrelay.api.throttle import PrincipalThrottle
from openrelay.api.views import OperationView
from tests import factories
from tests.identity.factories import bearer, make_key, make_org

pytestmark = pytest.mark.django_db


@pytest.fixture
def three_a_minute(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.RATE_LIMIT_PER_MINUTE = 3
    settings.REDIS_PREFIX = "openrelay-test-throttle:"
    monkeypatch.setattr(OperationView, "throttle_classes", [PrincipalThrottle])
    monkeypatch.setattr(counters, "_left_alone_until", 0.0)
    counters._client.cache_clear()
    yield
    counters._client.cache_clear()


def test_without_a_limit_nothing_is_counted() -> None:
    assert api_settings.DEFAULT_THROTTLE_CLASSES == []
    assert OperationView.throttle_classes == []


@pytest.mark.usefixtures("three_a_minute")
def test_beyond_the_limit_a_principal_waits_and_others_do_not(client: Client) -> None:
    org = make_org()
    (_, one), (_, other) = make_key(org), make_key(org)
    assert [client.get("/v1/whoami", **bearer(one)).status_code for _ in range(3)] == [200] * 3
    refused = client.get("/v1/whoami", **bearer(one))
    assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMITED")
    assert 1 <= int(refused["Retry-After"]) <= 60
    assert set(refused.json()) == {"error", "code"}
    assert client.get("/v1/whoami", **bearer(other)).status_code == 200
    # Counted before anything is asked of the permission, and before the method.
    assert client.delete("/v1/whoami", **bearer(one)).status_code == 429
    left = counters._client().pttl(next(counters._client().scan_iter("openrelay-test-throttle:rate:key:*")))
    assert 0 < left <= 60_000


@pytest.mark.usefixtures("three_a_minute")
def test_a_node_is_never_refused(client: Client) -> None:
    secret = factories.credential(factories.node(factories.organization()))
    for _ in range(5):
        assert client.get("/v1/agent/work", **bearer(secret)).status_code == 200


@pytest.mark.usefixtures("three_a_minute")
def test_a_dead_counter_refuses_nobody_and_is_left_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def silent(self: Pipeline) -> list[Any]:
        asked.append(self)
        raise redis.ConnectionError("nobody there")

    monkeypatch.setattr(Pipeline, "execute", silent)
    _, secret = make_key()
    for _ in range(5):
        assert client.get("/v1/whoami", **bearer(secret)).status_code == 200
    assert len(asked) == 1
