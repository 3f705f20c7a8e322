"""One session keeps a node's row locked, for ever: what is about that node is refused in time, and everything
else goes on.
"""

import datetime as dt
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import redis
from celery import Celery
from django.conf import settings
from django.db import connection

from nodes.models import Node
from nodes.services import queueing
from nodes.services.locking import locked
from nodes.services.queueing import NodeBusy
from openrelay.core import clock as database_clock
from openrelay.core.clock import rfc3339
from openrelay.embedded.home import Home
from openrelay.embedded.supervisor import Supervisor
from reservations.models import Announcement
from tests import factories
from tests.concurrency.conftest import Crowd
from tests.reservations.conftest import Fleet
from tests.support import travel, web

PREFIX = "openrelay-held:"
LOCK_SECONDS = 10


@contextmanager
def held(node: Node) -> Iterator[None]:
    """The node's row is locked by a session of somebody else's."""
    given = connection.settings_dict
    with psycopg.connect(
        host=given["HOST"],
        port=given["PORT"],
        user=given["USER"],
        password=given["PASSWORD"] or None,
        dbname=given["NAME"],
    ) as session:
        session.execute("SELECT id FROM nodes_node WHERE id = %s FOR UPDATE", [node.pk])
        yield
        session.rollback()


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def waits() -> set[tuple[int, dt.datetime]]:
    """Which sessions wait for a lock, and since when they have their transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, xact_start FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'",
            [connection.settings_dict["NAME"]],
        )
        return set(cursor.fetchall())


@pytest.fixture
def server(transactional_db: None, _server: web.Server) -> Iterator[web.Server]:
    """A server of one process, so that all of its threads could come to wait."""
    port = str(web.free_port())
    url = f"http://127.0.0.1:{port}"
    env = {**_server.env, "PORT": port, "BASE_URL": url, "DATABASE_LOCK_TIMEOUT": str(LOCK_SECONDS)}
    with tempfile.TemporaryFile() as log:
        process = web.start(env, log, workers=1, threads=8)
        try:
            web.wait(url, process)
            yield web.Server(url=url, pid=process.pid, env=env)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_requests_for_a_held_node_end_and_others_are_answered_meanwhile(crowd: Crowd) -> None:
    other = factories.node(crowd.fleet.provider, 4)
    with held(crowd.fleet.node), ThreadPoolExecutor(30) as pool:
        about_it = [pool.submit(crowd.reserve, unit) for unit in range(4)]
        until(lambda: len(waits()) == 4, "requests wait for the node")
        first = waits()
        about_it += [pool.submit(crowd.reserve, unit % 8) for unit in range(26)]
        time.sleep(0.5)  # whoami is to come after them
        whoami = crowd.call("GET", "/v1/whoami", "tenant")
        made = crowd.create("provider", nodeId=str(other.pk))
        assert first <= waits(), "others were answered only when the first waits had ended"
        answers = [each.result() for each in about_it]
    assert whoami.status_code == 200, whoami.text
    assert made.status_code == 200, made.text
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (503, "TRY_AGAIN"), answer.text
        assert int(answer.headers["Retry-After"]) > 0
    # Held no more, it is had again.
    until(lambda: crowd.reserve(0).status_code == 200, "the node can be reserved again")


def test_a_workload_is_placed_elsewhere_or_refused_in_time_while_a_node_is_held(crowd: Crowd) -> None:
    """The second pass of placing waits for the nodes that others are changing, and ends."""
    Node.objects.exclude(pk=crowd.fleet.node.pk).delete()
    more = [factories.node(crowd.fleet.provider, 1) for _ in range(3)]
    with held(more[0]), held(more[1]), held(more[2]), held(crowd.fleet.node):
        started = time.monotonic()
        answer = crowd.create("tenant")
        assert (answer.status_code, answer.json()["code"]) == (503, "TRY_AGAIN"), answer.text
        # Of four nodes, each waited for as long as for one, it would be four times that.
        assert time.monotonic() - started < 3 * LOCK_SECONDS
    with held(more[0]), held(more[1]), held(more[2]):
        answer = crowd.create("tenant")
        assert answer.status_code == 200, answer.text


@contextmanager
def worker(server: web.Server, home: Home) -> Iterator[None]:
    """A worker on the test database, as the supervisor starts it, with four threads."""
    command = [sys.executable, *Supervisor(home, {})._celery("worker")]
    env = {**server.env, "REDIS_PREFIX": PREFIX, "DATABASE_POOL_SIZE": "0"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, env=env, cwd=web.ROOT, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield
        except BaseException:
            log.seek(0)
            print(log.read().decode()[-8000:])
            raise
        finally:
            process.kill()
            process.wait()
            with redis.Redis.from_url(settings.REDIS_URL) as broker:
                for key in broker.scan_iter(f"{PREFIX}*"):
                    broker.delete(key)


def test_tasks_for_a_held_node_leave_threads_for_another_nodes(
    server: web.Server, fleet: Fleet, clock: travel.Clock, tmp_path: Any
) -> None:
    other = Fleet(
        factories.node(fleet.provider, 2),
        fleet.platform,
        fleet.provider,
        fleet.tenant,
        fleet.outsider,
        fleet.manager,
    )
    starts = rfc3339(database_clock.read() + dt.timedelta(seconds=60))
    stuck = [fleet.reserved(unit, startsAt=starts)["id"] for unit in range(8)]
    free = other.reserved(0, startsAt=starts)["id"]
    clock.advance(120)
    sender = Celery(broker=settings.REDIS_URL, set_as_current=False)
    sender.conf.broker_transport_options = {"global_keyprefix": PREFIX}
    announced = Announcement.objects.filter(event="reservation.activated")
    with worker(server, Home(tmp_path)):
        with held(fleet.node):
            for reservation in stuck[:2]:
                sender.send_task("reservations.announce", args=(reservation,))
            until(lambda: len(waits()) == 2, "tasks wait for the node")
            first = waits()
            for reservation in stuck[2:]:
                sender.send_task("reservations.announce", args=(reservation,))
            sender.send_task("reservations.announce_all_due")
            sender.send_task("reservations.announce", args=(free,))
            until(lambda: announced.filter(reservation_id=free).exists(), "the other node's is announced")
            assert first <= waits(), "it was announced only when the first waits had ended"

        # The sweep finds again the work that a task gave up.
        def swept() -> bool:
            sender.send_task("reservations.announce_all_due")
            time.sleep(1)
            return announced.count() == 9

        until(swept, "all is announced once the node is free")


@pytest.mark.django_db(transaction=True)
def test_a_node_that_was_waited_for_in_vain_is_not_waited_for_again_at_once(settings: Any) -> None:
    """A sweep over many things of one node does not wait for each of them."""
    settings.DATABASE_LOCK_TIMEOUT = 2
    connection.close()
    node = factories.node(factories.organization())
    with held(node):
        started = time.monotonic()
        for _ in range(40):
            with pytest.raises(NodeBusy):
                lock(node)
        assert time.monotonic() - started < 40
    until(lambda: can_be_locked(node), "it can be locked again")
    connection.close()


@pytest.mark.django_db(transaction=True)
def test_half_of_the_threads_wait_for_one_node_and_three_quarters_for_all(settings: Any) -> None:
    settings.PROCESS_THREADS = 8
    settings.DATABASE_LOCK_TIMEOUT = 1000
    nodes = [factories.node(factories.organization()) for _ in range(3)]
    given: list[float | None] = []
    over = threading.Event()

    def wait(node: Node) -> None:
        with queueing.lock_wait(node.pk) as seconds:
            given.append(seconds)
            over.wait(60)

    threads = [threading.Thread(target=wait, args=(node,)) for node in [nodes[0]] * 5 + nodes[1:] * 2]
    try:
        for number, thread in enumerate(threads, 1):
            thread.start()
            until(lambda number=number: len(given) == number, "it waits")  # type: ignore[misc]
        # The fifth for the first node waits briefly; so do all when six wait.
        assert given == [1000, 1000, 1000, 1000, 200, 1000, 200, 200, 200]
    finally:
        over.set()
        for thread in threads:
            thread.join()


def lock(node: Node) -> None:
    with locked(node.pk):
        pass


def can_be_locked(node: Node) -> bool:
    try:
        lock(node)
    except NodeBusy:
        return False
    return True
