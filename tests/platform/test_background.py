"""Worker and beat as processes: they log as they are told, and beat ends when it is told."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from django.conf import settings

from openrelay.embedded.home import Home
from openrelay.embedded.supervisor import Supervisor
from tests.support import services, web

pytestmark = pytest.mark.usefixtures("django_db_setup")

PREFIX = "openrelay-background:"
# Something that swallows whatever is raised in it, as a publish may.
SWALLOWS = """
import time
from celery.beat import Service
from openrelay.celery import app
from openrelay.schedule import stop_on_sigterm

stop_on_sigterm(Service(app))
print("runs", flush=True)
while True:
    try:
        time.sleep(60)
    except BaseException:
        print("swallowed", flush=True)
"""


@contextmanager
def running(command: list[str], **env: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process with its output in a file; killed in the end."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *command],
                env=web.environment(REDIS_PREFIX=PREFIX, PYTHONUNBUFFERED="1", **env),
                cwd=web.ROOT,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield process, log
        finally:
            process.kill()
            process.wait()


def until(process: subprocess.Popen[bytes], log: Path, *words: str) -> None:
    deadline = time.monotonic() + 60
    while not all(word in log.read_text() for word in words):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def celery(part: str, home: Path) -> list[str]:
    """How the supervisor starts it."""
    return Supervisor(Home(home), {})._celery(part)


@pytest.fixture
def broker() -> Iterator[str]:
    yield settings.REDIS_URL
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        for key in client.scan_iter(f"{PREFIX}*"):
            client.delete(key)


@pytest.mark.parametrize("part", ["worker", "beat"])
def test_the_log_level_reaches_background_work(part: str, broker: str, tmp_path: Path) -> None:
    command = celery(part, tmp_path)
    with running(command, REDIS_URL=broker, LOG_LEVEL="DEBUG") as (process, log):
        until(process, log, " DEBUG ", " INFO ")
        process.terminate()
        process.wait(60)
    with running(command, REDIS_URL=broker, LOG_LEVEL="ERROR") as (process, log):
        time.sleep(3)  # long enough to have said that it starts
        assert " INFO " not in log.read_text()


def test_a_log_level_that_is_none_is_a_start_up_error() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        env=web.environment(LOG_LEVEL="LOUD"),
        cwd=web.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "LOG_LEVEL is `LOUD`. Set it to DEBUG, INFO" in done.stderr


def test_beat_ends_when_told_though_the_exception_is_swallowed() -> None:
    with running(["-c", SWALLOWS]) as (process, log):
        until(process, log, "runs")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "swallowed" in log.read_text()


def test_beat_ends_when_told_while_it_publishes_to_a_broker_that_does_not_answer(tmp_path: Path) -> None:
    with (
        services.started() as (_, broker),
        running(celery("beat", tmp_path), REDIS_URL=broker) as (beat, log),
    ):
        until(beat, log, "Sending due task")
        with redis.Redis.from_url(broker) as client:
            valkey = int(client.info("server")["process_id"])
        os.kill(valkey, signal.SIGSTOP)
        try:
            time.sleep(6)  # the next tasks are due by now, and are being sent
            beat.send_signal(signal.SIGTERM)
            assert beat.wait(60) == 0, log.read_text()
        finally:
            os.kill(valkey, signal.SIGCONT)
