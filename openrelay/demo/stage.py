"""Where the tour plays: its actors, the node it uses, and tidying up after it.

What a tour makes is named `tour-…`, so that what an interrupted one left behind is found by the next.
"""

import fcntl
import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from openrelay.demo.asking import Actor, Asking, Surprise, code_of, expect, told
from openrelay.demo.hardware import Hardware

LIVE = ("pending", "active", "needs-review")
GET = "reservations.get_node_reservation"


class Stage:
    """The demo of one home; `say` shows a line, `pause` is in seconds before each step."""

    def __init__(self, home: Path, say: Callable[[str], None], *, pause: float = 0.0) -> None:
        self.home = home
        self.say = say
        self.pause = pause
        self.demo = json.loads((home / "demo.json").read_text())
        self.hardware = Hardware(home)
        self.server = Asking(say)
        self.mark = f"tour-{uuid.uuid4().hex[:8]}"
        self.number = 0
        self.operator = Actor("operator", "operator", self.demo)
        self.desk = Actor("managing", "desk", self.demo)
        self.tenant = Actor("tenant", "tenant", self.demo)
        self.buyer = Actor("buyer", "buyer", self.demo)
        self.outsider = Actor("outsider", "outsider", self.demo)
        self.node = ""
        self.model = ""
        self.reservation = ""
        self.ended: set[str] = set()  # what claims of VMs that were tidied up are called

    # How it is told.

    def step(self, title: str) -> None:
        """Begin the next step."""
        self.number += 1
        self.say(f"\n{self.number:2}. {title}")
        time.sleep(self.pause)

    def sees(self, who: Actor, what: str) -> None:
        """Show what an actor was answered."""
        self.say(f"      {who.label:9} {what}")

    # What the steps have in common.

    def units(self, node: str = "") -> dict[str, Any]:
        """A node's units, by address, as the operator sees them."""
        rows = self.server.got(
            "reservations.list_reservation_units", node or self.node, client=self.operator.client
        )
        return {row.id: row for row in rows}

    def contract(self) -> Any:
        """The tour's reservation as the operator sees it."""
        return self.server.got(GET, self.node, self.reservation, client=self.operator.client)

    def vm(self, who: Actor, vm_id: str) -> Any:
        """A VM as its owner sees it."""
        return self.server.got("vms.get_vm", vm_id, client=who.client)

    def named(self, who: Actor, vm_id: str) -> str:
        """A VM as it is shown: its name says more to a reader than its id."""
        return f"VM {self.vm(who, vm_id).name}"

    def runs(self, who: Actor, vm_id: str) -> None:
        """Wait until the VM's guest runs."""
        self.server.until(f"VM {vm_id} starting to run", lambda: self.vm(who, vm_id).status == "running")

    def create_vm(self, who: Actor, name: str, **fields: Any) -> Any:
        """Ask for a VM of one GPU; returns the response. A repeat after a crash gets the same VM."""
        name = f"{self.mark}-{name}"
        body = self.server.model(
            "CreateVmRequest", name=name, ssh_key_ids=[who.ssh_key], gpu_count=1, **fields
        )
        return self.server.ask("vms.create_vm", who.org, client=who.client, body=body, idempotency_key=name)

    def claimed(self, vm_id: str) -> set[str]:
        """The units of the node that are a VM's."""
        return {unit.id for unit in self.units().values() if unit.claimed_by == f"vm:{vm_id}"}

    def had_by(self, who: Actor, model: str) -> Any:
        """What an actor may have of a GPU model; None when there is nothing of it."""
        rows = self.server.got("catalog.get_gpu_availability", client=who.client)
        return next((row for row in rows if row.gpu_model_id == model), None)

    def kept_off(self, who: Actor, answer: Any, units: set[str]) -> None:
        """See that a VM that was asked for was refused, or else that it is on none of those units."""
        if answer.status_code == 200:
            # Somebody else's VM ended just now, so that there was room after all.
            on = self.claimed(answer.parsed.id)
            expect(not on & units, f"{self.named(who, answer.parsed.id)} landed on {', '.join(on & units)}")
            self.sees(who, "was given a GPU that had just come free, and no reserved one")
            self.server.got("vms.terminate_vm", answer.parsed.id, client=who.client)
        else:
            refused = code_of(answer) == "INSUFFICIENT_GPU_CAPACITY"
            expect(refused, f"a VM that there is no room for was answered {told(answer)}")
            self.sees(who, told(answer))

    def availability(self, who: Actor) -> Any:
        """What an actor may have of the GPU model, shown and returned."""
        found = self.had_by(who, self.model)
        if found is None:
            raise Surprise(f"the {who.label}'s availability leaves out the GPU model {self.model}")
        seen = found.vm
        own = f", {seen.reserved_free_gpus} of them reserved to it" if seen.reserved_free_gpus else ""
        more = f"; {seen.spot_free_gpus} more, as spot only" if seen.spot_free_gpus else ""
        self.sees(who, f"may have {seen.free_gpus} of {seen.total_gpus} {found.name}{own}{more}")
        return seen

    # Before and after.

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep a second tour of this home from getting in the way of the first."""
        with (self.home / "tour.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Surprise("another tour is under way on this home; let it end first") from None
            yield

    def knock(self) -> None:
        """See whether anything answers at all, before a long wait for what was never started."""
        url = self.demo["baseUrl"]
        for _ in range(20):
            try:
                httpx.get(f"{url}/livez", timeout=5.0, trust_env=False)
                return
            except httpx.TransportError:
                time.sleep(0.5)
        raise Surprise(f"nothing answers at {url}. Start it with `make up`, then run the tour again")

    def tidy(self) -> None:
        """End what a tour made and did not end: this one, or one that was interrupted."""
        if self.hardware.restore():
            time.sleep(3)  # what the agent was just sending of it is to be over
        for node in self.demo["nodes"]["vm"]:
            for row in self.server.got(
                "reservations.list_node_reservations", node, client=self.operator.client
            ):
                if _of_a_tour(row.contract_ref) and row.status in LIVE:
                    self.server.done(
                        "reservations.cancel_node_reservation",
                        node,
                        row.id,
                        client=self.operator.client,
                        repeated=(409, "RESERVATION_ENDED"),
                    )
        for who in (self.tenant, self.buyer):
            for vm in self.live_vms(who):
                if _of_a_tour(vm.name):
                    self.server.got("vms.terminate_vm", vm.id, client=who.client)
                    self.ended.add(f"vm:{vm.id}")

    def live_vms(self, who: Actor) -> list[Any]:
        """All VMs of an actor's organization that have not ended."""
        found: list[Any] = []
        more: dict[str, str] = {}
        while True:
            page = self.server.got(
                "vms.list_org_vms", who.org, client=who.client, active_only=True, limit=100, **more
            )
            found += page.items
            if not page.next_cursor:
                return found
            more = {"cursor": page.next_cursor}

    def gone(self) -> bool:
        """Whether every guest of a VM that was tidied up has left its GPUs."""
        return not any(
            str(unit.claimed_by) in self.ended
            for node in self.demo["nodes"]["vm"]
            for unit in self.units(node).values()
        )

    def choose(self) -> tuple[str, str, str]:
        """Settle on a node and three of its units: nobody else's contract or VM is touched by the tour."""
        self.server.until("the end of what an earlier tour left", self.gone)
        chosen: list[str] = []

        def found() -> bool:
            for node in self.demo["nodes"]["vm"]:
                rows = self.server.got(
                    "reservations.list_node_reservations", node, client=self.operator.client
                )
                units = self.units(node)
                whole = self.hardware.units(node) <= units.keys()
                free = [
                    unit.id
                    for unit in units.values()
                    if unit.reservable and unit.state == "free" and unit.sellable_gpus == 1
                ]
                if whole and len(free) >= 3 and not any(row.status in LIVE for row in rows):
                    # A node whose agent has not been heard from yet has its units, and nobody may have them.
                    offered = self.had_by(self.outsider, units[free[0]].gpu_model_id)
                    if offered is None or offered.vm.free_gpus < len(free):
                        continue
                    self.node, self.model = node, units[free[0]].gpu_model_id
                    chosen[:] = [free[0], free[1], free[-1]]
                    return True
            return False

        self.server.until(
            "a VM node with three free one-GPU units and no reservation (end some VMs or cancel some "
            "reservations); it",
            found,
        )
        return chosen[0], chosen[1], chosen[2]


def _of_a_tour(name: object) -> bool:
    return isinstance(name, str) and name.startswith("tour-")
