"""Every wait for the database has an end, whichever way a statement goes."""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction
from django.test import Client

from openrelay.core import shared_connection
from openrelay.core.database import bounded
from openrelay.core.database.bounded import Connection, Limits
from openrelay.core.database.statements import begin
from openrelay.core.rows import query, query_all
from openrelay.identity.models import Organization
from tests import factories
from tests.support import pooler

pytestmark = pytest.mark.django_db(transaction=True)

SHOW = """
SELECT current_setting('lock_timeout'), current_setting('statement_timeout'),
       current_setting('idle_in_transaction_session_timeout')
"""


@pytest.fixture(autouse=True)
def _fresh_connections() -> Iterator[None]:
    """The limits of a connection are settled when it is made."""
    connection.close()
    shared_connection._kept.clear()
    yield
    connection.close()
    shared_connection._kept.clear()


@pytest.fixture(params=["prepared", "plain"])
def limits(request: pytest.FixtureRequest, settings: Any) -> Callable[..., None]:
    settings.DATABASE_PREPARES = request.param == "prepared"

    def limit(**seconds: float) -> None:
        for name in ("lock", "statement", "idle_in_transaction"):
            setattr(settings, f"DATABASE_{name.upper()}_TIMEOUT", seconds.get(name, 0))

    return limit


