"""Naming work to a broker that fails: tried once, then left alone for a moment."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from openrelay.core import circuit_breaker, counters, jobs
from openrelay.core.circuit_breaker import CircuitBreaker


class Away:
    """A broker that counts who tried it."""

    def __init__(self) -> None:
        self.tried = 0

    def send_task(self, *_args: Any, **_options: Any) -> None:
        self.tried += 1
        raise OSError("no answer")


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, to be set."""
    now = [100.0]
    monkeypatch.setattr(circuit_breaker.time, "monotonic", lambda: now[0])
    fresh = CircuitBreaker()
    monkeypatch.setattr(jobs, "valkey", fresh)
    monkeypatch.setattr(counters, "valkey", fresh)
    return now


def test_a_broker_that_failed_is_left_alone_for_a_moment(
    moment: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    broker, away = jobs._Broker(), Away()
    vars(broker)["app"] = away
    with caplog.at_level(logging.WARNING, logger="openrelay.core.jobs"):
        for _ in range(20):
            broker.send("compute.tear_down", ("run",), None)
        assert away.tried == 1
        moment[0] += circuit_breaker.OPEN_SECONDS
        broker.send("compute.tear_down", ("run",), None)
    assert away.tried == 2
    assert caplog.text.count("the next sweep will do it") == 2


def test_a_broker_that_failed_is_left_alone_by_whoever_counts_too(moment: list[float], settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    counters._client.cache_clear()
    broker, away = jobs._Broker(), Away()
    vars(broker)["app"] = away
    try:
        assert counters.count("something", seconds=60) is None
    finally:
        counters._client.cache_clear()
    broker.send("compute.tear_down", ("run",), None)
    assert away.tried == 0


def test_one_caller_alone_tries_whether_it_answers_again(moment: list[float]) -> None:
    asked = CircuitBreaker()
    assert all(asked.allows() for _ in range(3))
    asked.failed()
    assert not asked.allows()
    moment[0] += circuit_breaker.OPEN_SECONDS
    together = threading.Barrier(8)

    def ask(_: int) -> bool:
        together.wait(60)
        return asked.allows()

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 1
    asked.succeeded()
    assert all(asked.allows() for _ in range(3))


def test_who_sends_waits_at_most_a_second() -> None:
    options = jobs._Broker().app.conf.broker_transport_options
    assert options["max_retries"] == 0
    assert options["socket_connect_timeout"] <= 1
    assert options["socket_timeout"] <= 1
