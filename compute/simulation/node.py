"""A pretended host: it has no GPUs, but speaks to the control plane as an agent must.

It acts on what it is told alone, keeps its own memory of its guests, says of each explicitly what it is, and
never puts two guests on one unit, whatever it is asked.
"""

import dataclasses
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from nodes import levels

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
    workload_id: str = ""
    reboots: int = 0  # how many of those asked for it has had
    console: str = ""
    image: str = ""  # of a pod's container


@dataclass(slots=True)
class Memory:
    """What outlives the agent's process: the guests, as real ones would, disks, and the last sequence used.

    `disks` has the GB of each workload's disk. One outlives its guests, until it is said to be deleted.
    """

    sequence: int = 0
    guests: dict[str, Guest] = field(default_factory=dict)
    disks: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The memory as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Memory":
        """The memory that `as_json` gave."""
        guests = {key: Guest(**guest) for key, guest in data["guests"].items()}
        return cls(data["sequence"], guests, data.get("disks", {}))


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the pretended host behaves, from its entry in the credentials file. Times in seconds."""

    boot_seconds: float = 2.0
    stop_seconds: float = 1.0
    offline: bool = False  # says nothing
    fails_boots: bool = False  # every guest that it starts fails
    keeps_guests: bool = False  # tears nothing down
    loses_guests: bool = False  # every guest that runs is gone, though nobody asked for that
    fills_disk: bool = False  # has no room for another disk, and says so
    agent_level: int = levels.LATEST  # what the agent says it can do
    failed_gpus: frozenset[str] = frozenset()  # addresses of GPUs that it says have failed

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> "Behaviour":
        """The behaviour that a credentials entry asks for."""
        return cls(
            boot_seconds=float(entry.get("bootSeconds", 2.0)),
            stop_seconds=float(entry.get("stopSeconds", 1.0)),
            offline=bool(entry.get("offline", False)),
            fails_boots=bool(entry.get("failsBoots", False)),
            keeps_guests=bool(entry.get("keepsGuests", False)),
            loses_guests=bool(entry.get("losesGuests", False)),
            fills_disk=bool(entry.get("fillsDisk", False)),
            agent_level=int(entry.get("agentLevel", levels.LATEST)),
            failed_gpus=frozenset(entry.get("failedGpus", ())),
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
        self._epoch = str(uuid.uuid4())  # of this start of the agent
        self._inventory_at = self._report_at = float("-inf")
        self._last_report: tuple[list[dict[str, Any]], list[str]] | None = None
        self._told: dict[str, str] = {}  # the console of each guest as it was last sent
        self.configure(entry)

    def configure(self, entry: dict[str, Any]) -> None:
        """Take the host's entry in the credentials file; a new inventory is sent at the next turn."""
        self.behaviour = Behaviour.from_entry(entry)
        inventory: dict[str, Any] = _ailing(entry["inventory"], self.behaviour.failed_gpus)
        if self.behaviour.fills_disk:
            inventory = {**inventory, "host": {**inventory.get("host", {}), "diskFreeGb": 0}}
        if getattr(self, "inventory", None) != inventory:
            self._inventory_at = float("-inf")
        self.node_id: str = entry["nodeId"]
        self.inventory = inventory
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
            self._send_inventory()
            self._inventory_at = now
        self._reconcile(self._call("GET", "work")["runs"])
        self._progress()
        said = self._account(), sorted(self.memory.disks)
        if said != self._last_report or now - self._report_at >= self.REPORT_EVERY:
            self._report(*said)
            self._last_report, self._report_at = said, now

    def _report(self, guests: list[dict[str, Any]], disks: list[str]) -> None:
        """Say what there is, with consoles that are news, and do what the answer asks for."""
        consoles = {key: guest.console for key, guest in self.memory.guests.items()}
        news = {key for key, console in consoles.items() if console and self._told.get(key) != console}
        lines = [
            {**line, "console": consoles[line["runId"]]} if line["runId"] in news else line for line in guests
        ]
        body = {**self._next_place(), "complete": True, "guests": lines, "disks": disks}
        answer = self._call("POST", "reports", body)
        self._told = {key: told for key, told in self._told.items() if key in consoles}
        self._told |= {key: consoles[key] for key in news}
        for run_id in answer.get("tearDown", ()):
            self._stop(self.memory.guests.get(run_id))
        for workload_id in answer.get("deleteDisks", ()):
            if not self._live(workload_id):
                self.memory.disks.pop(workload_id, None)
                self._remember()

    def _send_inventory(self) -> None:
        """Say what the host has. A host that was removed has no say any more, but guests to tear down."""
        try:
            self._call("POST", "inventory", {**self.inventory, **self._next_place()})
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.BAD_REQUEST:
                raise
            if error.response.json().get("code") != "NODE_DECOMMISSIONED":
                raise

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
            elif guest is not None:
                self._reboot(guest, run.get("reboots", 0))

    def _start(self, run: dict[str, Any]) -> None:
        units = [unit["address"] for unit in run["units"]]
        taken = {unit for guest in self.memory.guests.values() if guest.state in LIVE for unit in guest.units}
        workload_id, spec = run.get("workloadId", run["runId"]), run.get("spec", {})
        # A disk is for one guest at a time, like a unit.
        if taken.intersection(units) or self._live(workload_id):
            return
        missing = set(units) - {unit["address"] for unit in self.inventory.get("units", ())}
        if missing:
            message = f"{', '.join(sorted(missing))} is not in this host"
            self._keep(Guest(run["runId"], "failed", [], message=message))
            return
        disks = self.memory.disks
        if workload_id not in disks and self.behaviour.fills_disk:
            message = "no space left on device"
            self._keep(Guest(run["runId"], "failed", [], message=message, workload_id=workload_id))
            return
        fresh = workload_id not in disks
        disks[workload_id] = max(spec.get("diskSizeGb", 0), disks.get(workload_id, 0))
        guest = Guest(
            run["runId"],
            "starting",
            units,
            self._clock() + self.behaviour.boot_seconds,
            workload_id=workload_id,
            reboots=run.get("reboots", 0),
            image=spec.get("imageUrl", "") if spec.get("kind") == "pod" else "",
        )
        self._keep(guest)
        if guest.image:
            self._write(guest, f"pulled {guest.image}")
            kept = "a new volume" if fresh else "the volume as it was"
            self._write(guest, f"{spec.get('volumeMountPath')} is {kept}, of {disks[workload_id]} GB")
        else:
            self._write(guest, f"booting {spec.get('name')} with a disk of {disks[workload_id]} GB")
        if fresh and spec.get("cloudInit"):
            self._write(guest, "first boot of this disk: cloud-init ran")

    def _reboot(self, guest: Guest, reboots: int) -> None:
        if guest.state != "running" or guest.reboots >= reboots:
            return
        guest.state, guest.due_at = "starting", self._clock() + self.behaviour.boot_seconds
        guest.reboots = reboots
        self._write(guest, "the container is made anew" if guest.image else "rebooting")

    def _live(self, workload_id: str) -> bool:
        return any(
            guest.state in LIVE and guest.workload_id == workload_id for guest in self.memory.guests.values()
        )

    def _write(self, guest: Guest, line: str) -> None:
        """Add a line to the guest's console, of which the tail is kept."""
        guest.console = f"{guest.console}{line}\n"[-8192:]
        self._remember()

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
                self._write(guest, "the container runs" if guest.image else "login:")
            elif guest.state == "stopping" or (guest.state == "running" and self.behaviour.loses_guests):
                guest.state = "gone"
            else:
                continue
            self._remember()

    def _account(self) -> list[dict[str, Any]]:
        said = []
        for guest in self.memory.guests.values():
            line: dict[str, Any] = {"runId": guest.run_id, "state": SPOKEN.get(guest.state, guest.state)}
            if guest.message:
                line["message"] = guest.message
            if guest.state in LIVE:
                line["sshReady"] = guest.state == "running"
                line["diskTotalBytes"] = self.memory.disks.get(guest.workload_id, 0) * 10**9
                line["diskUsedBytes"] = 2 * 10**9
            said.append(line)
        return said

    def _keep(self, guest: Guest) -> None:
        self.memory.guests[guest.run_id] = guest
        self._remember()

    def _next_place(self) -> dict[str, Any]:
        """The next report's place in the order: a count since this start, and never the host's clock."""
        self.memory.sequence += 1
        self._remember()
        return {"epoch": self._epoch, "sequence": self.memory.sequence}

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        response = self._http.request(
            method,
            f"{self._base_url}/v1/agent/{path}",
            json=body,
            headers={
                "Authorization": f"Bearer {self._credential}",
                levels.LEVEL_HEADER: str(self.behaviour.agent_level),
            },
        )
        if response.is_error:
            log.warning("node %s: %s %s: %s", self.node_id, method, path, response.text[:300])
            response.raise_for_status()
        answer: dict[str, Any] = response.json()
        if answer.get("flagged"):
            log.warning("node %s: its %s was flagged: %s", self.node_id, path, answer["flagged"])
        return answer


def _ailing(inventory: dict[str, Any], failed: frozenset[str]) -> dict[str, Any]:
    """The inventory with the GPUs at those addresses failed."""
    if not failed:
        return inventory

    def gpu(said: dict[str, Any]) -> dict[str, Any]:
        if said["address"] not in failed:
            return said
        return {**said, "healthy": False, "failure": said.get("failure") or "it fell off the bus"}

    units = [{**unit, "gpus": [gpu(each) for each in unit["gpus"]]} for unit in inventory.get("units", ())]
    return {**inventory, "units": units}
