"""HTTP/1.1 on one connection: uvicorn's protocol, with a deadline for everything a client may delay."""

import asyncio
import time
import uuid
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from openrelay.web import refusals
from openrelay.web.connections import Connections
from openrelay.web.options import Options
from openrelay.web.refusals import Refusal

# Requests that a client may send ahead of its answers.
_MAX_PIPELINED = 16


class _Joined:
    """A transport that sends the head of an answer together with the first piece of its body."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        for name in ("pause_reading", "resume_reading", "is_closing", "get_extra_info", "abort"):
            setattr(self, name, getattr(transport, name))
        self.get_write_buffer_size = transport.get_write_buffer_size

    def write(self, data: bytes) -> None:
        """Send `data`, or keep it when it is a head; uvicorn writes the body at once after it."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 100"):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Send a head that no body follows."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Send what is kept, and close."""
        self.flush()
        self._transport.close()


class Protocol(HttpToolsProtocol):
    """One connection. `Connections` has its deadline; asyncio, httptools and uvicorn call its methods."""

    def __init__(self, *, options: Options, table: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.options = options
        self.table = table
        # Between the first byte of a request and the end of its headers; the bytes so far.
        self.in_head = False
        self.head_bytes = 0
        # Whether the request that is being answered has arrived as a whole.
        self.is_whole = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Joined(transport))  # type: ignore[arg-type]
        self.table.reading[self] = time.monotonic() + self.options.header_seconds

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.in_head:
            self.head_bytes += len(data)
            if self.head_bytes > self.options.header_bytes and not self.transport.is_closing():
                self._refuse(
                    Refusal(
                        refusals.HEADERS_TOO_LARGE,
                        f"The headers are larger than {self.options.header_bytes} bytes. Send less.",
                    )
                )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.in_head, self.head_bytes = True, 0
        self.table.idle.pop(self, None)
        self.table.reading[self] = time.monotonic() + self.options.header_seconds

    def on_headers_complete(self) -> None:
        self.in_head = False
        self.is_whole = False
        self.table.reading.pop(self, None)
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise ValueError("too many requests are sent ahead of their answers")
        super().on_headers_complete()
        if self.parser.should_upgrade():
            # No other protocol is spoken here, and the parser reads nothing after such a request.
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.is_whole = True
        self.table.reading.pop(self, None)
        if self.cycle.response_complete:
            self._rest()

    def on_response_complete(self) -> None:
        self.transport.flush()  # type: ignore[attr-defined]
        # As uvicorn's, without a timer for each request: the table has the time of the idle ones.
        self.server_state.total_requests += 1
        is_next_here = bool(self.pipeline)
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
        if self.transport.get_write_buffer_size():
            self.table.writing.setdefault(self, self._until_read())
        if self.is_whole:
            self._rest()
        elif not is_next_here:
            # The answer came before the end of its body. The rest is read for a while: a client that still
            # sends could not read the answer from a connection that is closed now.
            self.table.reading[self] = time.monotonic() + self.options.transfer_seconds

    def _rest(self) -> None:
        if self.pipeline or self.transport.is_closing() or self.in_head or not self.cycle.response_complete:
            return
        self.table.reading.pop(self, None)
        self.table.idle[self] = time.monotonic() + self.options.idle_seconds
        # An idle connection keeps nothing of its last request.
        self.scope = self.headers = self.cycle = None  # type: ignore[assignment]

    def pause_writing(self) -> None:
        super().pause_writing()
        self.table.writing[self] = self._until_read()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.table.writing.pop(self, None)

    def _until_read(self) -> float:
        size = self.transport.get_write_buffer_size()
        return time.monotonic() + self.options.transfer_seconds + size / self.options.minimum_bytes_per_second

    def expire(self) -> None:
        if self.in_head:
            message = f"The headers did not arrive within {self.options.header_seconds} s. Send them at once."
            self._refuse(Refusal(refusals.TIMEOUT, message))
        else:
            self.drop()

    def drop(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # a client that reads nothing would keep what waits for it
        else:
            self.transport.close()

    def has_written(self) -> bool:
        return not self.transport.get_write_buffer_size()

    def send_400_response(self, msg: str) -> None:
        self._refuse(
            Refusal(refusals.BAD_REQUEST, "The request is not HTTP/1.1, or its framing is ambiguous.")
        )

    def _refuse(self, refusal: Refusal) -> None:
        """Answer before there is a request for the application, and end the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            # An earlier request is not answered yet: this would be taken for its answer.
            self.transport.abort()
            return
        refusal.close = True
        status, headers, body = refusal.render()
        headers.append((b"x-request-id", str(uuid.uuid4()).encode()))
        lines = [b"%s: %s\r\n" % pair for pair in self.server_state.default_headers + headers]
        self.transport.write(b"HTTP/1.1 %d \r\n%s\r\n%s" % (status, b"".join(lines), body))
        self.transport.flush()  # type: ignore[attr-defined]
        if self.transport.get_write_buffer_size():
            self.table.writing[self] = self._until_read()
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a client may ask for another protocol as often as it likes."""
