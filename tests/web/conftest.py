"""Servers of a test's own, with limits so short that a test can wait for them."""

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support import web

Start = Callable[..., web.Server]


@contextmanager
def _running(env: dict[str, str], **given: int) -> Iterator[web.Server]:
    port = str(web.free_port())
    url = f"http://127.0.0.1:{port}"
    env = {**env, "PORT": port, "BASE_URL": url}
    with tempfile.TemporaryFile() as log:
        process = web.start(env, log, **given)
        try:
            web.wait(url, process)
            yield web.Server(url=url, pid=process.pid, env=env)
        except BaseException:
            log.seek(0)
            print(log.read().decode())
            raise
        finally:
            os.killpg(process.pid, signal.SIGCONT)
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def start(server: web.Server) -> Iterator[Start]:
    """Start one more web server on the test database: `start(threads=2, WEB_HEADER_SECONDS="1")`."""
    with ExitStack() as stack:

        def one(*, workers: int = 1, threads: int = 4, **variables: str) -> web.Server:
            return stack.enter_context(
                _running({**server.env, **variables}, workers=workers, threads=threads)
            )

        yield one


class Wire:
    """One connection that sends bytes as they are."""

    def __init__(self, server: web.Server, text: bytes = b"", **options: Any) -> None:
        address = urlsplit(server.url)
        self.socket = socket.create_connection((address.hostname, address.port or 80), timeout=60)
        self.send(text)

    def send(self, text: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(text)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read one answer: status, headers, body. Status 0: the server has closed the connection."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += (more := self.socket.recv(65536))
            if not more:
                return 0, {}, data
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            body += self.socket.recv(65536)
        return int(first.split()[1]), headers, body

    def is_closed(self) -> bool:
        """Whether the server closes the connection, having sent nothing more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """Close it."""
        self.socket.close()
