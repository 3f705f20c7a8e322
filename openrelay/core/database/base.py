"""The backend; Django finds it under this name."""

import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from django.conf import settings
from django.db.backends.postgresql import base
from django.db.transaction import TransactionManagementError
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus

from openrelay.core.database.bounded import Connection, Limits
from openrelay.core.database.statements import Params, Row, begin, run


def limits() -> Limits:
    """What the settings allow a connection."""
    return Limits(
        lock=settings.DATABASE_LOCK_TIMEOUT,
        statement=settings.DATABASE_STATEMENT_TIMEOUT,
        idle_in_transaction=settings.DATABASE_IDLE_IN_TRANSACTION_TIMEOUT,
    )


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, with `query_all`, and with pooled connections looked at before they are given out."""

    # Whether the block that it is in was committed by its closing statement.
    _closed_by_statement = False

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A connection on which every wait has an end; from the pool one that is not known to be dead."""
        pool: Any = self.pool  # type: ignore[attr-defined]
        if pool is None:
            self.isolation_level = IsolationLevel.READ_COMMITTED
            return Connection.connect(**conn_params)
        while True:
            connection = super().get_new_connection(conn_params)
            if _lives(connection):
                return connection
            # Closed, it is thrown away by the pool, which makes another.
            connection.close()
            pool.putconn(connection)

    def _configure_connection(self, connection: Connection) -> bool:
        # Django's hook for a new connection, its own or the pool's.
        connection.limits = limits()
        configured: bool = super()._configure_connection(connection)  # type: ignore[misc]
        return configured

    @contextmanager
    def limited(self, limits: Limits) -> Iterator[None]:
        """Have a connection under other limits, inside the block and outside of any transaction."""
        self.ensure_connection()
        connection: Connection = self.connection
        usual, connection.limits = connection.limits, limits
        try:
            yield
        finally:
            connection.limits = usual

    def create_cursor(self, name: str | None = None) -> Any:
        """A cursor, in a transaction under the connection's limits where one is to begin."""
        connection = self.connection
        if not connection.autocommit and connection.pgconn.transaction_status == TransactionStatus.IDLE:
            begin(connection)
        return super().create_cursor(name)

    def query_all(
        self, statements: Sequence[tuple[str, Params]], *, closing: bool = False
    ) -> list[list[Row]]:
        """The rows of statements that are written once and asked often, each begun when the one before has
        ended: prepared and in one message, where `settings.DATABASE_PREPARES` allows it.

        With `closing`, nothing is read or written after them in their transaction: where it is not part of
        another, it is committed by the same message, and its end has nothing left to do. Whoever goes on all
        the same is stopped by TransactionManagementError.

        PostgreSQL infers the types of a prepared statement's parameters: cast the ones it cannot. Raises
        Django's database errors.
        """
        self.close_if_health_check_failed()
        self.ensure_connection()
        self._refuse_after_the_end()
        if self.queries_logged or self.execute_wrappers or not settings.DATABASE_PREPARES:
            return [self._plainly(statement, params) for statement, params in statements]
        self.validate_no_broken_transaction()
        # A transaction that was there before any block is not a block's to end.
        commits = closing and len(self.atomic_blocks) == 1 and self.commit_on_exit
        try:
            with self.wrap_database_errors:
                rows = run(self.connection, statements, commits=commits)
        except BaseException:
            # A block ends with the connection that it has lost; what is in none has the next one at once.
            if self.connection.closed and not self.in_atomic_block:
                self.close()
            raise
        self._closed_by_statement = commits
        return rows

    def _refuse_after_the_end(self) -> None:
        if self._closed_by_statement:
            raise TransactionManagementError("This transaction was committed by its closing statement.")

    def cursor(self) -> Any:
        """A cursor."""
        self._refuse_after_the_end()
        return super().cursor()

    def commit(self) -> None:
        """End the transaction, where that is still to do."""
        self._closed_by_statement = False
        super().commit()

    def rollback(self) -> None:
        """Undo what is not committed."""
        self._closed_by_statement = False
        if self.connection is not None and self.connection.closed:
            # PostgreSQL undoes it by itself. Django would connect, and wait for it, only to end the block.
            self.close()
            self.closed_in_transaction = True
            return
        super().rollback()

    def connect(self) -> None:
        """Connect anew."""
        self._closed_by_statement = False
        super().connect()

    def _plainly(self, statement: str, params: Params) -> list[Row]:
        """The same by the cursors that count, log and wrap what is executed."""
        with self.cursor() as cursor:
            cursor.execute(statement, params)
            return cursor.fetchall()


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
