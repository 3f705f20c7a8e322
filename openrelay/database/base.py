"""The backend; Django finds it under this name."""

import datetime as dt
import select
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import psycopg
from django.conf import settings
from django.db.backends.postgresql import base, operations
from django.db.backends.postgresql.psycopg_any import get_adapters_template
from psycopg.adapt import AdaptersMap
from psycopg.types.datetime import TimestamptzLoader


class PreparedCursor(psycopg.Cursor[Any]):
    """A cursor that sends values beside the statement, and prepares each statement when it first comes."""

    @property
    def adapters(self) -> AdaptersMap:
        """How values are read and written, the same for every connection."""
        return _adapters()

    def execute(self, query: Any, params: Any = None, **options: Any) -> "PreparedCursor":
        return super().execute(query, params, **{**options, "prepare": True})


class DatabaseOperations(operations.DatabaseOperations):
    """Django's, which can also say what a prepared statement was executed with."""

    def last_executed_query(self, cursor: Any, sql: Any, params: Any) -> str:
        if isinstance(cursor, PreparedCursor):
            return str(self.compose_sql(sql, params))
        return super().last_executed_query(cursor, sql, params)


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, with `query`, and with pooled connections looked at before they are given out."""

    ops_class = DatabaseOperations

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A connection; from the pool one that is not known to be dead."""
        pool: Any = self.pool  # type: ignore[attr-defined]
        while True:
            connection = super().get_new_connection(conn_params)
            if pool is None or _lives(connection):
                return connection
            # Closed, it is thrown away by the pool, which makes another.
            connection.close()
            pool.putconn(connection)

    def query(self, statement: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement that is written once and asked often: prepared, where
        `settings.DATABASE_PREPARES` allows it, and without the layers of Django's cursors.

        PostgreSQL infers the types of a prepared statement's parameters: cast the ones it cannot. Raises
        Django's database errors.
        """
        self.ensure_connection()
        if self.queries_logged or self.execute_wrappers or not settings.DATABASE_PREPARES:
            return self._query_plainly(statement, params)
        self.validate_no_broken_transaction()
        with self.wrap_database_errors:
            return PreparedCursor(self.connection).execute(statement, params).fetchall()

    def _query_plainly(self, statement: str, params: Any) -> list[tuple[Any, ...]]:
        """The same by the cursors that count, log and wrap what is executed."""
        if settings.DATABASE_PREPARES:
            raw: Any = PreparedCursor(self.connection)
            cursor = self.make_debug_cursor(raw) if self.queries_logged else self.make_cursor(raw)
        else:
            cursor = self.cursor()
        with cursor:
            cursor.execute(statement, params)
            return cursor.fetchall()


@cache
def _adapters() -> AdaptersMap:
    """Django's, but times are read by psycopg's own loader, which is compiled: it gives them in the time zone
    of the connection, which is UTC."""
    ours = AdaptersMap(get_adapters_template(settings.USE_TZ, dt.UTC))
    ours.register_loader("timestamptz", TimestamptzLoader)
    return ours


def _lives(connection: Any) -> bool:
    """Whether an idle connection still has its server.

    A server that ended it, by restart or crash, has left something to be read: an end of file at least.
    Nothing to read says what a round trip would, but for a machine that vanished without a word; that one the
    statement finds out, as it would a moment after any check.
    """
    waiting = select.poll()
    waiting.register(connection.pgconn.socket, select.POLLIN)
    if not waiting.poll(0):
        return True
    try:
        connection.execute("")
    except psycopg.Error:
        return False
    return True
