"""`python -m bench.outages`: what other callers see while one caller or one process misbehaves.

Starts a server of its own and asks three things all the time, each on a new connection, with a key of an
organization that has nothing to do with the fault: who it is, its VMs, and `/livez`. Then it causes one
fault after the other, and prints for each how many questions were answered, how long the answers took, and
after how many seconds every question was answered within a second again.

The loads are bounded: a fault lasts `--seconds`. What is stopped is not continued, so the server recovers by
itself or not at all.
"""

import argparse
import json
import os
import resource
import signal
import socket
import statistics
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import stack
from bench.load import say

# A question that takes longer than this is not answered, as for a client with a timeout.
PATIENCE_SECONDS = 10.0
EVERY_SECONDS = 0.1
SETTLED_SECONDS = 3.0
LONG_LIST = 20_000


@dataclass
class Answer:
    """One question: when it was asked, the status (0 for none), and how long it took."""

    asked: float
    status: int
    seconds: float


@dataclass
class Prober:
    """Asks all the time, from threads of its own."""

    url: str
    token: str
    org: str
    answers: list[Answer] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin to ask."""
        for path in ("/v1/whoami", f"/v1/orgs/{self.org}/vms", "/livez"):
            threading.Thread(target=self._ask, args=(path,), daemon=True).start()

    def _ask(self, path: str) -> None:
        parts = urlsplit(self.url)
        while not self.ended.wait(EVERY_SECONDS):
            asked = time.monotonic()
            status = 0
            try:
                connection = HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)
                connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
                answer = connection.getresponse()
                answer.read()
                status = answer.status
                connection.close()
            except (OSError, HTTPException):
                pass
            self.answers.append(Answer(asked, status, time.monotonic() - asked))

    def since(self, moment: float) -> list[Answer]:
        """What was asked since then."""
        return [answer for answer in self.answers if answer.asked >= moment]


def settled(prober: Prober, since: float) -> float | None:
    """Seconds from `since` until everything was answered within a second again; None if it is not yet."""
    bad = [answer for answer in prober.since(since) if answer.status != 200 or answer.seconds > 1]
    last = max((answer.asked + answer.seconds for answer in bad), default=since)
    return last - since if time.monotonic() - last > SETTLED_SECONDS else None


# Processes


def children_of(pid: int) -> list[int]:
    """The processes that descend from `pid`."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            for child in (task / "children").read_text().split():
                found += [int(child), *children_of(int(child))]
        except OSError:
            continue
    return found


def program(home: str, name: str) -> list[int]:
    """The processes of the home's program of that name: the one that was started, and what it started."""
    running = json.loads((Path(home) / "state.json").read_text())["processes"]
    pids = [each["pid"] for each in running if each["name"] == name]
    return [pid for first in pids for pid in (first, *children_of(first))]


def stop(pids: list[int]) -> None:
    """Stop the processes as a hang does: they hold what they hold, and answer nothing."""
    if not pids:
        raise RuntimeError("there is no such process")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


# Faults: each is caused on entry, and ends on exit if it does not end by itself.

Cause = Callable[["Stage"], "Iterator[None]"]


@dataclass
class Stage:
    """The running server and what the faults need of it."""

    url: str
    home: str
    database_url: str
    operator: str
    tenant_key: str
    tenant: str
    node: str
    units: list[str]


def _open(url: str) -> socket.socket:
    parts = urlsplit(url)
    made = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=30)
    return made


