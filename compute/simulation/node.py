"""A pretended host: it has no GPUs, but speaks to the control plane as an agent must.

It acts on what it is told alone, keeps its own memory of its guests, says of each explicitly what it is, and
never puts two guests on one unit, whatever it is asked.
"""

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

log = logging.getLogger(__name__)

LIVE: Final = ("starting", "running", "stopping")
# What the control plane calls each of the host's own states.
SPOKEN: Final = {"stopping": "running"}


@dataclass(slots=True)
class Guest:
    """One guest. `due_at` is when a starting or stopping one is done, in seconds since the epoch."""

    run_id: str
    state: str
    units: list[str]
    due_at: float = 0.0
    message: str = ""


@dataclass(slots=True)
class Memory:
    """What outlives the agent's process: the guests, as real ones would, and the last sequence used."""

    sequence: int = 0
    guests: dict[str, Guest] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The memory as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Memory":
        """The memory that `as_json` gave."""
        return cls(data["sequence"], {key: Guest(**guest) for key, guest in data["guests"].items()})


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the pretended host behaves, from its entry in the credentials file. Times in seconds."""

    boot_seconds: float = 2.0
    stop_seconds: float = 1.0
    offline: bool = False  # says nothing
    fails_boots: bool = False  # every guest that it starts fails
    keeps_guests: bool = False  # tears nothing down

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> "Behaviour":
        """The behaviour that a credentials entry asks for."""
        return cls(
            boot_seconds=float(entry.get("bootSeconds", 2.0)),
            stop_seconds=float(entry.get("stopSeconds", 1.0)),
            offline=bool(entry.get("offline", False)),
            fails_boots=bool(entry.get("failsBoots", False)),
            keeps_guests=bool(entry.get("keepsGuests", False)),
        )


class SimulatedNode:
    """The agent of one pretended host."""

    INVENTORY_EVERY = 60.0
    REPORT_EVERY = 5.0

    def __init__(
        self,
        entry: dict[str, Any],
        memory: Memory,
        *,
        http: httpx.Client,
        base_url: str,
        clock: Callable[[], float],
        remember: Callable[[], None],
    ) -> None:
        self.memory = memory
        self._http = http
        self._default_base_url = base_url
        self._clock = clock
        self._remember = remember
        self._inventory_at = self._report_at = float("-inf")
        self._last_report: list[dict[str, str]] | None = None
        self.configure(entry)

    def configure(self, entry: dict[str, Any]) -> None:
        """Take the host's entry in the credentials file; a new inventory is sent at the next turn."""
        if getattr(self, "inventory", None) != entry["inventory"]:
            self._inventory_at = float("-inf")
        self.node_id: str = entry["nodeId"]
        self.inventory: dict[str, Any] = entry["inventory"]
        self.behaviour = Behaviour.from_entry(entry)
        self._credential: str = entry["credential"]
        self._base_url: str = entry.get("baseUrl") or self._default_base_url

    def turn(self) -> None:
        """Send the inventory when it is due, ask for the work, do what is due, and say what became of it.

        Raises httpx.HTTPError when the control plane cannot be spoken to; the guests are as they were then.
        """
        self._progress()
        if self.behaviour.offline:
            return
        now = self._clock()
        if now - self._inventory_at >= self.INVENTORY_EVERY:
            self._call("POST", "inventory", {**self.inventory, "sequence": self._next_sequence()})
            self._inventory_at = now
        self._reconcile(self._call("GET", "work")["runs"])
        self._progress()
        said = self._account()
        if said != self._last_report or now - self._report_at >= self.REPORT_EVERY:
            report = {"sequence": self._next_sequence(), "complete": True, "guests": said}
            answer = self._call("POST", "reports", report)
            self._last_report, self._report_at = said, now
            for run_id in answer.get("tearDown", ()):
                self._stop(self.memory.guests.get(run_id))

    def _reconcile(self, runs: list[dict[str, Any]]) -> None:
        guests = self.memory.guests
        wanted = {run["runId"]: run for run in runs}
        for run_id in [key for key, guest in guests.items() if guest.state not in LIVE and key not in wanted]:
            # The control plane has heard of its end; nobody will ask again.
            del guests[run_id]
            self._remember()
        for run_id, run in wanted.items():
            guest = guests.get(run_id)
            if run["desired"] == "gone":
                if guest is None:
                    self._keep(Guest(run_id, "never-started", []))
                else:
                    self._stop(guest)
            elif guest is None and not run["waitsFor"]:
                self._start(run)

    def _start(self, run: dict[str, Any]) -> None:
        units = [unit["address"] for unit in run["units"]]
        taken = {unit for guest in self.memory.guests.values() if guest.state in LIVE for unit in guest.units}
        if taken.intersection(units):
            return
        missing = set(units) - {unit["address"] for unit in self.inventory.get("units", ())}
        if missing:
            message = f"{', '.join(sorted(missing))} is not in this host"
            self._keep(Guest(run["runId"], "failed", [], message=message))
            return
        self._keep(Guest(run["runId"], "starting", units, self._clock() + self.behaviour.boot_seconds))

    def _stop(self, guest: Guest | None) -> None:
        if guest is None or guest.state not in ("starting", "running") or self.behaviour.keeps_guests:
            return
        guest.state, guest.due_at = "stopping", self._clock() + self.behaviour.stop_seconds
        self._remember()

    def _progress(self) -> None:
        """Let time pass for guests that start or stop."""
        for guest in self.memory.guests.values():
            if guest.due_at > self._clock():
                continue
            if guest.state == "starting" and self.behaviour.fails_boots:
                guest.state, guest.message = "failed", "the guest did not boot"
            elif guest.state == "starting":
                guest.state = "running"
            elif guest.state == "stopping":
                guest.state = "gone"
            else:
                continue
            self._remember()

    def _account(self) -> list[dict[str, str]]:
        said = []
        for guest in self.memory.guests.values():
            line = {"runId": guest.run_id, "state": SPOKEN.get(guest.state, guest.state)}
            said.append({**line, "message": guest.message} if guest.message else line)
        return said

    def _keep(self, guest: Guest) -> None:
        self.memory.guests[guest.run_id] = guest
        self._remember()

    def _next_sequence(self) -> int:
        # By the clock, so that a host whose memory was lost is not taken for an old one.
        self.memory.sequence = max(self.memory.sequence + 1, int(self._clock() * 1000))
        self._remember()
        return self.memory.sequence

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        response = self._http.request(
            method,
            f"{self._base_url}/v1/agent/{path}",
            json=body,
            headers={"Authorization": f"Bearer {self._credential}"},
        )
        if response.is_error:
            log.warning("node %s: %s %s: %s", self.node_id, method, path, response.text[:300])
            response.raise_for_status()
        answer: dict[str, Any] = response.json()
        if answer.get("flagged"):
            log.warning("node %s: its %s was flagged: %s", self.node_id, path, answer["flagged"])
        return answer
