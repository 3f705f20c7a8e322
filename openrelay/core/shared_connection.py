"""One row from the database at the least cost, for what is asked with every request.

Taking a connection from the pool and trying whether it lives costs more than such a question. So each process
keeps one connection for them, of its own; when that fails, another is made, and the question asked again.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection

from openrelay.core.database.base import limits
from openrelay.core.database.bounded import Connection
from openrelay.core.database.statements import run
from openrelay.core.rows import Reading

# For how long another's question on the kept connection is waited for.
_PATIENCE_SECONDS = 0.25

_lock = Lock()
_kept: dict[str, Connection] = {}


def fetchone(statement: str, params: Sequence[Any]) -> tuple[Any, ...] | None:
    """The first row of a statement that changes nothing, as the database is now.

    Inside a transaction it is asked there, for there it sees what the transaction did. Raises Django's
    database errors, OperationalError when it is away.
    """
    if connection.in_atomic_block:
        return _plainly(statement, params)
    name = str(connection.settings_dict["NAME"])
    # A caller has the kept connection for less than a millisecond, or it hangs.
    if not _lock.acquire(timeout=_PATIENCE_SECONDS):
        return _plainly(statement, params)
    try:
        kept = _kept.get(name)
        if kept is not None:
            try:
                return _ask(kept, statement, params)
            except psycopg.Error:
                _kept.pop(name).close()
    finally:
        _lock.release()
    # The usual way notices what is wrong with the database, and raises what others expect.
    row = _plainly(statement, params)
    if _lock.acquire(blocking=False):  # else somebody else is about to keep one
        try:
            if name not in _kept:
                with suppress(psycopg.Error):  # there is an answer, and the next may have better luck
                    _kept[name] = _connect()
        finally:
            _lock.release()
    return row


def read(*readings: Reading) -> tuple[Any, ...]:
    """What the readings read, in one question; see `fetchone`."""
    statement = f"SELECT {', '.join(reading.sql for reading in readings)}"
    return fetchone(statement, [value for reading in readings for value in reading.params]) or ()


def _plainly(statement: str, params: Sequence[Any]) -> tuple[Any, ...] | None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        row: tuple[Any, ...] | None = cursor.fetchone()
    return row


def _ask(kept: Connection, statement: str, params: Sequence[Any]) -> tuple[Any, ...] | None:
    if settings.DATABASE_PREPARES:
        (rows,) = run(kept, [(statement, params)])
        return rows[0] if rows else None
    row: tuple[Any, ...] | None = kept.execute(statement, params).fetchone()
    return row


def _connect() -> Connection:
    # As Django connects, with all that DATABASE_URL says, but for how Django has values read.
    params: dict[str, Any] = connection.get_connection_params()
    del params["context"]
    # Where nothing may be prepared, values are written into the statement, which goes out as one message.
    params["cursor_factory"] = psycopg.ClientCursor
    made = Connection.connect(**params, autocommit=True)
    # Others wait for this one, and a question that failed here is asked again: so no longer than for a lock.
    made.limits = replace(limits(), statement=limits().lock)
    return made