@contextmanager
def slow_senders(at: Stage) -> Iterator[None]:
    """200 connections that send a body of 1,000 bytes a byte at a time: half to sign in, half to the API."""
    csrf = ""
    with urllib.request.urlopen(f"{at.url}/console/login/") as answer:
        for cookie in answer.headers.get_all("Set-Cookie") or []:
            if cookie.startswith("openrelay_csrf="):
                csrf = cookie.split(";")[0]
    host = urlsplit(at.url).netloc
    over = threading.Event()

    def send(head: str) -> None:
        while not over.is_set():
            try:
                with _open(at.url) as made:
                    made.sendall(head.encode())
                    while not over.wait(1):
                        made.sendall(b"a")
            except OSError:
                over.wait(1)

    heads = (
        f"POST /console/login/ HTTP/1.1\r\nHost: {host}\r\nCookie: {csrf}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\n",
        f"POST /v1/orgs/{at.tenant}/vms/create HTTP/1.1\r\nHost: {host}\r\n"
        f"Authorization: Bearer {at.tenant_key}\r\nContent-Type: application/json\r\n"
        "Content-Length: 1000\r\n\r\n",
    )
    threads = [threading.Thread(target=send, args=(heads[n % 2],), daemon=True) for n in range(200)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(5)


@contextmanager
def idle_connections(at: Stage) -> Iterator[None]:
    """5,000 kept connections, each of which has asked `/livez` once."""
    host = urlsplit(at.url).netloc
    request = f"GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    kept: list[socket.socket] = []
    try:
        for _ in range(5_000):
            try:
                made = _open(at.url)
                made.sendall(request)
                made.settimeout(5)
                made.recv(4096)
                kept.append(made)
            except OSError:
                break
        say(f"  {len(kept)} connections are open")
        yield
    finally:
        for made in kept:
            made.close()


@contextmanager
def long_lists(at: Stage) -> Iterator[None]:
    """16 callers who read a list of 20,000 reservations, again and again."""
    over = threading.Event()
    read: list[float] = []

    def ask() -> None:
        while not over.is_set():
            began = time.monotonic()
            asked = urllib.request.Request(
                f"{at.url}/v1/orgs/{at.tenant}/reservations",
                headers={"Authorization": f"Bearer {at.tenant_key}"},
            )
            try:
                with urllib.request.urlopen(asked, timeout=120) as answer:
                    while answer.read(1 << 16):
                        pass
                read.append(time.monotonic() - began)
            except (OSError, HTTPException):
                over.wait(0.2)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(16)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
        peak = max(resident_mb(pid) for pid in program(at.home, "web"))
        if read:
            say(f"  {len(read)} lists, median {statistics.median(read):.1f} s; a web process {peak:.0f} MB")


def resident_mb(pid: int) -> float:
    """The most memory that the process had, in MB; 0 for one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


@contextmanager
def held_node(at: Stage) -> Iterator[None]:
    """A session that holds a node's row, and 30 callers who want to change that node."""
    import psycopg

    over = threading.Event()
    seen: list[tuple[int, str]] = []
    body = json.dumps(
        {"unitIds": at.units[:1], "allowedOrgIds": [at.tenant], "startsAt": "2100-01-01T00:00:00Z"}
    )

    def ask() -> None:
        while not over.is_set():
            asked = urllib.request.Request(
                f"{at.url}/v1/nodes/{at.node}/reservations",
                body.encode(),
                {"Authorization": f"Bearer {at.operator}", "Content-Type": "application/json"},
            )
            try:
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    seen.append((answer.status, ""))
            except urllib.error.HTTPError as error:
                seen.append((error.code, json.load(error).get("code", "")))
                over.wait(float(error.headers.get("Retry-After") or 1))
            except (OSError, HTTPException):
                seen.append((0, ""))

    with psycopg.connect(at.database_url) as holder:
        holder.execute("SELECT 1 FROM nodes_node WHERE id = %s FOR UPDATE", [at.node])
        threads = [threading.Thread(target=ask, daemon=True) for _ in range(30)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(20)
            counted = {each: seen.count(each) for each in set(seen)}
            say(f"  the callers who want the node were told {counted}")
            # The server may have ended this session.
            try:
                holder.rollback()
            except psycopg.Error:
                say("  the server ended the session that held the node")


def hung(name: str, *, last: bool = False) -> Callable[[Stage], Any]:
    """A fault that stops the processes of a program, or the last of them alone."""

    @contextmanager
    def cause(at: Stage) -> Iterator[None]:
        found = program(at.home, name)
        stop(found[-1:] if last else found)
        yield

    return cause


FAULTS: dict[str, tuple[str, Callable[[Stage], Any]]] = {
    "senders": ("200 slow senders", slow_senders),
    "idle": ("5,000 idle connections", idle_connections),
    "lists": (f"16 readers of a list of {LONG_LIST:,} rows", long_lists),
    "node": ("a node's row held, 30 callers for it", held_node),
    "postgres": ("PostgreSQL hangs", hung("postgres")),
    "valkey": ("Valkey hangs", hung("valkey")),
    "web": ("one web process hangs", hung("web", last=True)),
    "worker": ("the worker hangs", hung("worker")),
    "beat": ("beat hangs", hung("beat")),
}


# Setting the stage


def set_stage(env: dict[str, str]) -> tuple[Stage, Prober]:
    """Organizations, keys, a node with a long list of reservations, and the prober."""
    from bench.__main__ import prepare

    ground = prepare(env)
    from django.db import connection

    from openrelay.audit.services.record import OPERATOR
    from openrelay.identity.services.keys import create_server_key
    from openrelay.identity.services.organizations import create_organization

    other = create_organization(actor=OPERATOR, name="Bystander", slug="bystander")
    _, bystander = create_server_key(
        actor=OPERATOR, organization_id=other.pk, name="prober", permissions=["compute.read"]
    )
    _, tenant = create_server_key(
        actor=OPERATOR,
        organization_id=ground.tenant,
        name="tenant",
        permissions=["compute.write", "provider.read", "sshkey.write"],
    )
    node, units = ground.nodes[0], ground.addresses[0]
    made = _post(
        ground.url,
        ground.token,
        f"/v1/nodes/{node}/reservations",
        {
            "unitIds": units[:2],
            "allowedOrgIds": [ground.tenant],
            "startsAt": "2101-01-01T00:00:00Z",
            "endsAt": "2101-01-01T01:00:00Z",
        },
    )
    multiply(connection, made["id"], LONG_LIST)
    stage = Stage(
        url=ground.url,
        home=env["OPENRELAY_HOME"],
        database_url=ground.database_url,
        operator=ground.token,
        tenant_key=tenant,
        tenant=ground.tenant,
        node=node,
        units=units,
    )
    return stage, Prober(ground.url, bystander, str(other.pk))


def multiply(connection: Any, hold_id: str, number: int) -> None:
    """Copies of a reservation, one term after the other."""
    later = "n * interval '2 hours'"
    term = f"tstzrange(lower(term) + {later}, upper(term) + {later})"
    copies: tuple[tuple[str, str, str, dict[str, str]], ...] = (
        ("nodes_hold", "id", "id", {"term": term}),
        ("nodes_holdaudience", "hold_id", "hold_id", {}),
        ("nodes_holdunit", "hold_id", "hold_id", {"term": term}),
        (
            "reservations_reservation",
            "hold_id",
            "hold_id",
            {"starts_at": f"starts_at + {later}", "ends_at": f"ends_at + {later}"},
        ),
    )
    with connection.cursor() as cursor:
        for table, renamed, which, changed in copies:
            cursor.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'public' "
                "AND table_name = %s AND is_identity = 'NO' ORDER BY ordinal_position",
                [table],
            )
            names = [name for (name,) in cursor.fetchall()]
            values = {renamed: f"md5(t.{renamed}::text || ':' || n)::uuid"} | changed
            cursor.execute(
                f"INSERT INTO {table} ({', '.join(names)}) "
                f"SELECT {', '.join(values.get(name, name) for name in names)} "
                f"FROM {table} t CROSS JOIN generate_series(1, %s) n WHERE {which} = %s",
                [number - 1, hold_id],
            )
        cursor.execute("ANALYZE")


def _post(url: str, token: str, path: str, body: dict[str, Any]) -> Any:
    asked = urllib.request.Request(
        url + path,
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)


def work_goes_on(at: Stage, since: float) -> float | None:
    """Seconds after which a worker did again what beat sent, waiting up to three minutes; None if it did not.

    `since` is a moment of the monotonic clock. Work that began before it does not count.
    """
    import psycopg

    while time.monotonic() - since < 180:
        try:
            with psycopg.connect(at.database_url, connect_timeout=5) as connection:
                connection.execute("SET statement_timeout = '5s'")
                row = connection.execute(
                    "SELECT extract(epoch FROM clock_timestamp() - at)::float8 FROM api_beat"
                ).fetchone()
            if row is not None and row[0] < time.monotonic() - since - 1:
                return time.monotonic() - since - float(row[0])
        except psycopg.Error:
            pass
        time.sleep(0.5)
    return None


def observe(name: str, at: Stage, prober: Prober, seconds: float) -> str:
    """Cause the fault, and describe what the prober saw as a row of a table."""
    what, cause = FAULTS[name]
    say(what)
    while settled(prober, time.monotonic() - SETTLED_SECONDS - 1) is None:
        time.sleep(0.5)
    began = time.monotonic()
    with cause(at):
        caused = time.monotonic()
        time.sleep(seconds)
        ended = time.monotonic()
    worked = work_goes_on(at, caused)
    lasting = "yes" if name in ("senders", "idle", "lists", "node") else "no"
    over = time.monotonic() if lasting == "yes" else began
    deadline = time.monotonic() + 180
    while (recovered := settled(prober, over)) is None and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(max(0.0, ended + PATIENCE_SECONDS + 1 - time.monotonic()))
    during = [answer for answer in prober.since(caused) if answer.asked < ended]
    good = [answer.seconds for answer in during if answer.status == 200]
    late = [answer for answer in during if answer.status == 200 and answer.seconds > 2]
    unavailable = sum(answer.status in (429, 503) for answer in during)
    nothing = sum(answer.status == 0 for answer in during)
    median = statistics.median(good) * 1000 if good else 0
    return (
        f"| {what} | {len(during)} | {len(good)} | {unavailable} | {nothing} | {median:.0f} ms | "
        f"{max(good, default=0):.2f} s | {len(late)} | "
        f"{_seconds(recovered)} | {_seconds(worked)} |"
    )


def _seconds(found: float | None) -> str:
    return "not within 180 s" if found is None else f"{found:.1f} s"


def main() -> None:
    """Run the faults that were named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m bench.outages", description=__doc__)
    parser.add_argument("faults", nargs="*", choices=[[], *FAULTS], help="which faults; all without any")
    parser.add_argument("--seconds", type=float, default=20, help="how long a fault lasts")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = []
    with stack.running() as env:
        at, prober = set_stage(env)
        prober.start()
        time.sleep(SETTLED_SECONDS)
        for name in options.faults or FAULTS:
            rows.append(observe(name, at, prober, options.seconds))
            say(rows[-1])
        prober.ended.set()
    columns = ("fault", "asked", "answered", "503 or 429", "no answer", "median", "slowest", "over 2 s")
    print(f"| {' | '.join((*columns, 'answers again', 'works again'))} |\n{'|---' * 10}|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
