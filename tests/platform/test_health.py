"""Health: what /livez and /readyz say, and what they ask for it."""

import pytest
from django.db import connection
from django.test import Client

from openrelay import health
from openrelay.api.models import Beat
from openrelay.api.tasks import beat


@pytest.fixture
def http():
    return Client()


def test_livez_asks_nothing_of_the_database(http):
    # No database is allowed in this test: a query would fail it.
    answer = http.get("/livez")
    assert answer.status_code == 200
    assert answer.json() == {"status": "alive"}
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
@pytest.mark.parametrize("method", ["post", "put", "patch", "delete", "options"])
def test_health_is_only_read(http, path, method):
    answer = getattr(http, method)(path)
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET, HEAD"
    assert answer.json()["code"] == "METHOD_NOT_ALLOWED"


@pytest.mark.django_db
def test_ready_when_all_parts_are_well(http):
    beat()
    answer = http.get("/readyz")
    assert answer.status_code == 200, answer.json()
    found = answer.json()
    assert found["status"] == "ready"
    assert set(found["checks"]) == {"database", "broker", "migrations", "beat"}
    assert all(check["ok"] for check in found["checks"].values())
    assert 0 <= found["checks"]["beat"]["ageSeconds"] < 10


@pytest.mark.django_db
def test_beat_writes_one_row_however_often():
    beat()
    first = Beat.objects.get()
    beat()
    assert Beat.objects.get().at > first.at


@pytest.mark.django_db
def test_not_ready_before_any_background_work(http):
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert "celery beat" in answer.json()["checks"]["beat"]["error"]


@pytest.mark.django_db
def test_not_ready_when_background_work_stands_still(http):
    beat()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE api_beat SET at = at - interval '61 seconds'")
    answer = http.get("/readyz")
    assert answer.status_code == 503
    found = answer.json()
    assert found["status"] == "not ready"
    assert found["checks"]["beat"]["ageSeconds"] > 60
    assert found["checks"]["database"]["ok"]


@pytest.mark.django_db
def test_time_travel_does_not_make_it_unwell(http, clock):
    beat()
    clock.advance(86400)
    assert http.get("/readyz").status_code == 200


@pytest.mark.django_db
def test_not_ready_while_migrations_are_missing(http):
    beat()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'api' AND name = '0002_beat'")
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert "manage.py migrate" in answer.json()["checks"]["migrations"]["error"]


@pytest.mark.django_db
def test_a_silent_broker_is_named_and_its_password_is_not(http, settings):
    beat()
    settings.REDIS_URL = "redis://:very-secret@127.0.0.1:1/0"
    health._client.cache_clear()
    try:
        answer = http.get("/readyz")
    finally:
        health._client.cache_clear()
    assert answer.status_code == 503
    checks = answer.json()["checks"]
    assert "REDIS_URL" in checks["broker"]["error"]
    assert checks["beat"]["ok"]
    assert "very-secret" not in answer.content.decode()


def test_a_silent_database_is_named(http, monkeypatch):
    monkeypatch.setattr(health, "connection", _Silent())
    answer = http.get("/readyz")
    assert answer.status_code == 503
    checks = answer.json()["checks"]
    assert "DATABASE_URL" in checks["database"]["error"]
    assert not checks["migrations"]["ok"]
    assert not checks["beat"]["ok"]


class _Silent:
    def limited(self, limits):
        raise health.DatabaseError("connection to server at db.internal failed for user admin")
