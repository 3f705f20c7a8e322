"""The parent process: binds the port, starts the workers, and replaces one that ended or hangs."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping

from openrelay.web.options import OptionError, Options, raise_file_limit, read_number

BACKLOG = 4096
ASK_SECONDS = 1.0
# A worker that has not answered for so long hangs. One that starts imports Django first.
HUNG_SECONDS = 10
START_SECONDS = 90
FIRST_DELAY, LAST_DELAY = 0.3, 10.0
# So often in a row a worker may fail to start before the parent gives up.
MAX_FAILED_STARTS = 3


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} web: {what}", flush=True)


class Child:
    """One worker process, and the socket on which it is asked whether it is well."""

    def __init__(self, listener: socket.socket) -> None:
        self.control, theirs = socket.socketpair()
        self.control.setblocking(False)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "openrelay.web.worker", str(listener.fileno()), str(theirs.fileno())],
                pass_fds=[listener.fileno(), theirs.fileno()],
            )
        self.is_ready = False
        self.heard_at = time.monotonic()

    def ask(self) -> None:
        """Ask whether it is well."""
        with contextlib.suppress(OSError):
            self.control.send(b"?")

    def hear(self) -> None:
        """Read its answer."""
        with contextlib.suppress(OSError):
            if self.control.recv(64):
                self.is_ready = True
                self.heard_at = time.monotonic()

    def is_hung(self) -> bool:
        """Whether it has been silent for too long."""
        allowed = HUNG_SECONDS if self.is_ready else START_SECONDS
        return time.monotonic() - self.heard_at > allowed

    def end(self, number: int) -> None:
        """Send it a signal, if it lives."""
        if self.process.poll() is None:
            self.process.send_signal(number)


class Parent:
    """Keeps `workers` workers running on one listening socket."""

    def __init__(self, listener: socket.socket, workers: int, stop_seconds: float) -> None:
        self.listener = listener
        self.stop_seconds = stop_seconds
        self.children: list[Child | None] = [None] * workers
        self.due = [0.0] * workers
        self.failed_starts = 0
        self.should_stop = False

    def run(self) -> int:
        """Keep them running until a signal ends it; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        asked_at = 0.0
        while not self.should_stop and self.failed_starts < MAX_FAILED_STARTS:
            self._tend()
            if time.monotonic() - asked_at >= ASK_SECONDS:
                asked_at = time.monotonic()
                for child in filter(None, self.children):
                    child.ask()
            self._listen(0.2)
        self._end()
        return 0 if self.should_stop else 1

    def _stop(self, _number: int, _frame: object) -> None:
        self.should_stop = True

    def _listen(self, seconds: float) -> None:
        known = {child.control: child for child in self.children if child is not None}
        if not known:
            time.sleep(seconds)
            return
        readable, _, _ = select.select(list(known), [], [], seconds)
        for control in readable:
            known[control].hear()
        if readable:
            time.sleep(0.02)  # the end of a worker's socket is readable until it is noticed

    def _tend(self) -> None:
        for index, child in enumerate(self.children):
            if child is None:
                if time.monotonic() >= self.due[index]:
                    self.children[index] = Child(self.listener)
                continue
            pid = child.process.pid
            if child.process.poll() is None:
                if not child.is_hung():
                    if child.is_ready:
                        self.failed_starts = 0
                    continue
                _say(f"worker {pid} does not answer; replacing it")
                child.process.kill()
                child.process.wait()
            else:
                _say(f"worker {pid} ended with {child.process.returncode}; starting another")
            if not child.is_ready:
                self.failed_starts += 1
            child.control.close()
            self.children[index] = None
            delay = 0.0 if child.is_ready else FIRST_DELAY * 2**self.failed_starts
            self.due[index] = time.monotonic() + min(delay, LAST_DELAY)

    def _end(self) -> None:
        # Nobody is to wait in the queue of a socket that is not served any more.
        self.listener.close()
        children = [child for child in self.children if child is not None]
        for child in children:
            child.end(signal.SIGTERM)
        deadline = time.monotonic() + self.stop_seconds + 1
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(deadline - time.monotonic(), 0.05))
            child.end(signal.SIGKILL)
            child.process.wait()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; the supervisor holds the same port, so it is bound as one that is shared."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends small answers at once (TCP_NODELAY).
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "SO_REUSEPORT"):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, port))
    listener.listen(BACKLOG)
    return listener


def default_workers() -> int:
    """As many as there are processors, 2 to 4."""
    return min(max(os.cpu_count() or 1, 2), 4)


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Serve at `WEB_HOST` and `PORT`; returns the exit code."""
    try:
        options = Options.read(environ)
        port = read_number(environ, "PORT", 8000)
        workers = read_number(environ, "WEB_WORKERS", default_workers())
    except OptionError as error:
        print(error, file=sys.stderr)
        return 2
    host = environ.get("WEB_HOST") or "127.0.0.1"
    if missing := raise_file_limit(options.connections):
        _say(missing)
    try:
        listener = bind(host, port)
    except OSError as error:
        print(f"PORT {port} cannot be had on {host}: {error.strerror}", file=sys.stderr)
        return 1
    _say(f"serving http://{host}:{port} with {workers} workers of {options.threads} threads")
    return Parent(listener, workers, options.stop_seconds).run()