def by_cursor(statement: str, *params: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall()


def by_message(statement: str, *params: Any) -> Any:
    return query_all((statement, params), ("SELECT 1", ()))[0]


def by_query(statement: str, *params: Any) -> Any:
    return query(statement, params)


WAYS = pytest.mark.parametrize("ask", [by_cursor, by_message, by_query], ids=["cursor", "message", "alone"])


def state(error: BaseException) -> str | None:
    return getattr(error.__cause__, "sqlstate", None)


@contextmanager
def held(organization: Organization) -> Iterator[None]:
    """The organization's row is locked by another session."""
    has_it, over = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Organization.objects.select_for_update().get(pk=organization.pk)
            has_it.set()
            over.wait(60)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert has_it.wait(60)
        yield
    finally:
        over.set()
        holder.join()


@WAYS
def test_a_transaction_has_the_limits_and_its_session_has_not(
    limits: Callable[..., None], ask: Callable[..., Any]
) -> None:
    limits(lock=5, statement=15, idle_in_transaction=7)
    for _ in range(2):
        with transaction.atomic():
            assert ask(SHOW) == [("5s", "15s", "7s")]
        assert ask(SHOW) == [("0", "0", "0")]


@WAYS
def test_the_wait_for_a_lock_ends(limits: Callable[..., None], ask: Callable[..., Any]) -> None:
    limits(lock=0.3)
    org = factories.organization()
    with held(org):
        with pytest.raises(DatabaseError) as raised, transaction.atomic():
            ask("SELECT id::text FROM identity_organization WHERE id = %s::uuid FOR UPDATE", str(org.pk))
        assert state(raised.value) == "55P03"
    with transaction.atomic():
        assert ask("SELECT 1") == [(1,)]


@WAYS
@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_statement_ends(limits: Callable[..., None], ask: Callable[..., Any], in_transaction: bool) -> None:
    limits(statement=0.3)

    def sleep() -> None:
        if in_transaction:
            with transaction.atomic():
                ask("SELECT pg_sleep(600)::text")
        else:
            ask("SELECT pg_sleep(600)::text")

    with pytest.raises(DatabaseError) as raised:
        sleep()
    assert state(raised.value) == "57014"
    connection.close_if_unusable_or_obsolete()
    limits()
    connection.close()
    still = (
        "SELECT pid FROM pg_stat_activity WHERE query LIKE '%%pg_sleep(600)%%' AND pid <> pg_backend_pid()"
    )
    deadline = time.monotonic() + 60
    while ask(f"{still} AND state = 'active'"):
        assert time.monotonic() < deadline, "the server goes on"
        time.sleep(0.05)


def test_what_every_request_asks_ends(limits: Callable[..., None]) -> None:
    limits(lock=0.3, statement=0.3)
    shared_connection.fetchone("SELECT 1", [])  # has it kept
    with pytest.raises(DatabaseError):
        shared_connection.fetchone("SELECT pg_sleep(600)::text", [])
    connection.close_if_unusable_or_obsolete()
    assert shared_connection.fetchone("SELECT 1", []) == (1,)


def test_a_connection_that_hangs_does_not_keep_others_from_asking(limits: Callable[..., None]) -> None:
    limits()
    shared_connection.fetchone("SELECT 1", [])  # has it kept
    asked, over = threading.Event(), threading.Event()

    class Hangs:
        def __init__(self, kept: Any) -> None:
            self.kept = kept

        def __getattr__(self, name: str) -> Any:
            asked.set()
            over.wait(60)
            return getattr(self.kept, name)

    name = str(connection.settings_dict["NAME"])
    kept: Any = Hangs(shared_connection._kept[name])
    shared_connection._kept[name] = kept
    hung = threading.Thread(target=shared_connection.fetchone, args=("SELECT 1", []))
    hung.start()
    try:
        assert asked.wait(60)
        assert shared_connection.fetchone("SELECT 2", []) == (2,)
    finally:
        over.set()
        hung.join()


@WAYS
def test_a_transaction_with_nothing_to_do_ends(limits: Callable[..., None], ask: Callable[..., Any]) -> None:
    limits(idle_in_transaction=0.2)

    @transaction.atomic
    def sleep_between() -> None:
        ask("SELECT 1")
        time.sleep(1)
        ask("SELECT 1")

    with pytest.raises(DatabaseError) as raised:
        sleep_between()
    assert state(raised.value) == "25P03"


class Silent:
    """A relay before PostgreSQL that falls silent when it is told to, and then answers nothing: not what was
    connected before, nor what connects after.
    """

    def __init__(self, host: str, port: int) -> None:
        self.server = (host, port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.is_silent = threading.Event()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._relay)
        self.thread.start()

    def close(self) -> None:
        self.over.set()
        self.thread.join()

    def _relay(self) -> None:
        pairs: dict[socket.socket, socket.socket] = {}
        while not self.over.is_set():
            if self.is_silent.is_set():
                self.over.wait(0.05)
                continue
            for ready in select.select([self.listener, *pairs], [], [], 0.05)[0]:
                if ready is self.listener:
                    client, upstream = self.listener.accept()[0], socket.create_connection(self.server)
                    pairs[client], pairs[upstream] = upstream, client
                elif self.is_silent.is_set():
                    break
                elif data := ready.recv(65536):
                    pairs[ready].sendall(data)
                else:
                    other = pairs.pop(ready)
                    del pairs[other]
                    ready.close()
                    other.close()
        for each in (self.listener, *pairs):
            each.close()


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silent]:
    monkeypatch.setattr(bounded, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(bounded, "CANCEL_SECONDS", 0.2)
    relay = Silent(connection.settings_dict["HOST"], int(connection.settings_dict["PORT"]))
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        patch.setitem(connection.settings_dict, "PORT", str(relay.port))
        yield relay
        connection.close()
    relay.close()


@WAYS
@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_database_that_says_nothing_is_given_up(
    limits: Callable[..., None], relay: Silent, ask: Callable[..., Any], in_transaction: bool
) -> None:
    limits(statement=0.3)
    assert ask("SELECT 1") == [(1,)]

    def ask_in_silence() -> None:
        with transaction.atomic() if in_transaction else nullcontext():
            if in_transaction:
                ask("SELECT 1")
            relay.is_silent.set()
            ask("SELECT 1")

    with pytest.raises(OperationalError, match="did not answer in time"):
        ask_in_silence()
    assert connection.connection is None or connection.connection.closed


def test_readiness_does_not_wait_long_for_a_database_that_says_nothing(
    limits: Callable[..., None], relay: Silent
) -> None:
    limits(statement=600)
    http = Client()
    assert http.get("/readyz").json()["checks"]["database"]["ok"]
    by_cursor("SELECT 1")
    relay.is_silent.set()
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert not answer.json()["checks"]["database"]["ok"]


def test_a_console_page_says_to_try_again_where_a_wait_was_ended(
    limits: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits(statement=0.3)

    def slow(*_: Any, **__: Any) -> None:
        by_cursor("SELECT pg_sleep(600)::text")

    monkeypatch.setattr("openrelay.console.forms.begin", slow)
    http = Client(raise_request_exception=False)
    answer = http.post("/console/login/", {"username": "someone@example.com", "password": "a-password"})
    assert answer.status_code == 503
    assert int(answer["Retry-After"]) > 0
    assert "timed out" in answer.content.decode()
    assert "Traceback" not in answer.content.decode()


@pytest.mark.slow
def test_the_limits_hold_behind_a_pooler_and_stay_with_nobody(django_db_setup: None) -> None:
    with pooler.running(prepares=False) as running:
        with Connection.connect(running.url, autocommit=True) as lent:
            lent.limits = Limits(lock=5, statement=15, idle_in_transaction=7)
            begin(lent)
            assert lent.execute(SHOW).fetchall() == [("5s", "15s", "7s")]  # type: ignore[arg-type]
            lent.execute("COMMIT")
        with running.every_session() as sessions:
            assert [each.execute(SHOW).fetchone() for each in sessions] == [("0", "0", "0")] * len(sessions)  # type: ignore[arg-type]
