"""The connections of a worker: what each waits for, and which one gives way when there are too many."""

import time
from itertools import takewhile
from typing import Protocol as Interface


class Connection(Interface):
    """What this module needs of a connection."""

    def expire(self) -> None:
        """End it: its time for headers, for the rest of a body, or for reading an answer is over."""

    def drop(self) -> None:
        """End it to make room."""

    def has_written(self) -> bool:
        """Whether everything written to it is on its way."""


class Connections:
    """Connections by what they wait for. A connection that a request is running for is in no table."""

    def __init__(self) -> None:
        # Until when a next request must begin, in the order in which they became idle.
        self.idle: dict[Connection, float] = {}
        # Until when the headers, or the rest of a body that was refused, must be here.
        self.reading: dict[Connection, float] = {}
        # Until when the client must have read what was written.
        self.writing: dict[Connection, float] = {}

    def make_room(self) -> bool:
        """End the connection that has been idle for longest, or else has sent headers for longest."""
        for table in (self.idle, self.reading):
            if table:
                oldest = next(iter(table))
                table.pop(oldest)
                oldest.drop()
                return True
        return False

    def forget(self, connection: Connection) -> None:
        """Take a connection that has ended out of every table."""
        self.idle.pop(connection, None)
        self.reading.pop(connection, None)
        self.writing.pop(connection, None)

    def sweep(self) -> None:
        """End the connections whose time is over."""
        now = time.monotonic()
        for connection in [each for each, _ in takewhile(lambda each: each[1] <= now, self.idle.items())]:
            self.idle.pop(connection)
            connection.drop()
        for connection in [each for each, until in self.reading.items() if until <= now]:
            self.reading.pop(connection)
            connection.expire()
        for connection, until in list(self.writing.items()):
            if connection.has_written():
                self.writing.pop(connection)
            elif until <= now:
                self.writing.pop(connection)
                connection.drop()
