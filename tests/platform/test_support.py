"""The means that the other tests rest on."""

import datetime as dt
import importlib
import subprocess
import sys
import threading
import urllib.request

import psycopg
import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from openrelay.api.models import Beat
from openrelay.core import clock as db_clock
from tests.support import flush

NOON = dt.datetime(2030, 5, 17, 12, 0, 0, 1, tzinfo=dt.UTC)


@pytest.mark.django_db
def test_a_frozen_clock_stands_still_to_the_microsecond(clock):
    clock.freeze(NOON)
    assert db_clock.read() == db_clock.read() == NOON
    clock.advance(0.000001)
    assert db_clock.read() == NOON.replace(microsecond=2)
    clock.reset()
    assert abs(db_clock.read() - dt.datetime.now(dt.UTC)) < dt.timedelta(seconds=60)


@pytest.mark.django_db
def test_a_clock_that_is_set_runs_on(clock):
    clock.set(NOON)
    first, second = db_clock.read(), db_clock.read()
    assert NOON <= first < second < NOON + dt.timedelta(seconds=10)
    clock.advance(-3600)
    assert NOON - dt.timedelta(hours=1) <= db_clock.read() < NOON


@pytest.mark.django_db(transaction=True)
def test_the_clock_moves_for_sessions_that_are_already_open(clock):
    settings = connection.settings_dict
    with psycopg.connect(
        host=settings["HOST"],
        port=settings["PORT"],
        user=settings["USER"],
        password=settings["PASSWORD"] or None,
        dbname=settings["NAME"],
        autocommit=True,
    ) as other:
        other.execute("SELECT 1")
        clock.freeze(NOON)
        assert other.execute("SELECT openrelay_now()").fetchone()[0] == NOON
        # Also where the planner keeps a prepared statement, and in a transaction that began before.
        with other.transaction():
            assert other.execute("SELECT openrelay_now()", prepare=True).fetchone()[0] == NOON
            clock.advance(5)
            assert other.execute("SELECT openrelay_now()", prepare=True).fetchone()[0] == NOON + dt.timedelta(
                seconds=5
            )


@pytest.mark.django_db(transaction=True)
def test_flush_brings_back_what_the_migrations_left():
    kinds = ContentType.objects.count()
    Beat.objects.create(id=1, at=NOON)
    flush.flush()
    assert not Beat.objects.exists()
    assert ContentType.objects.count() == kinds > 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("_again", [1, 2])
def test_committed_data_does_not_reach_the_next_test(_again):
    assert not Beat.objects.exists()
    Beat.objects.create(id=1, at=NOON)


def test_the_server_answers_many_threads_from_the_test_database(server, clock):
    clock.freeze(NOON)
    answers = []

    def ask():
        with urllib.request.urlopen(f"{server.url}/livez") as answer:
            answers.append(answer.status)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 20
    code = "import django; django.setup(); from openrelay.core import clock; print(clock.read().isoformat())"
    said = subprocess.run(
        [sys.executable, "-c", code], env=server.env, check=True, capture_output=True, text=True
    )
    assert said.stdout.strip() == NOON.isoformat()


def test_the_client_is_loaded_beside_our_own_package(sdk):
    assert sdk.__name__ == "openrelay_sdk"
    assert importlib.import_module("openrelay_sdk.models").__name__ == "openrelay_sdk.models"
    assert db_clock.__name__ == "openrelay.core.clock"
