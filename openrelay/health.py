"""Whether this process lives (`/livez`) and whether the whole can serve (`/readyz`)."""

import functools
import time
from collections.abc import Callable
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, JsonResponse
from redis.backoff import NoBackoff
from redis.retry import Retry

from openrelay.core.database.bounded import Limits

# Who asks does not wait long: a database that takes longer for this does not answer.
DATABASE_LIMITS = Limits(statement=2)
# Beat runs every 10 s; six of them missed is not a hiccup any more.
BEAT_SECONDS = 60

Check = dict[str, Any]


def _answer(request: HttpRequest, make: Callable[[], JsonResponse]) -> JsonResponse:
    if request.method not in ("GET", "HEAD"):
        refusal = {"error": f"{request.path} takes GET only.", "code": "METHOD_NOT_ALLOWED"}
        return JsonResponse(refusal, status=405, headers={"Allow": "GET, HEAD"})
    response = make()
    response.headers["Cache-Control"] = "no-store"
    return response


def livez(request: HttpRequest) -> JsonResponse:
    """200 as long as this process answers; asks nothing of the database or the broker."""
    return _answer(request, lambda: JsonResponse({"status": "alive"}))


def readyz(request: HttpRequest) -> JsonResponse:
    """200 when database, broker, migrations and background work are well, else 503 saying what is not."""
    return _answer(request, _ready)


def _ready() -> JsonResponse:
    unknown = {"ok": False, "error": "Unknown while the database does not answer."}
    checks = {"database": unknown, "broker": _broker(), "migrations": unknown, "beat": unknown}
    try:
        with connection.limited(DATABASE_LIMITS):  # type: ignore[attr-defined]
            checks["database"] = _database()
            if checks["database"]["ok"]:
                checks |= {"migrations": _migrations(), "beat": _beat()}
    except DatabaseError:
        checks["database"] = _away()
    ready = all(check["ok"] for check in checks.values())
    status = "ready" if ready else "not ready"
    return JsonResponse({"status": status, "checks": checks}, status=200 if ready else 503)


def _taking(since: float) -> Check:
    return {"ok": True, "milliseconds": round((time.monotonic() - since) * 1000, 1)}


def _database() -> Check:
    since = time.monotonic()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return _away()
    return _taking(since)


def _away() -> Check:
    # What the driver says names hosts and users; that is for the log, not for whoever asks.
    return {
        "ok": False,
        "error": "The database does not answer. Check that it runs and that DATABASE_URL names it.",
    }


@functools.cache
def _client() -> redis.Redis:
    client: redis.Redis = redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=1,
        socket_timeout=1,
        # A dead connection is made anew, but what did not come in time is not asked again.
        retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
    )
    return client


def _broker() -> Check:
    since = time.monotonic()
    try:
        _client().ping()
    except redis.RedisError:
        return {
            "ok": False,
            "error": "The broker does not answer. Check that it runs and that REDIS_URL names it; "
            "requests are served meanwhile, and the work waits in the database.",
        }
    return _taking(since)


@functools.cache
def _on_disk() -> frozenset[tuple[str, str]]:
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)


def _migrations() -> Check:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT app, name FROM django_migrations")
            missing = _on_disk() - set(cursor.fetchall())
    except DatabaseError:
        missing = _on_disk()
    if missing:
        return {
            "ok": False,
            "error": f"{len(missing)} migrations are not applied. Run `manage.py migrate`.",
        }
    return {"ok": True}


def _beat() -> Check:
    mend = "Check that a worker (`celery worker`) and one beat (`celery beat`) run; their logs say more."
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM statement_timestamp() - at)::float8 FROM api_beat")
            row = cursor.fetchone()
    except DatabaseError:
        row = None
    if row is None:
        return {"ok": False, "error": f"No background work has run yet. {mend}"}
    age = round(row[0], 1)
    if age > BEAT_SECONDS:
        return {"ok": False, "ageSeconds": age, "error": f"No background work for {age:.0f} s. {mend}"}
    return {"ok": True, "ageSeconds": age}
