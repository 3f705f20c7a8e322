"""Answers above 1 MiB wait for their readers in files: bounded, and no failure of a file stops a thread."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest

from openrelay.web.application import Application, Work, Wsgi
from openrelay.web.options import Options
from openrelay.web.refusals import Refusal
from openrelay.web.spool import Spool

MIB = 1024 * 1024


def ask(application: Application, client: str = "192.0.2.1", read: Callable[[], None] = lambda: None) -> Any:
    """Ask once; returns the status and how many bytes came. `read` is called before the answer is read."""
    got: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            read()
        got.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/things",
        "raw_path": b"/v1/things",
        "query_string": b"",
        "headers": [(b"host", b"x")],
        "client": (client, 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "http_version": "1.1",
    }
    asyncio.run(application(scope, receive, send))
    return got[0]["status"], sum(len(message.get("body", b"")) for message in got[1:])


def serve(wsgi: Wsgi, **limits: int) -> Application:
    """The application with two threads and these limits."""
    return Application(wsgi, Options(threads=2, **limits), 0)


def large(pieces: int = 40) -> Wsgi:
    """An application whose answer has that many pieces of 64 KiB."""

    def wsgi(environ: dict[str, Any], start: Callable[..., Any]) -> Iterator[bytes]:
        start("200 OK", [])
        return iter([b"x" * 65536] * pieces)

    return wsgi


def test_a_large_answer_is_sent_whole_and_frees_its_file() -> None:
    application = serve(large())
    assert ask(application) == (200, 40 * 65536)
    assert (application.spool.open_files, application.spool.held_bytes) == ({}, {})


def test_an_answer_beyond_the_files_of_its_client_is_refused() -> None:
    application = serve(large(), spool_files=4)
    inner: list[Any] = []
    answered = ask(application, read=lambda: inner.append(_in_thread(application, "192.0.2.1")))
    assert answered == (200, 40 * 65536)
    assert [status for status, _ in inner] == [503]
    assert ask(application) == (200, 40 * 65536)


def test_another_client_has_files_of_its_own() -> None:
    application = serve(large(), spool_files=4)
    inner: list[Any] = []
    ask(application, read=lambda: inner.append(_in_thread(application, "192.0.2.2")))
    assert inner == [(200, 40 * 65536)]


def test_an_answer_beyond_the_bytes_of_its_client_is_refused() -> None:
    application = serve(large(), spool_bytes=4 * 2 * MIB)
    assert ask(application)[0] == 503
    assert (application.spool.open_files, application.spool.held_bytes) == ({}, {})


def test_a_file_that_cannot_be_closed_stops_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """A file on a full disk: neither written nor closed."""

        def write(self, piece: bytes) -> int:
            raise OSError("no space left on device")

        close = write

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    application = serve(large())
    monkeypatch.setattr(Full, "close", lambda self: self.write(b""))
    for _ in range(5):
        assert ask(application)[0] == 500
    assert application.spool.open_files == {}


def test_an_answer_that_is_a_file_is_sent_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.js"
    path.write_bytes(b"y" * 3 * MIB)
    opened: list[IO[bytes]] = []

    def wsgi(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        start("200 OK", [("Content-Length", str(3 * MIB))])
        opened.append(path.open("rb"))
        return environ["wsgi.file_wrapper"](opened[-1])

    def forbidden(*_args: Any, **_kwargs: Any) -> None:
        raise AssertionError("it was copied")

    monkeypatch.setattr(tempfile, "TemporaryFile", forbidden)
    application = serve(wsgi)
    assert ask(application) == (200, 3 * MIB)
    assert opened[0].closed
    assert application.spool.open_files == {}


def test_an_error_after_the_first_page_is_answered_as_the_api_does() -> None:
    class Late(Exception):
        """An error while a list is read."""

    def pages() -> Iterator[bytes]:
        yield b"["
        raise Late

    def wsgi(environ: dict[str, Any], start: Callable[..., Any]) -> Iterator[bytes]:
        start("200 OK", [])
        return pages()

    def translate(error: Exception, request_id: str) -> Refusal:
        assert isinstance(error, Late)
        assert request_id
        return Refusal((503, "TRY_AGAIN"), "Try again.")

    application = Application(wsgi, Options(threads=2), 0, translate=translate)
    assert ask(application)[0] == 503


def test_a_slow_answer_of_one_piece_is_not_put_off() -> None:
    def wsgi(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        time.sleep(0.2)
        start("200 OK", [])
        return [b"done"]

    work = Work(wsgi, {}, Spool(1, 1), "192.0.2.1")
    answer = work.go_on(lambda: True)
    assert answer is not None
    assert answer.body == b"done"


def _in_thread(application: Application, client: str) -> Any:
    """The same from another thread: this one runs a loop already."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(ask, application, client).result(60)
