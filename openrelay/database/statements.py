"""Statements that are written once and asked often: prepared, and several in one message to PostgreSQL.

Beside psycopg's cursors, on their connection and with the same adapters: a cursor costs several times what it
takes to send most of these.
"""

import datetime as dt
import itertools
import re
import select
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import psycopg
from django.conf import settings
from django.db.backends.postgresql.psycopg_any import get_adapters_template
from psycopg import abc, errors, pq
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.types.datetime import TimestamptzLoader

Params = Sequence[Any] | Mapping[str, Any]
Row = tuple[Any, ...]
# A statement and the types of its parameters, by which it is prepared.
_Key = tuple[str, tuple[int, ...] | None]

_PLACEHOLDER = re.compile(r"%(?:%|s|\((\w+)\)s)")
_NAME = b"openrelay_%d"
# For how long an interrupted message's server is asked to give up.
_CANCEL_SECONDS = 2.0
_DONE = frozenset({ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK})

_prepared: WeakKeyDictionary[psycopg.Connection[Any], dict[_Key, bytes]] = WeakKeyDictionary()
# A name that failed, or was dropped, is not used again.
_numbers = itertools.count(1)


def run(
    connection: psycopg.Connection[Any], statements: Sequence[tuple[str, Params]], *, commits: bool = False
) -> list[list[Row]]:
    """The rows of each statement, with `%s` or `%(name)s` where its parameters go.

    They go out as one message, in which each begins when the one before has ended: it sees what was committed
    by then, and has its own time. As with a cursor, a BEGIN goes before them where the connection does not
    commit by itself and no transaction is open; with `commits` a COMMIT goes after them. PostgreSQL infers
    the types of parameters: cast the ones it cannot. For one thread at a time, as the connection is.

    Raises psycopg's error for the first that fails; those after it are not run. Where the wait for a message
    is interrupted, by a task's time limit say, the connection is closed.
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
        _abandon(connection)
        raise
    return message.rows(results)


def _abandon(connection: psycopg.Connection[Any]) -> None:
    """Close a connection, and have its server give up what it was asked and may still wait to do."""
    try:
        if connection.pgconn.transaction_status == TransactionStatus.ACTIVE:
            connection.cancel_safe(timeout=_CANCEL_SECONDS)
    except psycopg.Error:
        pass  # it is gone too
    finally:
        connection.close()


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

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.adapters = _adapters()
        self.names = _prepared.setdefault(connection, {})
        self.expected: list[_Part] = []

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
        if name is None:
            name = _NAME % next(_numbers)
            self._check(pg.prepare(name, _converted(key[0])[0], transformer.types))
            self.names[key] = name
        # psycopg takes None for NULL here too, though it does not say so.
        result = pg.exec_prepared(name, values, transformer.formats)  # type: ignore[arg-type]
        self._check(result)
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def send(self, asked: Sequence[_Asked], *, begins: bool, commits: bool) -> None:
        """Send the statements, with a BEGIN before them and a COMMIT after them where asked."""
        pg = self.connection.pgconn
        if begins:
            self._plainly(b"BEGIN")
        for key, transformer, values in asked:
            name = self.names.get(key)
            if name is None:
                name = _NAME % next(_numbers)
                pg.send_prepare(name, _converted(key[0])[0], transformer.types)
                self.expected.append(_Part(prepares=(key, name)))
            pg.send_query_prepared(name, values, transformer.formats)
            self.expected.append(_Part(reader=transformer))
        if commits:
            self._plainly(b"COMMIT")
        pg.pipeline_sync()
        while pg.flush():
            self._wait(select.POLLIN | select.POLLOUT)

    def _plainly(self, command: bytes) -> None:
        self.connection.pgconn.send_query_params(command, None)
        self.expected.append(_Part())

    def results(self) -> list[pq.abc.PGresult]:
        """Read every result. Raises OperationalError when the connection is lost before the last."""
        pg = self.connection.pgconn
        results: list[pq.abc.PGresult] = []
        while True:
            while pg.is_busy():
                self._wait(select.POLLIN)
            result = pg.get_result()
            if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
                return results
            if result is not None:
                results.append(result)
            elif pg.status != ConnStatus.OK:
                raise errors.OperationalError(pg.get_error_message())

    def rows(self, results: Sequence[pq.abc.PGresult]) -> list[list[Row]]:
        """The rows of those that have some. Raises psycopg's error for the first that failed."""
        rows: list[list[Row]] = []
        for part, result in zip(self.expected, results, strict=True):
            self._check(result)
            if part.prepares is not None:
                key, name = part.prepares
                self.names[key] = name
            elif part.reader is not None:
                part.reader.set_pgresult(result)
                rows.append(part.reader.load_rows(0, result.ntuples, tuple))
        return rows

    def _check(self, result: pq.abc.PGresult) -> None:
        if result.status in _DONE:
            return
        if self.connection.pgconn.status != ConnStatus.OK:
            # libpq's own words have no code, by which psycopg could tell that the connection is lost.
            raise errors.OperationalError(result.error_message.decode(errors="replace").strip())
        error = errors.error_from_result(result, self.connection.info.encoding)
        if isinstance(error, errors.FeatureNotSupported | errors.InvalidSqlStatementName):
            # A table changed below a statement, or somebody dropped it: all are prepared anew next time.
            self.names.clear()
        raise error

    def _wait(self, events: int) -> None:
        """Wait for the socket, leaving the interpreter to others: the wait may be for a lock."""
        socket = select.poll()
        socket.register(self.connection.pgconn.socket, events)
        if any(event & ~select.POLLOUT for _, event in socket.poll()):
            self.connection.pgconn.consume_input()


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
