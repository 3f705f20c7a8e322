"""What the server answers by itself, without Django: health, limits and faults."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from openrelay.web.application import Application
from openrelay.web.options import OptionError, Options

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def scope(path: str = "/v1/x", method: str = "GET", **headers: str) -> dict[str, Any]:
    """An ASGI request."""
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }


async def ask(
    application: Application, asked: dict[str, Any], *parts: bytes
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Send a request with a body of those parts; status, headers and body of the answer."""
    waiting = list(parts)
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": waiting.pop(0), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    await application(asked, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(each["body"] for each in sent[1:])


def answering(*parts: bytes) -> Wsgi:
    """An application that answers with those parts."""

    def wsgi(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return iter(parts)

    return wsgi


def test_livez_is_answered_while_all_threads_are_busy_and_says_when_they_are_stuck() -> None:
    go = threading.Event()

    def waiting(_environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        go.wait(60)
        start_response("200 OK", [])
        return [b"done"]

    async def main() -> None:
        for stuck_seconds, status, said in ((60, 200, "alive"), (-1, 503, "stuck")):
            application = Application(waiting, Options(threads=1, stuck_seconds=stuck_seconds), 0)
            asked = [asyncio.create_task(ask(application, scope())) for _ in range(2)]
            while application.threads.busy < 1 or application.threads.length < 1:
                await asyncio.sleep(0.01)
            found = await ask(application, scope("/livez"))
            assert (found[0], json.loads(found[2])["status"]) == (status, said)
            go.set()
            assert [await each for each in asked] == [(200, {b"content-length": b"4"}, b"done")] * 2
            go.clear()

    asyncio.run(main())


def test_livez_says_when_the_parent_hangs() -> None:
    application = Application(answering(b""), Options(threads=1), 0, lambda: "The parent does not answer.")
    status, headers, body = asyncio.run(ask(application, scope("/livez", x_request_id="mine")))
    assert (status, headers[b"x-request-id"]) == (503, b"mine")
    assert json.loads(body) == {"status": "stuck", "error": "The parent does not answer."}


def test_all_bodies_together_are_bounded() -> None:
    application = Application(answering(b""), Options(threads=1, buffer_bytes=100, transfer_seconds=1), 0)

    async def main() -> None:
        first = asyncio.create_task(ask(application, scope(method="POST", content_length="1000"), b"x" * 90))
        await asyncio.sleep(0.1)
        status, headers, body = await ask(application, scope(method="POST", content_length="1000"), b"x" * 20)
        assert (status, json.loads(body)["code"], headers[b"retry-after"]) == (503, "TRY_AGAIN", b"1")
        assert (await first)[0] == 408
        assert application.buffered == 0

    asyncio.run(main())


def test_a_body_that_comes_fast_enough_may_take_longer_than_the_time_to_begin() -> None:
    options = Options(threads=1, transfer_seconds=1, minimum_bytes_per_second=1000)
    application = Application(answering(b"ok"), options, 0)

    async def main() -> None:
        waiting = 30

        async def receive() -> dict[str, Any]:
            nonlocal waiting
            waiting -= 1
            await asyncio.sleep(0.1)
            return {"type": "http.request", "body": b"x" * 1000, "more_body": waiting > 0}

        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await application(scope(method="POST", content_length="30000"), receive, send)
        assert sent[0]["status"] == 200

    asyncio.run(main())


def test_a_long_answer_comes_whole_and_with_its_length() -> None:
    piece = bytes(range(256)) * 1024
    application = Application(answering(*[piece] * 12), Options(threads=1), 0)
    status, headers, body = asyncio.run(ask(application, scope()))
    assert (status, headers[b"content-length"]) == (200, str(12 * len(piece)).encode())
    assert body == piece * 12


def test_a_long_answer_gives_way_to_waiting_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openrelay.web.application._TURN_SECONDS", -1)
    order: list[str] = []
    other_waits = threading.Event()

    def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response("200 OK", [])
        if environ["PATH_INFO"] == "/short":
            order.append("short")
            return [b"short"]
        return long()

    def long() -> Iterable[bytes]:
        for number in range(3):
            order.append(f"long {number}")
            yield b"long"
            other_waits.wait(60)

    async def main() -> None:
        application = Application(wsgi, Options(threads=1), 0)
        first = asyncio.create_task(ask(application, scope("/long")))
        while not order:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(ask(application, scope("/short")))
        while not application.threads.length:
            await asyncio.sleep(0.01)
        other_waits.set()
        assert (await second)[2] == b"short"
        assert (await first)[2] == b"long" * 3

    asyncio.run(main())
    assert order.index("short") < order.index("long 2")


def test_a_long_answer_that_gets_no_further_turn_is_refused_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("openrelay.web.application._TURN_SECONDS", -1)
    closed = threading.Event()

    class Pieces:
        def __iter__(self) -> Iterable[bytes]:
            yield from [b"x"] * 100

        def close(self) -> None:
            closed.set()

    def wsgi(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        start_response("200 OK", [])
        return Pieces()

    async def main() -> None:
        application = Application(wsgi, Options(threads=1), 0)
        monkeypatch.setattr(application.threads, "put_again", lambda _client, _run, refuse: refuse())
        monkeypatch.setattr(application.threads, "others_wait", lambda: True)
        status, _, body = await ask(application, scope())
        assert (status, json.loads(body)["code"]) == (503, "TRY_AGAIN")

    asyncio.run(main())
    assert closed.wait(10)


def test_a_fault_is_answered_in_json_also_in_the_middle_of_an_answer() -> None:
    def breaking(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response("200 OK", [])
        yield b"half"
        raise ValueError("no more")

    application = Application(breaking, Options(threads=1), 0)
    status, headers, body = asyncio.run(ask(application, scope(x_request_id="mine")))
    assert (status, json.loads(body)["code"], headers[b"x-request-id"]) == (500, "INTERNAL_ERROR", b"mine")


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "\N{SUPERSCRIPT TWO}"])
def test_a_limit_is_a_positive_number(value: str) -> None:
    with pytest.raises(OptionError, match="WEB_HEADER_SECONDS"):
        Options.read({"WEB_HEADER_SECONDS": value})
    assert Options.read({"WEB_HEADER_SECONDS": "7"}).header_seconds == 7
