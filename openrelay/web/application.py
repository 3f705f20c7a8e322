"""The ASGI application: buffers a request's body, has a thread run Django, and sends the whole answer."""

import asyncio
import contextlib
import json
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import IO, Any, Protocol

from openrelay.identity.addresses import client_address
from openrelay.web import refusals
from openrelay.web.environ import build_environ
from openrelay.web.options import Options
from openrelay.web.refusals import Headers, Refusal
from openrelay.web.spool import Spool, SpoolFile
from openrelay.web.threads import Threads

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

# A larger answer waits for its reader in a file, not in memory.
_IN_MEMORY = 1024 * 1024
_PIECE = 64 * 1024
# After so long an answer that is made piece by piece gives way to the requests that wait for a thread.
_TURN_SECONDS = 0.05
_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,100}")


@dataclass(slots=True)
class Answer:
    """A whole answer: its body is bytes or a file."""

    status: int
    headers: Headers
    body: bytes | SpoolFile


class Translate(Protocol):
    """Makes the refusal that answers an exception of the application, for a request's id."""

    def __call__(self, error: Exception, request_id: str) -> Refusal: ...


def _internal_error(error: Exception, request_id: str) -> Refusal:
    log.error("the application failed, request %s", request_id, exc_info=error)
    return Refusal(refusals.FAILED, "Something went wrong here. Try again later.")


class FileAnswer:
    """An answer that the application gives as a file, as `wsgi.file_wrapper`."""

    def __init__(self, file: IO[bytes], block_size: int = _PIECE) -> None:
        self.file = file
        self.block_size = block_size

    def __iter__(self) -> Iterator[bytes]:
        return iter(lambda: self.file.read(self.block_size), b"")

    def close(self) -> None:
        """Close the file, and with it the application's answer."""
        self.file.close()


class Application:
    """Serves a WSGI application under the limits of `options`."""

    def __init__(
        self,
        wsgi: Wsgi,
        options: Options,
        trusted_proxies: int,
        problem: Callable[[], str] = lambda: "",
        translate: Translate = _internal_error,
    ) -> None:
        self.wsgi = wsgi
        self.options = options
        self.trusted_proxies = trusted_proxies
        self.threads = Threads(options.threads, options.queue, options.queue_seconds)
        self.spool = Spool(options.spool_files, options.spool_bytes)
        self.buffered = 0
        self.elsewhere = problem
        self.translate = translate

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        try:
            answer = await self._answer(scope, receive)
        except Refusal as refusal:
            answer = Answer(*refusal.render())
            answer.headers.append((b"x-request-id", refusal.request_id or _request_id(scope)))
        if answer is not None:
            await _send(answer, send)

    def problem(self) -> str:
        """Why this process cannot serve, in words; empty while it can."""
        if self.threads.seconds_without_progress() > self.options.stuck_seconds:
            return f"No request has been finished for {self.options.stuck_seconds} s although some wait."
        return self.elsewhere()

    async def _answer(self, scope: Message, receive: Receive) -> Answer | None:
        given = dict(scope["headers"])
        size = len(scope["raw_path"]) + len(scope["query_string"])
        for name, value in scope["headers"]:
            size += len(name) + len(value)
        if size > self.options.header_bytes:
            raise Refusal(
                refusals.HEADERS_TOO_LARGE,
                f"The headers are larger than {self.options.header_bytes} bytes. Send less.",
                close=True,
            )
        if scope["path"] == "/livez" and scope["method"] in ("GET", "HEAD"):
            return self._liveness(scope)
        length, expects = given.get(b"content-length"), b"expect" in given
        if length is not None and (len(length) > 12 or int(length) > self.options.body_bytes):
            raise _too_large(self.options.body_bytes, close=expects)
        if length is None and b"transfer-encoding" not in given:
            return await self._run(scope, b"")
        held = _Held(self)
        try:
            whole = await self._read_body(receive, held)
            return None if whole is None else await self._run(scope, whole)
        finally:
            held.release()

    async def _read_body(self, receive: Receive, held: "_Held") -> bytes | None:
        """The whole body; None when the client has left. Raises Refusal."""
        options, loop = self.options, asyncio.get_running_loop()
        began, parts = loop.time(), []
        while True:
            allowed = options.transfer_seconds + held.size / options.minimum_bytes_per_second
            try:
                async with asyncio.timeout_at(began + allowed):
                    message = await receive()
            except TimeoutError:
                raise Refusal(
                    refusals.TIMEOUT,
                    f"The body did not arrive within {allowed:.0f} s. Send it at once, and at "
                    f"{options.minimum_bytes_per_second // 1024} KiB a second or faster.",
                    close=True,
                ) from None
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            held.add(len(parts[-1]))
            if held.size > options.body_bytes:
                raise _too_large(options.body_bytes)
            if not message.get("more_body"):
                return b"".join(parts)

    async def _run(self, scope: Message, body: bytes) -> Answer:
        environ = build_environ(scope, body)
        client = client_address(
            environ["REMOTE_ADDR"], environ.get("HTTP_X_FORWARDED_FOR", ""), self.trusted_proxies
        )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()

        def finish(answer: Answer | None, error: BaseException | None) -> None:
            if future.cancelled():
                if answer is not None and isinstance(answer.body, SpoolFile):
                    answer.body.close()
                return
            if error is not None:
                future.set_exception(error)
            elif answer is not None:
                future.set_result(answer)

        work = Work(self.wsgi, environ, self.spool, client)

        def run() -> None:
            whole: Answer | None = None
            failure: Exception | None = None
            try:
                whole = work.go_on(self.threads.others_wait)
                if whole is None:
                    self.threads.put_again(client, run, refuse)
                    return
            except Exception as error:
                failure = error
                work.abandon()
            _hand_over(loop, finish, whole, failure)

        def refuse() -> None:
            work.abandon()
            busy = Refusal(refusals.TRY_AGAIN, "The server is busy. Try again after the time in Retry-After.")
            _hand_over(loop, finish, None, busy)

        self.threads.put(client, run, refuse)
        try:
            return await future
        except Refusal:
            raise
        except Exception as error:
            request_id = _request_id(scope)
            refusal = self.translate(error, request_id.decode())
            refusal.request_id = request_id
            raise refusal from None

    def _liveness(self, scope: Message) -> Answer:
        problem = self.problem()
        found = {"status": "stuck", "error": problem} if problem else {"status": "alive"}
        body = json.dumps(found).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-store"),
            (b"content-length", str(len(body)).encode()),
            (b"x-request-id", _request_id(scope)),
        ]
        return Answer(503 if problem else 200, headers, body)


