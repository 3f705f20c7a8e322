"""Statements that are written once and asked often: prepared, and several in one message to PostgreSQL.

Beside psycopg's cursors, on their connection and with the same adapters: a cursor costs several times what it
takes to send most of these.
"""

import datetime as dt
import itertools
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import psycopg
from django.conf import settings
from django.db.backends.postgresql.psycopg_any import get_adapters_template
from psycopg import abc, errors, pq
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.types.datetime import TimestamptzLoader

from openrelay.core.database.bounded import Connection, abandon

Params = Sequence[Any] | Mapping[str, Any]
Row = tuple[Any, ...]
# A statement and the types of its parameters, by which it is prepared.
_Key = tuple[str, tuple[int, ...] | None]

_PLACEHOLDER = re.compile(r"%(?:%|s|\((\w+)\)s)")
_NAME = b"openrelay_%d"
_DONE = frozenset({ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK})

_prepared: WeakKeyDictionary[psycopg.Connection[Any], dict[_Key, bytes]] = WeakKeyDictionary()
# A name that failed, or was dropped, is not used again.
_numbers = itertools.count(1)


def begin(connection: Connection) -> None:
    """Begin a transaction under the connection's limits, by one message. Raises psycopg's errors."""
    message = _Message(connection)
    try:
        connection.pgconn.send_query(connection.limits.begin)
        results = message.results(pipeline=False)
    except BaseException:
        abandon(connection)
        raise
    message.check(*results)


def run(
    connection: Connection, statements: Sequence[tuple[str, Params]], *, commits: bool = False
) -> list[list[Row]]:
    """The rows of each statement, with `%s` or `%(name)s` where its parameters go.

    They go out as one message, in which each begins when the one before has ended: it sees what was committed
    by then, and has its own time. As with a cursor, a BEGIN goes before them where the connection does not
    commit by itself and no transaction is open; with `commits` a COMMIT goes after them. PostgreSQL infers
    the types of parameters: cast the ones it cannot. For one thread at a time, as the connection is.

    Raises psycopg's error for the first that fails; those after it are not run. Where the wait for a message
    is interrupted, by a task's time limit say, or is longer than the connection's limit, the connection is
    closed.
    """
    message = _Message(connection)
    # All of them before anything is sent, for a value may be one that cannot be.
    asked = [message.asked(statement, params) for statement, params in statements]
    pg = connection.pgconn
    begins = not connection.autocommit and pg.transaction_status == TransactionStatus.IDLE
    if len(asked) == 1 and not begins and not commits:
        return [message.alone(asked[0])]
    pg.enter_pipeline_mode()
    try:
        message.send(asked, begins=begins, commits=commits)
        results = message.results()
        pg.exit_pipeline_mode()
    except BaseException:
        # Lost, or interrupted halfway: what comes next on it would be taken for the answer to something else.
        abandon(connection)
        raise
    return message.rows(results)


class _Asked(NamedTuple):
    """A statement with its parameters as they are sent."""

    key: _Key
    transformer: abc.Transformer
    values: Sequence[abc.Buffer | None]


class _Part(NamedTuple):
    """What a result is to be: that of a statement, by its reader, of preparing one, or of neither."""

    reader: abc.Transformer | None = None
    prepares: tuple[_Key, bytes] | None = None


