"""Naming work to a broker that fails: tried once, then left alone for a moment."""

import logging
from typing import Any

import pytest

from openrelay import jobs


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
    monkeypatch.setattr(jobs.time, "monotonic", lambda: now[0])
    return now


def test_a_broker_that_failed_is_left_alone_for_a_moment(
    moment: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    broker, away = jobs._Broker(), Away()
    vars(broker)["app"] = away
    with caplog.at_level(logging.WARNING, logger="openrelay.jobs"):
        for _ in range(20):
            broker.send("compute.tear_down", ("run",), None)
        assert away.tried == 1
        moment[0] += broker.LEFT_ALONE_SECONDS
        broker.send("compute.tear_down", ("run",), None)
    assert away.tried == 2
    assert caplog.text.count("the next sweep will do it") == 2


def test_who_sends_waits_at_most_a_second() -> None:
    options = jobs._Broker().app.conf.broker_transport_options
    assert options["max_retries"] == 0
    assert options["socket_connect_timeout"] <= 1
    assert options["socket_timeout"] <= 1
