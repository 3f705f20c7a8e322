"""A load of some clients, each on one kept connection, light enough to leave the machine to the server."""

import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit


def say(text: str) -> None:
    """Tell on stderr what is being done, so that a run of minutes is seen to go on."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass
class Result:
    """What one load did: answers of 2xx, seconds it took, seconds of each answer."""

    done: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.done / self.seconds if self.seconds else 0.0

    @property
    def median(self) -> float:
        """The median answer's time, in milliseconds."""
        ordered = sorted(self.latencies)
        return ordered[len(ordered) // 2] * 1000 if ordered else 0.0


def request(method: str, url: str, path: str, body: bytes = b"", token: str = "") -> bytes:
    """One HTTP/1.1 request, whole."""
    parts = urlsplit(url)
    head = f"{method} {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
    if token:
        head += f"Authorization: Bearer {token}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class Connection:
    """One kept connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def ask(self, raw: bytes) -> tuple[int, bytes]:
        """Send a request; returns the answer's status and body."""
        self.socket.sendall(raw)
        data = self.rest
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        length = next(int(line[15:]) for line in lines if line.lower().startswith("content-length:"))
        while len(body) < length:
            body += self._more()
        self.rest = body[length:]
        return int(lines[0].split()[1]), body[:length]

    def _more(self) -> bytes:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data


def run(url: str, clients: int, seconds: float, make: Callable[[int, int], bytes]) -> Result:
    """Have `clients` send requests one after the other for `seconds`; `make(client, number)` makes each.

    Raises RuntimeError at the first answer that is not 2xx.
    """
    results = [Result() for _ in range(clients)]
    faults: list[str] = []
    begin = threading.Barrier(clients + 1)

    def work(client: int) -> None:
        connection = Connection(url)
        mine = results[client]
        begin.wait()
        deadline = time.perf_counter() + seconds
        number = 0
        while (started := time.perf_counter()) < deadline and not faults:
            status, body = connection.ask(make(client, number))
            number += 1
            if not 200 <= status < 300:
                faults.append(f"{status}: {body[:400].decode(errors='replace')}")
                return
            mine.done += 1
            mine.latencies.append(time.perf_counter() - started)

    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    begin.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    if faults:
        raise RuntimeError(f"the server answered {faults[0]}")
    return Result(
        sum(result.done for result in results),
        time.perf_counter() - started,
        [latency for result in results for latency in result.latencies],
    )
