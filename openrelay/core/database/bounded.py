"""psycopg's connection, on which every wait has an end.

There are two ends. PostgreSQL gives up what it waits for itself (`lock_timeout` and the like). Where it says
nothing at all, since it is stopped or the network is silent, the client closes the connection. The first are
set in each transaction by the message that begins it: a start-up parameter, or a setting of the session, does
not hold behind a pooler in transaction mode. A statement outside any transaction has the client's end alone.
"""

import select
import time
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

T = TypeVar("T")

#: How much longer than PostgreSQL's own limit the client waits, so that PostgreSQL gives up first.
GRACE_SECONDS = 1.0
#: For how long the server of a connection that is given up is asked to give up what it does.
CANCEL_SECONDS = 2.0


@dataclass(frozen=True)
class Limits:
    """In seconds: how long one lock is waited for, how long one statement takes, and how long a transaction
    stays open with nothing to do. 0 sets no limit.
    """

    lock: float = 0
    statement: float = 0
    idle_in_transaction: float = 0

    @cached_property
    def settings(self) -> list[tuple[str, int]]:
        """PostgreSQL's settings, in milliseconds."""
        given = (
            ("lock_timeout", self.lock),
            ("statement_timeout", self.statement),
            ("idle_in_transaction_session_timeout", self.idle_in_transaction),
        )
        return [(name, round(seconds * 1000)) for name, seconds in given if seconds]

    @cached_property
    def begin(self) -> bytes:
        """What begins a transaction under these limits, in one message."""
        return "; ".join(["BEGIN", *(f"SET LOCAL {name} = {ms}" for name, ms in self.settings)]).encode()

    @cached_property
    def statement_after_begin(self) -> str | None:
        """The same limits by one statement, which can be prepared; None where there are none."""
        calls = [f"set_config('{name}', '{ms}', true)" for name, ms in self.settings]
        return f"SELECT {', '.join(calls)}" if calls else None

    @cached_property
    def answer(self) -> float | None:
        """For how many seconds the client waits for an answer."""
        return self.statement + GRACE_SECONDS if self.statement else None


class Connection(psycopg.Connection[Any]):
    """A connection whose `limits` are kept by both ends."""

    limits = Limits()

    def wait_for_input(self, deadline: float | None) -> bool:
        """Wait for something to read, and read it; leaves the interpreter to others meanwhile.

        Returns False when the connection was lost: what was read before tells why. Raises what `give_up`
        returns when nothing came before the deadline, by the monotonic clock.
        """
        return self._poll(select.POLLIN, deadline)

    def send_all(self, deadline: float | None) -> None:
        """Send what libpq has still to send. Raises what `give_up` returns after the deadline."""
        while self.pgconn.flush() and self._poll(select.POLLIN | select.POLLOUT, deadline):
            pass

    def _poll(self, events: int, deadline: float | None) -> bool:
        poll = select.poll()
        poll.register(self.pgconn.socket, events)
        left_ms = None if deadline is None else max(0, deadline - time.monotonic()) * 1000
        ready = poll.poll(left_ms)
        if not ready:
            raise give_up(self)
        if ready[0][1] & ~select.POLLOUT:
            try:
                self.pgconn.consume_input()
            except psycopg.OperationalError:
                return False
        return True

    def deadline(self) -> float | None:
        """Until when an answer to what is sent now is waited for, by the monotonic clock."""
        answer = self.limits.answer
        return None if answer is None else time.monotonic() + answer

    def wait(self, gen: Generator[Any, Any, T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait as psycopg does, but for an answer no longer than the limit. Raises what `give_up` returns."""
        try:
            return super().wait(gen, interval, self.limits.answer if timeout is None else timeout)
        except errors._WaitTimeout:
            if timeout is not None:
                raise
        raise give_up(self)


def give_up(connection: psycopg.Connection[Any]) -> errors.OperationalError:
    """Close a connection whose answer did not come in time, and return the error to raise.

    QueryCanceled where the server could be told to stop: it lives, and only the statement takes too long.
    """
    if abandon(connection):
        return errors.QueryCanceled("the statement took too long and was canceled by the client")
    return errors.OperationalError("PostgreSQL did not answer in time; the connection was closed")


def abandon(connection: psycopg.Connection[Any]) -> bool:
    """Close a connection, and have its server give up what it does and may still wait to do; returns whether
    the server could be told.
    """
    try:
        if connection.pgconn.transaction_status == TransactionStatus.ACTIVE:
            connection.cancel_safe(timeout=CANCEL_SECONDS)
        return True
    except psycopg.Error:
        return False
    finally:
        connection.close()
