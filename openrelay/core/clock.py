"""PostgreSQL's clock, the only one that decides anything."""

import datetime as dt
from typing import Any

from django.conf import settings
from django.db import models

from openrelay.core.rows import NOTHING, Question, Reading, Row, ask


class Now(models.Func):
    """The database's time in a query: the start of the statement that reads it."""

    output_field = models.DateTimeField()

    def as_sql(self, compiler, connection, **_kwargs):  # type: ignore[no-untyped-def, override]
        return settings.CLOCK_SQL, []


def read() -> dt.datetime:
    """The database's time, read once in a statement of its own.

    Inside a transaction call it after the lock is held: a time evaluated in the locking statement may be
    older than the wait for the lock.
    """
    at, _ = ask(asking(NOTHING))
    return at


def asking(also: Reading) -> Question[tuple[dt.datetime, Any]]:
    """Asks for the time, and what `also` reads, in the same statement."""
    return Question(f"SELECT {settings.CLOCK_SQL}, {also.sql}", also.params, _only)


def _only(rows: list[Row]) -> tuple[dt.datetime, Any]:
    ((at, value),) = rows
    return at, value


def rfc3339(moment: dt.datetime) -> str:
    """`moment` as the API writes it: UTC, with `Z`, with microseconds only when there are any."""
    return moment.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
