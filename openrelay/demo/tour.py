"""A walk through the whole promise against a running server, by the published client, as each actor sees it.

Every answer is compared with what it should be; the first surprise ends the tour. What a server that is being
restarted does not answer is asked again, so a tour survives a crash of anything but itself.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx

from openrelay import sdk

PATIENCE = 90.0  # seconds that a server may be away, or a guest may take


class Surprise(Exception):
    """An answer that is not what it should be."""


class Actor:
    """One caller: a name for the screen, a key, and the client with that key."""

    def __init__(self, name: str, demo: dict[str, Any]) -> None:
        self.name = name
        self.org: str = demo["orgs"][name]
        client_module = sdk.load().AuthenticatedClient
        self.client = client_module(base_url=demo["baseUrl"], token=demo["keys"][name])

    def with_key(self, key: str) -> Any:
        """The client with an Idempotency-Key, for a request that must not be done twice."""
        return self.client.with_headers({"Idempotency-Key": key})


class Tour:
    """The story, step by step; `say` shows a line."""

    def __init__(self, home: Path, say: Callable[[str], None], *, pause: float = 0.0) -> None:
        self.home = home
        self.say = say
        self.pause = pause
        self.demo = json.loads((home / "demo.json").read_text())
        self.sdk = sdk.load()
        self.mark = f"tour-{uuid.uuid4().hex[:8]}"
        self.number = 0
        self.operator = Actor("operator", self.demo)
        self.provider = Actor("provider", self.demo)
        self.managing = Actor("managing", self.demo)
        self.tenant = Actor("tenant", self.demo)
        self.buyer = Actor("buyer", self.demo)
        self.outsider = Actor("outsider", self.demo)
        self.node: str = self.demo["nodes"]["vm"][0]

    # The parts of the client, by name, and how its answers are read.

    def api(self, path: str) -> ModuleType:
        """One operation of the client, such as `vms.create_vm`."""
        group, name = path.split(".")
        module = __import__(f"{sdk.NAME}.api.{group}.{name}", fromlist=["_"])
        return module

    def model(self, kind: str, /, **fields: Any) -> Any:
        """One of the client's request models."""
        return getattr(self.sdk.models, kind)(**fields)

    def ask(self, path: str, *args: Any, client: Any, **fields: Any) -> Any:
        """Call an operation until the server answers it; returns the client's response."""
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                answer = self.api(path).sync_detailed(*args, client=client, **fields)
            except httpx.TransportError as error:
                if time.monotonic() > give_up:
                    raise Surprise(f"{path} was not answered for {PATIENCE:.0f} s: {error}") from error
                time.sleep(0.5)
                continue
            if int(answer.status_code) in (500, 502, 504) and time.monotonic() < give_up:
                time.sleep(0.5)
                continue
            return answer

    def got(self, path: str, *args: Any, client: Any, **fields: Any) -> Any:
        """Call an operation that must succeed; returns what it answered, parsed."""
        answer = self.ask(path, *args, client=client, **fields)
        self.expect(
            int(answer.status_code) in (200, 204), f"{path} answered {answer.status_code}: {answer.content!r}"
        )
        return answer.parsed

    def refused(self, path: str, *args: Any, client: Any, status: int, code: str, **fields: Any) -> Any:
        """Call an operation that must be refused with that status and code; returns the client's Error."""
        answer = self.ask(path, *args, client=client, **fields)
        found = json.loads(answer.content).get("code")
        self.expect(
            (int(answer.status_code), found) == (status, code),
            f"{path} answered {answer.status_code} {found}, and should have refused with {status} {code}",
        )
        self.say(f"      {status} {code}: {json.loads(answer.content)['error']}")
        return answer.parsed

    def expect(self, holds: bool, otherwise: str) -> None:
        """End the tour with `otherwise` unless `holds`."""
        if not holds:
            raise Surprise(otherwise)

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until `holds`, at most PATIENCE seconds."""
        give_up = time.monotonic() + PATIENCE
        while not holds():
            self.expect(time.monotonic() < give_up, f"{what} did not happen within {PATIENCE:.0f} s")
            time.sleep(0.25)

    def step(self, title: str) -> None:
        """Begin the next step."""
        self.number += 1
        self.say(f"\n{self.number:2}. {title}")
        time.sleep(self.pause)

    # What the steps have in common.

    def units(self) -> dict[str, Any]:
        """The node's units, by address, as the operator sees them."""
        rows = self.got("reservations.list_reservation_units", self.node, client=self.operator.client)
        return {row.id: row for row in rows}

    def create_vm(self, who: Actor, name: str, **fields: Any) -> Any:
        """Ask for a VM of one GPU; returns the response. Asked again after a crash, it is the same VM."""
        owner = "tenant" if who.name not in self.demo["sshKeys"] else who.name
        body = self.model(
            "CreateVmRequest",
            name=f"{self.mark}-{name}",
            ssh_key_ids=[self.demo["sshKeys"][owner]],
            gpu_count=1,
            **fields,
        )
        key = f"{self.mark}-{name}"
        answer = self.ask("vms.create_vm", who.org, client=who.client, body=body, idempotency_key=key)
        while answer.status_code == 409 and b"IDEMPOTENCY_KEY_IN_USE" in answer.content:
            time.sleep(1)
            answer = self.ask("vms.create_vm", who.org, client=who.client, body=body, idempotency_key=key)
        return answer

    def vm(self, who: Actor, vm_id: str) -> Any:
        """A VM as its owner sees it."""
        return self.got("vms.get_vm", vm_id, client=who.client)

    def availability(self, who: Actor, model: str) -> Any:
        """What an actor may have of a GPU model."""
        rows = self.got("catalog.get_gpu_availability", client=who.client)
        found = next((row for row in rows if row.gpu_model_id == model), None)
        self.expect(found is not None, f"{who.name} does not see the GPU model at all")
        return found.vm  # type: ignore[union-attr]

    def show_availability(self, who: Actor, model: str) -> Any:
        """Show what an actor may have of a GPU model, and return it."""
        seen = self.availability(who, model)
        reserved = seen.reserved_free_gpus or 0
        self.say(
            f"      {who.name:9} free {seen.free_gpus}, of these reserved to it {reserved}, "
            f"more as spot {seen.spot_free_gpus or 0}, in all {seen.total_gpus}"
        )
        return seen

    @contextmanager
    def changed_hardware(self) -> Iterator[None]:
        """Have the node's agent find its last unit gone, and put it back afterwards."""
        path = self.home / "agents.json"
        agents = json.loads(path.read_text())
        entry = next(entry for entry in agents if entry["nodeId"] == self.node)
        whole = entry["inventory"]["units"]
        _write(path, agents, entry, whole[:-1])
        try:
            yield
        finally:
            _write(path, agents, entry, whole)

    def clean(self) -> None:
        """End what an earlier tour that was interrupted left behind."""
        rows = self.got("reservations.list_node_reservations", self.node, client=self.operator.client)
        for row in rows:
            if str(row.contract_ref or "").startswith("tour-") and row.status in (
                "active",
                "pending",
                "needs-review",
            ):
                self.ask(
                    "reservations.cancel_node_reservation", self.node, row.id, client=self.operator.client
                )
        for who in (self.tenant, self.buyer):
            page = self.got("vms.list_org_vms", who.org, client=who.client, active_only=True, limit=100)
            for vm in page.items:
                if vm.name.startswith("tour-"):
                    self.ask("vms.terminate_vm", vm.id, client=who.client)
        self.until(
            "the end of what an earlier tour left",
            lambda: all(unit.state == "free" for unit in self.units().values() if unit.reservable),
        )

    def run(self) -> None:
        """The whole story. Raises Surprise at the first answer that is not what it should be."""
        self.clean()

        self.step("An operator lists the GPU units of a node")
        units = self.units()
        for unit in units.values():
            self.say(f"      {unit.id}  {unit.gpu_model_name}  {unit.alloc_class}  {unit.state}")
        mine, other = [address for address, unit in units.items() if unit.reservable][:2]
        model = units[mine].gpu_model_id
        before = self.availability(self.outsider, model)

        self.step(f"and reserves {mine} and {other} for a tenant, for good, managed by a capacity desk")
        body = self.model(
            "CreateNodeReservationRequest",
            unit_ids=[mine, other],
            allowed_org_ids=[self.tenant.org],
            managing_org_ids=[self.managing.org],
            contract_ref=self.mark,
            reason="a tour",
        )
        made = self.got(
            "reservations.create_node_reservation",
            self.node,
            client=self.operator.with_key(f"{self.mark}-reserve"),
            body=body,
        )
        self.say(f"      reservation {made.id} is {made.status}, at topology generation {made.topology_gen}")
        self.expect(made.status == "active", f"the reservation is {made.status}")
        self.expect(
            self.demo["orgs"]["platform"] in made.allowed_org_ids, "the operators are not in the audience"
        )

        self.step("Who sees what of it")
        seen = self.show_availability(self.tenant, model)
        self.expect(seen.reserved_free_gpus == 2, "the tenant does not see its two GPUs as reserved to it")
        without = self.show_availability(self.outsider, model)
        self.expect(
            without.free_gpus == before.free_gpus - 2 and without.total_gpus == before.total_gpus - 2,
            "the outsider still counts the reserved GPUs",
        )
        self.refused(
            "reservations.get_node_reservation",
            self.node,
            made.id,
            client=self.outsider.client,
            status=404,
            code="NOT_FOUND",
        )

        self.step("Nobody can reserve them a second time")
        self.refused(
            "reservations.create_node_reservation",
            self.node,
            client=self.operator.client,
            body=self.model(
                "CreateNodeReservationRequest",
                unit_ids=[other],
                allowed_org_ids=[self.outsider.org],
                contract_ref=self.mark,
            ),
            status=409,
            code="RESERVATION_OVERLAP",
        )

        self.step(f"{mine} is idle: the capacity desk releases it to the spot market")
        released = self.got(
            "reservations.release_reservation_units",
            self.node,
            made.id,
            client=self.managing.client,
            body=self.model("ReservationUnitsRequest", unit_ids=[mine], reason="idle this week"),
        )
        self.expect(released.released_unit_ids == [mine], f"released are {released.released_unit_ids}")
        seen = self.show_availability(self.buyer, model)
        self.expect(seen.free_gpus == without.free_gpus, "a released unit counts as free for everybody")
        self.expect(
            seen.spot_free_gpus == (without.spot_free_gpus or 0) + 1, "the released unit is not on sale"
        )

        self.step("A buyer takes all that is for sale as spot; one VM lands on the released unit")
        spot = self.buy_until_on(mine, model)
        self.until("the spot VM running", lambda: self.vm(self.buyer, spot).status == "running")
        self.say(f"      VM {spot} runs on {mine}; its owner may take it back at any moment")

        self.step("An ordinary request never lands on reserved units")
        refused = self.create_vm(self.outsider_buyer(), "ordinary", gpu_model_id=model, tier="community")
        self.expect(
            refused.status_code == 503,
            f"an ordinary VM was answered {refused.status_code}: {refused.content!r}",
        )
        self.say(f"      503 {json.loads(refused.content)['code']}: {json.loads(refused.content)['error']}")

        self.step("The desk asks first what taking the unit back would do")
        dry = self.got(
            "reservations.reclaim_reservation_units",
            self.node,
            made.id,
            client=self.managing.client,
            body=self.model("ReservationReclaimRequest", unit_ids=[mine], dry_run=True),
        )
        self.say(f"      would terminate {dry.would_terminate}, would skip {dry.would_skip}")
        self.expect(dry.would_terminate == [spot] and dry.would_skip == [], "the dry run names somebody else")
        self.expect(self.vm(self.buyer, spot).status == "running", "a dry run ended the VM")

        self.step("and takes it back")
        self.reclaim(made.id, mine, spot)

        self.step("The buyer is told why")
        ended = self.vm(self.buyer, spot)
        self.say(f"      VM {spot} is {ended.status}: {ended.status_reason}")
        self.expect(
            (ended.status, ended.status_reason) == ("terminated", "spot_reclaimed_by_capacity_owner"),
            f"the VM is {ended.status}: {ended.status_reason}",
        )
        self.until("the unit free", lambda: self.units()[mine].state == "free")

        self.step("The tenant names the node and has its GPU")
        own = self.create_vm(self.tenant, "own", gpu_model_id=model, node_id=self.node)
        self.expect(own.status_code == 200, f"the tenant was answered {own.status_code}: {own.content!r}")
        self.until("the tenant's VM running", lambda: self.vm(self.tenant, own.parsed.id).status == "running")
        on = [unit.id for unit in self.units().values() if unit.claimed_by == f"vm:{own.parsed.id}"]
        self.say(f"      VM {own.parsed.id} runs on {', '.join(on)}")
        self.expect(set(on) <= {mine, other}, f"the tenant's VM is on {on}, which is not reserved to it")

        self.review(made, own.parsed.id)

        self.step("The operator cancels the reservation; what runs goes on running")
        self.cancel(made.id)
        self.expect(self.vm(self.tenant, own.parsed.id).status == "running", "cancelling ended a workload")

        self.step("Everybody tidies up, and all is as it was")
        self.clean()
        after = self.show_availability(self.outsider, model)
        self.expect(
            (after.free_gpus, after.total_gpus) == (before.free_gpus, before.total_gpus),
            "what is free is not what it was",
        )

    def outsider_buyer(self) -> Actor:
        """Somebody without any right here who has an SSH key: the buyer, asking for an ordinary VM."""
        return self.buyer

    def buy_until_on(self, address: str, model: str) -> str:
        """Buy spot VMs until no more are to be had; returns the one on `address`."""
        for number in range(64):
            answer = self.create_vm(self.buyer, f"spot-{number}", gpu_model_id=model, tier="spot")
            if answer.status_code == 503:
                break
            self.expect(
                answer.status_code == 200, f"a spot VM was answered {answer.status_code}: {answer.content!r}"
            )
        holder = self.units()[address].claimed_by
        self.expect(bool(holder), f"no spot VM landed on {address}")
        return str(holder).removeprefix("vm:")

    def reclaim(self, reservation: str, address: str, spot: str) -> None:
        """Take the unit back; after a crash in the middle, the repeat finds it done."""
        done = self.got(
            "reservations.reclaim_reservation_units",
            self.node,
            reservation,
            client=self.managing.client,
            body=self.model("ReservationReclaimRequest", unit_ids=[address], reason="the tenant needs it"),
        )
        self.say(f"      terminated {done.terminated}, skipped {done.skipped}")
        self.expect(done.terminated in ([spot], []) and done.skipped == [], "somebody else was ended")
        self.expect(done.released_unit_ids == [], "the unit is still released")

    def review(self, made: Any, own: str) -> None:
        """The hardware changes under the reservation, and an operator settles it."""
        get = "reservations.get_node_reservation"
        with self.changed_hardware():
            self.step("A unit of the node vanishes: every reservation there needs review")
            self.until(
                "needs-review",
                lambda: (
                    self.got(get, self.node, made.id, client=self.operator.client).status == "needs-review"
                ),
            )
            self.say("      in review it grants nothing and withholds its units from everyone")
            answer = self.create_vm(self.tenant, "in-review", node_id=self.node)
            self.expect(answer.status_code == 503, f"in review the tenant was answered {answer.status_code}")
            self.expect(self.vm(self.tenant, own).status == "running", "a review ended a workload")

            self.step("An operator looks, and re-affirms it on the hardware as it is now")
            self.reaffirm(made.id)
        self.step("The unit comes back, which is a change too, and is affirmed as well")
        self.until(
            "needs-review",
            lambda: self.got(get, self.node, made.id, client=self.operator.client).status == "needs-review",
        )
        self.reaffirm(made.id)

    def reaffirm(self, reservation: str) -> None:
        """Re-affirm; after a crash in the middle, the repeat has nothing left to change."""
        body = self.model("UpdateNodeReservationRequest", reaffirm=True)
        self.ask(
            "reservations.update_node_reservation",
            self.node,
            reservation,
            client=self.operator.client,
            body=body,
        )
        now = self.got(
            "reservations.get_node_reservation", self.node, reservation, client=self.operator.client
        )
        self.say(f"      it is {now.status} again, at generation {now.topology_gen}")
        self.expect(now.status == "active", f"after re-affirming it is {now.status}")

    def cancel(self, reservation: str) -> None:
        """Cancel; after a crash in the middle, the repeat is told that it has ended."""
        self.ask("reservations.cancel_node_reservation", self.node, reservation, client=self.operator.client)
        ended = self.got(
            "reservations.get_node_reservation", self.node, reservation, client=self.operator.client
        )
        self.say(f"      it is {ended.status}")
        self.expect(ended.status == "cancelled", f"after cancelling it is {ended.status}")


def _write(path: Path, agents: list[dict[str, Any]], entry: dict[str, Any], units: list[Any]) -> None:
    """Give one agent those units, in one step: an agent never reads half a file."""
    entry["inventory"]["units"] = units
    draft = path.with_name(f".{path.name}.tour")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(agents, indent=2))
    draft.replace(path)
