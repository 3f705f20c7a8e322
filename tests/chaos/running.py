"""A whole OpenRelay in a home of its own, whose parts can be killed, and what its database says."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import httpx
import psycopg

from openrelay.embedded import processes
from openrelay.embedded.home import Home
from tests.support.web import ROOT

SUPERVISED = ("web", "worker", "beat", "agents", "postgres", "valkey")


class Whole:
    """The supervisor and all its children; `start` may be called again after the supervisor was killed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.terminal = home.parent / "terminal"
        self.supervisor: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        """Next to nothing: what OpenRelay needs, it has to find or make."""
        return {"PATH": os.defpath, "OPENRELAY_HOME": str(self.home)}

    def start(self) -> None:
        """Bring it up, and wait until it is ready."""
        with self.terminal.open("wb") as terminal:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-m", "openrelay.embedded"],
                cwd=ROOT,
                env=self.env,
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
            )
        self.until("it is ready", lambda: "OpenRelay is ready" in self.said(), 300)
        heard = "SELECT count(*) FROM nodes_nodeheartbeat WHERE seen_at > now() - interval '60 s'"
        self.until("every agent is heard", lambda: self.rows(heard) == [(len(self.nodes),)])

    @property
    def nodes(self) -> list[str]:
        """The ids of the demo's nodes."""
        return [node for nodes in self.demo["nodes"].values() for node in nodes]

    def said(self) -> str:
        """What it has said on its terminal since it was started."""
        return self.terminal.read_text()

    def stop(self) -> None:
        """End it in order; what does not end is killed."""
        if self.supervisor is None or self.supervisor.poll() is not None:
            return
        self.supervisor.send_signal(signal.SIGCONT)
        self.supervisor.send_signal(signal.SIGTERM)
        try:
            self.supervisor.wait(120)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()
            self.supervisor.wait()

    def until(self, what: str, holds: Callable[[], bool], seconds: float = 180) -> None:
        """Wait until `holds`; fails with what the supervisor said."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert self.supervisor is not None
            assert self.supervisor.poll() is None, self.said()
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{self.said()}"
            time.sleep(0.1)

    def ready(self) -> bool:
        """Whether all of it says that it is well."""
        url = f"{self.settings['BASE_URL']}/readyz"
        try:
            return httpx.get(url, timeout=15, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    @property
    def settings(self) -> dict[str, str]:
        """What it leaves for commands beside it."""
        lines = (self.home / "run.env").read_text().splitlines()
        return {name: value.strip("'") for name, _, value in (line.partition("=") for line in lines)}

    @property
    def demo(self) -> dict[str, Any]:
        """What `make up` tells of the demo."""
        found: dict[str, Any] = json.loads((self.home / "demo.json").read_text())
        return found

    def children(self) -> dict[str, int]:
        """The pids that the supervisor wrote down and that are still those processes, by name."""
        state = json.loads((self.home / "state.json").read_text())
        return {
            each["name"]: each["pid"]
            for each in state["processes"]
            if processes.born(each["pid"]) == each["born"]
        }

    def kill(self, name: str, random: Random) -> bool:
        """Kill -9 a child, or for "request" one of the processes in which the web answers requests."""
        pid = self.children().get("web" if name == "request" else name)
        if pid is None:
            return False
        try:
            if name == "request":
                workers = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                if not workers:
                    return False
                pid = int(random.choice(workers))
            os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return True

    def kill_supervisor(self) -> None:
        """Kill -9 the supervisor alone: its children live on, unseen."""
        assert self.supervisor is not None
        self.supervisor.kill()
        self.supervisor.wait()

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a management command beside it, to its end."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def tour(self, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a tour that writes to `log`."""
        with log.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "manage.py", "tour", *arguments],
                cwd=ROOT,
                env=self.env,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """What the database answers."""
        with psycopg.connect(self.settings["DATABASE_URL"], autocommit=True) as connection:
            return connection.execute(statement, values).fetchall()  # type: ignore[arg-type]

    def caller(self, role: str) -> httpx.Client:
        """A client with a demo actor's key."""
        return httpx.Client(
            base_url=self.demo["baseUrl"],
            headers={"Authorization": f"Bearer {self.demo['keys'][role]}"},
            timeout=30,
            trust_env=False,
        )


W = TypeVar("W", bound=Whole)


@contextmanager
def living(make: Callable[[Path], W]) -> Iterator[W]:
    """What `make` makes of an empty home, started; in the end it is stopped and its home is gone."""
    folder = Path(tempfile.mkdtemp(prefix="openrelay-whole-"))
    whole = make(folder / "home")
    try:
        whole.start()
        yield whole
    finally:
        whole.stop()
        Home(whole.home).destroy()
        shutil.rmtree(folder)
