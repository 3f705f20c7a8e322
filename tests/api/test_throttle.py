"""The limits on requests: of each caller, and of an address that guesses; with and without Valkey."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.test import Client
from redis.client import Pipeline
from rest_framework.settings import api_settings

import openrelay.settings
from openrelay.api import throttle
from openrelay.api.throttle import CallerThrottle
from openrelay.api.views import OperationView
from openrelay.core import counters
from openrelay.core.circuit_breaker import CircuitBreaker
from openrelay.core.errors import TooManyRequests
from tests import factories
from tests.identity.factories import bearer, make_key, make_org

pytestmark = pytest.mark.django_db


@pytest.fixture
def limits(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three requests a minute of a caller, and of an address without a credential."""
    settings.RATE_LIMIT_PER_MINUTE = settings.RATE_LIMIT_PER_ADDRESS_PER_MINUTE = 3
    settings.REDIS_PREFIX = "openrelay-test-throttle:"
    monkeypatch.setattr(counters, "valkey", CircuitBreaker())
    counters._client.cache_clear()
    throttle.forget_callers()
    yield
    for key in counters._client().scan_iter("openrelay-test-throttle:*"):
        counters._client().delete(key)
    counters._client.cache_clear()
    throttle.forget_callers()


def statuses(client: Client, path: str, number: int = 5, **headers: Any) -> list[int]:
    return [client.get(path, **headers).status_code for _ in range(number)]


def test_limits_are_on_unless_they_are_switched_off() -> None:
    assert openrelay.settings.RATE_LIMIT_PER_MINUTE == 6000
    assert openrelay.settings.RATE_LIMIT_PER_ADDRESS_PER_MINUTE == 600
    assert [CallerThrottle] == api_settings.DEFAULT_THROTTLE_CLASSES
    assert OperationView.throttle_classes == [CallerThrottle]


@pytest.mark.usefixtures("limits")
def test_beyond_the_limit_a_principal_waits_and_others_do_not(client: Client) -> None:
    org = make_org()
    (_, one), (_, other) = make_key(org), make_key(org)
    assert statuses(client, "/v1/whoami", 3, **bearer(one)) == [200] * 3
    refused = client.get("/v1/whoami", **bearer(one))
    assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMITED")
    assert 1 <= int(refused["Retry-After"]) <= 60
    assert set(refused.json()) == {"error", "code"}
    assert client.get("/v1/whoami", **bearer(other)).status_code == 200
    # Counted before anything is asked of the permission, and before the method.
    assert client.delete("/v1/whoami", **bearer(one)).status_code == 429
    left = counters._client().pttl(next(counters._client().scan_iter("openrelay-test-throttle:rate:key:*")))
    assert 0 < left <= 60_000


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize(
    ("path", "headers", "before"),
    [
        ("/v1/whoami", {"HTTP_AUTHORIZATION": "Bearer or_wrong"}, 401),
        ("/v1/whoami", {"HTTP_AUTHORIZATION": "Bearer ors_wrong"}, 401),
        ("/v1/whoami", {"HTTP_AUTHORIZATION": "Basic x"}, 401),
        ("/v1/whoami", {}, 401),
        ("/v1/agent/work", {"HTTP_AUTHORIZATION": "Bearer onc_wrong"}, 401),
        ("/v1/nothing/here", {}, 404),
        ("/nothing/here", {}, 404),
        ("/openapi.json", {}, 200),
        ("/openapi.yaml", {}, 200),
        ("/docs", {}, 200),
        ("/v1/public/pricing", {}, 200),
    ],
)
def test_what_comes_without_a_valid_credential_is_limited_by_address(
    client: Client, path: str, headers: dict[str, str], before: int
) -> None:
    assert statuses(client, path, **headers) == [before] * 3 + [429] * 2
    refused = client.get(path, **headers)
    assert refused.json()["code"] == "RATE_LIMITED"
    assert 1 <= int(refused["Retry-After"]) <= 60


@pytest.mark.usefixtures("limits")
def test_a_site_is_not_locked_out_by_one_of_its_callers(client: Client) -> None:
    node = factories.credential(factories.node(factories.organization()))
    _, key = make_key()
    assert statuses(client, "/v1/whoami", **bearer("or_wrong"))[-1] == 429
    assert statuses(client, "/v1/whoami", 3, **bearer(key)) == [200] * 3
    assert statuses(client, "/v1/agent/work", **bearer(node)) == [200] * 5
    # Another address has a count of its own.
    assert client.get("/v1/whoami", **bearer("or_wrong"), REMOTE_ADDR="203.0.113.9").status_code == 401


@pytest.mark.usefixtures("limits")
def test_the_addresses_of_one_ipv6_network_count_together(client: Client) -> None:
    answers = [
        client.get("/v1/whoami", REMOTE_ADDR=f"2001:db8:0:1::{number}").status_code for number in range(1, 6)
    ]
    assert answers == [401] * 3 + [429] * 2
    assert client.get("/v1/whoami", REMOTE_ADDR="2001:db8:0:2::1").status_code == 401


@pytest.mark.usefixtures("limits")
def test_a_node_is_never_refused(client: Client) -> None:
    secret = factories.credential(factories.node(factories.organization()))
    assert statuses(client, "/v1/agent/work", **bearer(secret)) == [200] * 5


@pytest.mark.usefixtures("limits")
def test_processes_add_up_what_they_counted() -> None:
    def refusals(number: int) -> int:
        refused = 0
        for _ in range(number):
            try:
                throttle._count("key:one", 400)
            except TooManyRequests:
                refused += 1
        return refused

    assert refusals(300) == 0
    throttle.forget_callers()  # as another process, which knows nothing of these
    assert 195 <= refusals(300) <= 200


@pytest.mark.usefixtures("limits")
def test_most_requests_ask_valkey_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    count = counters.count

    def counted(*names: str, **terms: Any) -> Any:
        asked.append(names)
        return count(*names, **terms)

    monkeypatch.setattr(counters, "count", counted)
    for _ in range(600):
        throttle._count("key:one", 6000)
    assert len(asked) == 10


@pytest.mark.usefixtures("limits")
def test_a_process_remembers_a_bounded_number_of_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MOST_CALLERS", 50)
    for number in range(500):
        throttle._count(f"key:{number}", 6000)
    assert len(throttle._windows) <= 50


@pytest.mark.usefixtures("limits")
def test_threads_lose_no_count() -> None:
    def count() -> None:
        for _ in range(500):
            throttle._count("key:one", 1_000_000)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    window = throttle._windows["key:one"]
    assert window.shared + window.pending == 4000


@pytest.mark.usefixtures("limits")
def test_without_valkey_each_process_keeps_the_limit_and_valkey_is_left_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def silent(self: Pipeline) -> list[Any]:
        asked.append(self)
        raise redis.ConnectionError("nobody there")

    monkeypatch.setattr(Pipeline, "execute", silent)
    _, secret = make_key()
    assert statuses(client, "/v1/whoami", **bearer(secret)) == [200] * 3 + [429] * 2
    assert len(asked) == 1
