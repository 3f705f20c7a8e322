"""The limits on one client of the web server: slow senders, idle connections, slow readers, sizes."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.identity.factories import make_key, make_person
from tests.support.web import Server
from tests.web.conftest import Start, Wire

SHORT = {"WEB_HEADER_SECONDS": "3", "WEB_TRANSFER_SECONDS": "3"}
LOGIN = (
    b"POST /console/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: openrelay_csrf=" + b"a" * 32 + b"\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nc"
)


def posting(
    secret: str, body: bytes, *, announced: int | None = None, path: str = "/v1/vms/none/reboot"
) -> bytes:
    """A POST with that credential, whose Content-Length may announce more than there is."""
    length = len(body) if announced is None else announced
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode() + body


def whoami(server: Server, secret: str) -> int:
    """Ask on a connection of its own; the status."""
    headers = {"Authorization": f"Bearer {secret}"}
    return httpx.get(f"{server.url}/v1/whoami", headers=headers, timeout=30, trust_env=False).status_code


def test_slow_senders_leave_others_answered(start: Start) -> None:
    server = start(threads=2, **SHORT)
    _, secret = make_key()
    began = time.monotonic()
    senders = [Wire(server, LOGIN) for _ in range(30)]
    senders += [Wire(server, posting(secret, b"{", announced=1000)) for _ in range(30)]
    # Before a sender's time is over each of them is waited for, and no thread is.
    assert [whoami(server, secret) for _ in range(5)] == [200] * 5
    for sender in senders:
        if time.monotonic() - began < 2:
            sender.send(b"x")
    assert [whoami(server, secret) for _ in range(5)] == [200] * 5
    for sender in senders:
        status, headers, body = sender.answer()
        assert (status, json.loads(body)["code"]) == (408, "REQUEST_TIMEOUT")
        assert headers["x-request-id"]
        assert headers["connection"] == "close"
        assert sender.is_closed()


def test_slow_headers_are_ended(start: Start) -> None:
    server = start(**SHORT)
    silent, slow = Wire(server), Wire(server, b"GET /v1/whoami HTTP/1.1\r\nHost: 127.0.0.1\r\nX-")
    status, _, body = slow.answer()
    assert (status, json.loads(body)["code"]) == (408, "REQUEST_TIMEOUT")
    assert silent.is_closed()


def test_thousands_of_idle_connections_leave_others_answered(start: Start) -> None:
    server = start(workers=2)
    _, secret = make_key()
    wires = []
    try:
        for _ in range(2000):
            wires.append(Wire(server, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))
        assert {wire.answer()[0] for wire in wires} == {200}
        assert [whoami(server, secret) for _ in range(5)] == [200] * 5
        # They are kept, and may ask again.
        for wire in wires[::100]:
            wire.send(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert wire.answer()[0] == 200
    finally:
        for wire in wires:
            wire.close()


def test_the_longest_idle_connection_gives_way_to_a_new_one(start: Start) -> None:
    server = start(WEB_CONNECTIONS="20")
    ask = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    wires = []
    for _ in range(30):
        wires.append(Wire(server, ask))
        assert wires[-1].answer()[0] == 200
    assert wires[0].is_closed()
    wires[-1].send(ask)
    assert wires[-1].answer()[0] == 200


def test_an_idle_connection_is_ended_after_its_time(start: Start) -> None:
    wire = Wire(start(WEB_IDLE_SECONDS="1"), b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert wire.answer()[0] == 200
    assert wire.is_closed()


def test_a_client_that_does_not_read_is_ended(start: Start) -> None:
    server = start(WEB_MINIMUM_BYTES_PER_SECOND="10000000", WEB_TRANSFER_SECONDS="1")
    path = b"/static/drf_spectacular_sidecar/redoc/bundles/redoc.standalone.js"
    ask = b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    wire = Wire(server, ask * 12)
    time.sleep(4)
    got = 0
    with pytest.raises((ConnectionResetError, EOFError)):  # noqa: PT012
        while more := wire.socket.recv(1 << 20):
            got += len(more)
        raise EOFError
    whole = int(httpx.head(f"{server.url}{path.decode()}", trust_env=False).headers["content-length"])
    assert got < 12 * whole


def test_a_body_without_an_announced_length_is_read(server: Server) -> None:
    person = make_person()
    body = b'{"name": "by chunks"}'
    wire = Wire(
        server,
        f"POST /v1/orgs/{person.organization.id}/api-keys/create HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {person.token}\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n".encode()
        + b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        + b"0\r\n\r\n",
    )  # fmt: skip
    status, _, answer = wire.answer()
    assert status == 200, answer
    wire.send(
        f"POST /v1/vms/none/reboot HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {person.token}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    for _ in range(17):
        wire.send(piece)
    status, _, answer = wire.answer()
    assert (status, json.loads(answer)["code"]) == (413, "PAYLOAD_TOO_LARGE")


def test_a_large_body_is_refused_before_it_is_sent(server: Server) -> None:
    wire = Wire(
        server,
        b"POST /v1/pods HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1048577\r\n"
        b"Expect: 100-continue\r\n\r\n",
    )
    status, headers, answer = wire.answer()
    assert (status, json.loads(answer)["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert headers["connection"] == "close"
    assert wire.is_closed()


def test_a_client_that_waits_for_permission_to_send_gets_it(server: Server) -> None:
    _, secret = make_key()
    asked = posting(secret, b"", announced=2).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    wire = Wire(server, asked)
    assert wire.answer()[0] == 100
    wire.send(b"{}")
    assert wire.answer()[0] == 404


def test_large_headers_are_refused(server: Server) -> None:
    for text in (
        b"GET /v1/whoami HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Much: " + b"a" * 40_000,
        b"GET /v1/whoami HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Much: " + b"a" * 40_000 + b"\r\n\r\n",
        b"GET /v1/" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ):
        status, _, body = Wire(server, text).answer()
        assert (status, json.loads(body)["code"]) == (431, "HEADERS_TOO_LARGE")


@pytest.mark.parametrize(
    "text",
    [
        b"nonsense\r\n\r\n",
        b"GET /v1/whoami HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/pods HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /v1/whoami HTTP/1.1\r\nHost: a\r\nX Y: 1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n" * 400,
    ],
)
def test_what_is_not_http_is_refused_in_json_or_ended(server: Server, text: bytes) -> None:
    wire = Wire(server, text)
    status, _, body = wire.answer()
    if status:
        assert status in (200, 400)
        assert status == 200 or json.loads(body)["code"] == "VALIDATION_ERROR"
    assert Wire(server, b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").answer()[0] == 200


def test_requests_sent_ahead_are_answered_in_order(server: Server) -> None:
    _, secret = make_key()
    ask = f"GET /v1/whoami HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {secret}\r\nX-Request-Id: ".encode()
    wire = Wire(server, b"".join(ask + b"n-%d\r\n\r\n" % number for number in range(5)))
    data = b""
    while data.count(b"x-request-id: n-") < 5:
        data += wire.socket.recv(65536)
    places = [data.index(b"x-request-id: n-%d" % number) for number in range(5)]
    assert places == sorted(places)


def test_a_request_cut_off_half_way_changes_nothing(server: Server) -> None:
    _, secret = make_key()
    for _ in range(20):
        Wire(server, posting(secret, b"{", announced=10)).close()
    assert whoami(server, secret) == 200


def workers(server: Server) -> list[int]:
    """The processes that answer requests."""
    text = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


def test_a_stopped_worker_is_replaced_and_takes_no_connection_meanwhile(start: Start) -> None:
    server = start(workers=2)
    _, secret = make_key()
    deadline = time.monotonic() + 60
    while len(workers(server)) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(3)  # both are ready
    stopped = workers(server)[0]
    os.kill(stopped, signal.SIGSTOP)
    assert [whoami(server, secret) for _ in range(20)] == [200] * 20
    while stopped in workers(server) and time.monotonic() < deadline + 60:
        time.sleep(0.1)
    assert stopped not in workers(server)
    while len(workers(server)) < 2 and time.monotonic() < deadline + 90:
        time.sleep(0.1)
    assert len(workers(server)) == 2
    assert whoami(server, secret) == 200


def test_a_running_request_is_finished_before_the_server_ends(start: Start) -> None:
    server = start()
    _, secret = make_key()
    statuses: list[int] = []
    asking = threading.Thread(target=lambda: statuses.append(whoami(server, secret)))
    with psycopg.connect(server.env["DATABASE_URL"]) as holder:
        holder.execute("LOCK TABLE identity_apikey IN ACCESS EXCLUSIVE MODE")
        asking.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        with psycopg.connect(server.env["DATABASE_URL"], autocommit=True) as observer:
            deadline = time.monotonic() + 30
            while observer.execute(waiting).fetchone() == (0,) and time.monotonic() < deadline:
                time.sleep(0.05)
        os.kill(server.pid, signal.SIGTERM)
        time.sleep(0.5)
    asking.join(30)
    assert statuses == [200]
