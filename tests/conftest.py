"""What every test may use: a real PostgreSQL and Valkey, a clock to move, the real server, the client."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.backends.postgresql.creation import DatabaseCreation
from django.db.models.signals import pre_migrate
from django.test import TransactionTestCase
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from openrelay.demo import sdk as published_client
from tests.support import flush, services, travel, web


def _flush(_self: TransactionTestCase) -> None:
    flush.flush()


def _destroy(self: DatabaseCreation, test_database_name: str, _verbosity: int) -> None:
    # A thread or process that a test left behind must not keep the database from going.
    with self._nodb_cursor() as cursor:  # type: ignore[attr-defined]
        name = self.connection.ops.quote_name(test_database_name)
        cursor.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


# Each test's client would otherwise index every static file there is. The real server does so, once.
settings.WHITENOISE_AUTOREFRESH = True
# How long an example takes says nothing on a busy machine. A change is judged by the same examples each time;
# new ones are for those who run the tests.
hypothesis_settings.register_profile(
    "suite",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="OPENRELAY_CI" in os.environ,
)
hypothesis_settings.load_profile("suite")

TransactionTestCase._fixture_teardown = _flush  # type: ignore[attr-defined, method-assign]
DatabaseCreation._destroy_test_db = _destroy  # type: ignore[attr-defined, method-assign]


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> Iterator[None]:
    """Services of our own unless the environment names some; the clock's function before any migration."""
    pre_migrate.connect(travel.install)
    with services.running():
        yield
    pre_migrate.disconnect(travel.install)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """The test database, with what the migrations filled it with remembered for `flush`."""
    with django_db_blocker.unblock():
        travel.Clock().reset()
        flush.remember()


@pytest.fixture
def clock(db: None) -> Iterator[travel.Clock]:
    """The database's clock: `set(at)`, `advance(seconds)`, `freeze(at)`, `reset()`, `now()`."""
    clock = travel.Clock()
    yield clock
    clock.reset()


@pytest.fixture(scope="session")
def sdk() -> ModuleType:
    """The published client as the module `openrelay_sdk`."""
    return published_client.load()


@pytest.fixture(scope="session")
def _server(django_db_setup: None) -> Iterator[web.Server]:
    database = connection.settings_dict
    port = str(web.free_port())
    url = f"http://127.0.0.1:{port}"
    login = database["USER"] + (f":{database['PASSWORD']}" if database["PASSWORD"] else "")
    env = web.environment(
        DATABASE_URL=f"postgres://{login}@{database['HOST']}:{database['PORT']}/{database['NAME']}",
        REDIS_URL=settings.REDIS_URL,
        PORT=port,
        BASE_URL=url,
    )
    with tempfile.TemporaryFile() as log:
        process = web.start(env, log)
        try:
            web.wait(url, process)
            yield web.Server(url=url, pid=process.pid, env=env)
        except RuntimeError:
            log.seek(0)
            print(log.read().decode())
            raise
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def server(transactional_db: None, _server: web.Server) -> web.Server:
    """The real web server on the test database, one for the whole run: `url`, `pid`, `env`.

    Data is committed, and gone after the test.
    """
    return _server