class _Message:
    """Statements on their way, and what to make of each result in turn."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.adapters = _adapters()
        self.names = _prepared.setdefault(connection, {})
        self.expected: list[_Part] = []
        self.deadline = connection.deadline()

    def asked(self, statement: str, params: Params) -> _Asked:
        """The statement with its parameters. Raises psycopg's error for a value that cannot be sent."""
        _, names = _converted(statement)
        values = [params[name] for name in names] if isinstance(params, Mapping) else params
        transformer = Transformer(self)  # for its adapters and connection
        dumped = transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
        return _Asked((statement, transformer.types), transformer, dumped)

    def alone(self, asked: _Asked) -> list[Row]:
        """The rows of one statement that is all there is, which the quickest calls do."""
        pg = self.connection.pgconn
        key, transformer, values = asked
        name = self.names.get(key)
        try:
            if name is None:
                name = _NAME % next(_numbers)
                pg.send_prepare(name, _converted(key[0])[0], transformer.types)
                self.check(*self.results(pipeline=False))
                self.names[key] = name
            # psycopg takes None for NULL here too, though it does not say so.
            pg.send_query_prepared(name, values, transformer.formats)
            results = self.results(pipeline=False)
        except BaseException:
            if pg.transaction_status == TransactionStatus.ACTIVE:
                abandon(self.connection)
            raise
        self.check(*results)
        (result,) = results
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def send(self, asked: Sequence[_Asked], *, begins: bool, commits: bool) -> None:
        """Send the statements, with a BEGIN under the connection's limits before them and a COMMIT after them
        where asked.
        """
        if begins:
            self._plainly(b"BEGIN")
            if (limits := self.connection.limits.statement_after_begin) is not None:
                self._prepared(self.asked(limits, ()))
        for each in asked:
            self._prepared(each, reader=each.transformer)
        if commits:
            self._plainly(b"COMMIT")
        self.connection.pgconn.pipeline_sync()

    def _prepared(self, asked: _Asked, *, reader: abc.Transformer | None = None) -> None:
        pg = self.connection.pgconn
        key, transformer, values = asked
        name = self.names.get(key)
        if name is None:
            name = _NAME % next(_numbers)
            pg.send_prepare(name, _converted(key[0])[0], transformer.types)
            self.expected.append(_Part(prepares=(key, name)))
        pg.send_query_prepared(name, values, transformer.formats)
        self.expected.append(_Part(reader=reader))

    def _plainly(self, command: bytes) -> None:
        self.connection.pgconn.send_query_params(command, None)
        self.expected.append(_Part())

    def results(self, *, pipeline: bool = True) -> list[pq.abc.PGresult]:
        """Send what was not sent yet, and read every result.

        Raises OperationalError when the connection is lost, or given up, before the last.
        """
        pg = self.connection.pgconn
        results: list[pq.abc.PGresult] = []
        self.connection.send_all(self.deadline)
        while True:
            while pg.is_busy():
                if not self.connection.wait_for_input(self.deadline):
                    break
            result = pg.get_result()
            if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
                return results
            if result is not None:
                results.append(result)
            elif not pipeline and results:
                return results
            elif pg.status != ConnStatus.OK:
                self.check(*results)
                raise errors.OperationalError(pg.get_error_message())

    def rows(self, results: Sequence[pq.abc.PGresult]) -> list[list[Row]]:
        """The rows of those that have some. Raises psycopg's error for the first that failed."""
        rows: list[list[Row]] = []
        for part, result in zip(self.expected, results, strict=True):
            self.check(result)
            if part.prepares is not None:
                key, name = part.prepares
                self.names[key] = name
            elif part.reader is not None:
                part.reader.set_pgresult(result)
                rows.append(part.reader.load_rows(0, result.ntuples, tuple))
        return rows

    def check(self, *results: pq.abc.PGresult) -> None:
        """Raises psycopg's error for the first of the results that is one."""
        for result in results:
            self._check(result)

    def _check(self, result: pq.abc.PGresult) -> None:
        if result.status in _DONE:
            return
        state = result.error_field(DiagnosticField.SQLSTATE)
        if state is None and self.connection.pgconn.status != ConnStatus.OK:
            # libpq's own words have no code, by which psycopg could tell that the connection is lost.
            raise errors.OperationalError(result.error_message.decode(errors="replace").strip())
        error = errors.error_from_result(result, self.connection.info.encoding)
        if isinstance(error, errors.FeatureNotSupported | errors.InvalidSqlStatementName):
            # A table changed below a statement, or somebody dropped it: all are prepared anew next time.
            self.names.clear()
        raise error


@lru_cache(maxsize=512)
def _converted(statement: str) -> tuple[bytes, list[str]]:
    """The statement as PostgreSQL takes it, with `$1` and so on, and the names of its parameters."""
    names: list[str] = []
    count = itertools.count(1)

    def place(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        if found[1] is None:
            return f"${next(count)}"
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return _PLACEHOLDER.sub(place, statement).encode(), names


class _Adapters(AdaptersMap):
    """A map that is complete, and so remembers what it looked up: each statement asks anew for every one of
    its values' and columns' types.
    """

    def __init__(self, template: AdaptersMap) -> None:
        super().__init__(template)
        self.register_loader("timestamptz", TimestamptzLoader)
        self.get_dumper = cache(super().get_dumper)  # type: ignore[method-assign]
        self.get_loader = cache(super().get_loader)  # type: ignore[method-assign]


@cache
def _adapters() -> AdaptersMap:
    """Django's, but times are read by psycopg's own loader, which is compiled: it gives them in the time zone
    of the connection, which is UTC."""
    return _Adapters(get_adapters_template(settings.USE_TZ, dt.UTC))