class _Held:
    """The bytes of one body that are in memory."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.size = 0

    def add(self, size: int) -> None:
        """Count more bytes. Raises Refusal when all bodies together are too large."""
        self.size += size
        self.application.buffered += size
        if self.application.buffered > self.application.options.buffer_bytes:
            raise Refusal(
                refusals.TRY_AGAIN,
                "The server holds too many bodies. Try again after the time in Retry-After.",
            )

    def release(self) -> None:
        """Count them no more."""
        self.application.buffered -= self.size
        self.size = 0


def _too_large(limit: int, *, close: bool = False) -> Refusal:
    return Refusal(
        refusals.TOO_LARGE,
        f"The body is larger than {limit / 1024 / 1024:g} MiB. Send less at once.",
        close=close,
    )


def _request_id(scope: Message) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return bytes(value)
    return str(uuid.uuid4()).encode()


def _hand_over(loop: asyncio.AbstractEventLoop, *call: Any) -> None:
    # A thread may outlive the loop when the process ends.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(*call)


class Work:
    """One request in the WSGI application, until its answer is whole.

    An answer that the application makes piece by piece gives way to other requests between two pieces. It
    goes on in its next turn, in any thread.
    """

    def __init__(self, wsgi: Wsgi, environ: dict[str, Any], spool: Spool, client: str) -> None:
        self.wsgi = wsgi
        self.environ = {**environ, "wsgi.file_wrapper": FileAnswer}
        self.spool = spool
        self.client = client
        self.status = 500
        self.headers: list[tuple[str, str]] = []
        self.result: Iterable[bytes] | None = None
        self.pieces: Iterator[bytes] = iter(())
        self.parts: list[bytes] = []
        self.length = 0
        self.file: SpoolFile | None = None

    def go_on(self, others_wait: Callable[[], bool]) -> Answer | None:
        """The whole answer; None when this turn is over before it is whole."""
        if self.result is None:
            self.result = self.wsgi(self.environ, self._start)
            if isinstance(self.result, FileAnswer) and self._is_large():
                # It is a file already, and is sent from it. Closing the file closes the application's answer.
                file = self.spool.adopt(self.client, self.result.file)
                self.result = None
                return Answer(self.status, self._encoded_headers(), file)
            self.pieces = iter(self.result)
        # The turn is of the pieces alone: what the view did is done, and its answer is not put off.
        turn_ends = time.monotonic() + _TURN_SECONDS
        for piece in self.pieces:
            self._keep(piece)
            if time.monotonic() > turn_ends and others_wait():
                return None
        self._close_result()
        headers = self._encoded_headers()
        if self.status not in (204, 304) and not any(name == b"content-length" for name, _ in headers):
            headers.append((b"content-length", str(self.length).encode()))
        if self.file is None:
            return Answer(self.status, headers, b"".join(self.parts))
        self.file.rewind()
        return Answer(self.status, headers, self.file)

    def abandon(self) -> None:
        """End a request that is answered otherwise. It never raises: a thread has to go on."""
        for close in (self._close_result, self._close_file):
            try:
                close()
            except Exception as error:
                log.error("a request could not be closed", exc_info=error)

    def _close_result(self) -> None:
        result: Any = self.result
        self.result = None
        if hasattr(result, "close"):
            result.close()

    def _close_file(self) -> None:
        if self.file is not None:
            self.file.close()

    def _is_large(self) -> bool:
        for name, value in self.headers:
            if name.lower() == "content-length":
                return int(value) > _IN_MEMORY
        return False

    def _encoded_headers(self) -> Headers:
        return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers]

    def _start(self, line: str, headers: list[tuple[str, str]], _exc_info: Any = None) -> None:
        self.status, self.headers = int(line[:3]), headers

    def _keep(self, piece: bytes) -> None:
        """Keep a piece of the body: in memory, or in a file when there are many."""
        self.length += len(piece)
        if self.file is not None:
            self.file.write(piece)
            return
        self.parts.append(piece)
        if self.length > _IN_MEMORY:
            self.file = self.spool.create(self.client)
            self.file.write(b"".join(self.parts))
            self.parts.clear()


async def _send(answer: Answer, send: Send) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    if isinstance(answer.body, bytes):
        await send({"type": "http.response.body", "body": answer.body})
        return
    with contextlib.closing(answer.body) as file:
        while piece := file.read(_PIECE):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
