"""The model: VMs and pods that customers ask for."""

from collections.abc import Collection

from tests.histories.facts import (
    OPERATORS,
    POD,
    VM,
    Given,
    Node,
    Placed,
    Run,
    Seen,
    Wish,
    Workload,
    require,
)
from tests.histories.money import NO_BALANCE, Money
from tests.histories.placing import NO_HOST, TOO_LARGE, Rooms
from tests.histories.rights import MALFORMED, MARKET, OPEN, Fault, Room

UNKNOWN: Fault = (400, "UNKNOWN_NODE")
REMOVED: Fault = (400, "NODE_DECOMMISSIONED")
NO_SIZE: Fault = (400, "RESOURCE_SIZE_NOT_APPLICABLE")


class Creating(Money):
    """Creating workloads."""

    def create(self, seen: Seen, who: str, org: str, wish: Wish, *, key: str | None = None) -> None:
        if self.gate(seen, who, "compute.create", org=org):
            return
        asked = ("create", org, wish)
        if self.kept_answer(seen, who, key, asked):
            return
        node = self.nodes.get(wish.node) if wish.node is not None else None
        faults = self._malformed(org, wish)
        if wish.node is not None and (node is None or not self.may_name(org, node)):
            faults.append(UNKNOWN)
        elif node is not None and node.removed:
            faults.append(REMOVED)
        if faults:
            seen.refused(faults + self.barred(org))
        elif not wish.count:
            self._create_cpu(seen, who, org, wish, node, key, asked)
        else:
            self._create(seen, who, org, wish, node, key, asked)

    def _malformed(self, org: str, wish: Wish) -> list[Fault]:
        """What of the request can never be, whatever the fleet."""
        faults = []
        if self.ssh_keys.get(wish.ssh_key, ("", 0))[0] != org:
            faults.append(MALFORMED)
        if wish.node is not None and (wish.regions or wish.fallback):
            faults.append(MALFORMED)
        if set(wish.regions) - self.regions:
            faults.append(MALFORMED)
        if wish.template is not None and not self._suits(wish):
            faults.append(MALFORMED)
        if wish.size and wish.count:
            faults.append(NO_SIZE)
        if not wish.count and (wish.size not in self.sizes or wish.memory or wish.model):
            faults.append(MALFORMED)
        return faults

    def _suits(self, wish: Wish) -> bool:
        """Whether the template is one to start from, and suits the GPUs; which these are has to be told where
        it suits some alone.
        """
        template = self.templates.get(wish.template or "")
        if template is None or not template.offered:
            return False
        if not wish.count:
            return not template.needs_gpu
        return template.models is None or wish.model in template.models

    def _create(
        self, seen: Seen, who: str, org: str, wish: Wish, node: Node | None, key: str | None, asked: object
    ) -> None:
        if node is None:
            rooms, where = self.rooms_in_pool(org, wish), list(self.nodes.values())
            where = [one for one in where if self.suits(one, wish)]
        else:
            rooms = self.rooms_here(node, org, wish) if self._names_now(org, node.id) else Rooms()
            where = [node]
        full = self.no_room(where, org, wish, rooms)
        if barred := self.barred_from(rooms, org, wish, node):
            # That it could never be may be told as well; that there is no room now only where it could have
            # been free of charge.
            unpaid = node is not None and node.owner == org and barred == [NO_BALANCE]
            also = [] if rooms.found else [fault for fault in full if unpaid or fault[0] == 400]
            seen.refused(barred + also)
            return
        # Of three at once, the first may take what was left where the second had not looked.
        overtaken = self.racing > 2 and node is None and seen.refusal in full
        if (overtaken or rooms.unsure) and seen.refusal in full:
            return
        if seen.refused([] if rooms.found else full):
            return
        placed = self._placed(seen, seen.body["id"], 1)
        room = self._one_of(rooms.found, placed)
        workload = self._made(seen, org, wish, placed, rooms.found[room])
        self._settle(workload, room, placed, 1, named=node is not None)
        earlier = [run for run in self.open_runs(placed.node, placed.units) if run.id != placed.run]
        workload.status = "pending" if earlier else "deploying"
        require(seen.body["status"] == workload.status, f"it reads {seen.body['status']}")
        if wish.kind == POD:
            self.connect(self.nodes[placed.node], org, workload.id)
        self.keep(seen, who, key, asked)

    def _create_cpu(
        self, seen: Seen, who: str, org: str, wish: Wish, node: Node | None, key: str | None, asked: object
    ) -> None:
        """A VM without GPUs goes wherever new work is taken and there is room."""
        nodes = [one for one in self.nodes.values() if self.suits(one, wish)] if node is None else [node]
        named = node is not None
        rooms = self.cpu_rooms(nodes, org, wish, named=named)
        if node is not None and not self._names_now(org, node.id):
            rooms = []
        full = NO_HOST if self.cpu_could(nodes, self.size_of(wish)) else TOO_LARGE[VM]
        if barred := self.barred(org):
            seen.refused(barred if rooms or full == NO_HOST else [*barred, full])
            return
        if seen.refused([] if rooms else [full]):
            return
        placed = self._placed(seen, seen.body["id"], 1)
        self._one_of(rooms, placed)
        workload = self._made(seen, org, wish, placed, self.size_of(wish))
        workload.status = "deploying"
        self.workloads[workload.id] = workload
        self.begin_run(workload, placed, 1)
        self.keep(seen, who, key, asked)

    def _made(self, seen: Seen, org: str, wish: Wish, placed: Placed, given: Given) -> Workload:
        node = self.nodes[placed.node]
        return Workload(
            id=seen.body["id"],
            org=org,
            kind=wish.kind,
            tier=wish.tier,
            count=wish.count,
            model=node.units[min(placed.units)].model if wish.count else wish.size,
            node=node.id,
            created=self.now,
            status="",
            keys={wish.ssh_key},
            asked=wish,
            given=given,
            requested=(wish.memory or given.memory) if wish.count and wish.kind == VM else None,
        )

    # What they share with those that are started again

    def begin_run(self, workload: Workload, placed: Placed, number: int) -> None:
        self.runs[placed.run] = Run(placed.run, workload.id, placed.node, number, placed.units)

    def end(self, workload: Workload, status: str, reason: str) -> None:
        """The workload stops, fails or is terminated: its right goes at once, its guest is to go."""
        workload.status, workload.reason, workload.lost = status, reason, False
        self.close_bill(workload)
        workload.claims = {}
        for run in self.runs_of(workload):
            if run.open:
                run.wanted = False

    def _names_now(self, org: str, node_id: str) -> bool:
        """Whether the right to name the node is not one of a reservation in review alone."""
        node = self.nodes[node_id]
        return org in (OPERATORS, node.owner) or any(
            org in contract.audience and self.status(contract) == "active"
            for contract in self.of_node(node_id)
        )

    def _placed(self, seen: Seen, workload_id: str, number: int) -> Placed:
        placed = seen.runs.get((workload_id, number))
        require(placed, f"workload {workload_id} has no run {number}")
        assert placed is not None
        return placed

    def _one_of(self, rooms: Collection[Room], placed: Placed) -> Room:
        for room in rooms:
            if (room.node, room.units) == (placed.node, placed.units):
                return room
        allowed = [f"{sorted(room.units)} of {room.node}" for room in rooms]
        require(False, f"placed on {sorted(placed.units)} of {placed.node}, and should be on {allowed}")
        raise AssertionError

    def _settle(self, workload: Workload, room: Room, placed: Placed, number: int, *, named: bool) -> None:
        """Whom it costs goes, and the workload has the room."""
        for victim in room.victims:
            self.end(self.workloads[victim], "terminated", "spot_preempted_for_reservation_tenant")
        workload.claims = self._rights_to(room, workload.org, workload.tier, named=named)
        self.workloads[workload.id] = workload
        self.begin_run(workload, placed, number)

    def barred_from(self, rooms: Rooms, org: str, wish: Wish, node: Node | None) -> list[Fault]:
        """Why the organization is not given those rooms, on the node that it names or that has its disk: what
        is free of charge needs no balance.
        """
        free = node is not None and bool(rooms.found)
        for room in rooms.found:
            rights = self._rights_to(room, org, wish.tier, named=True)
            free = free and self.free_of_charge(org, self.nodes[room.node], rights)
        return [fault for fault in self.barred(org) if fault != NO_BALANCE or not free]

    def _rights_to(self, room: Room, org: str, tier: str, *, named: bool) -> dict[int, str | None]:
        """By which contract the organization may have each unit of the room."""
        node, rights = self.nodes[room.node], dict[int, str | None]()
        for unit in room.units:
            stands = self.standing(node, unit, org=org, tier=tier, named=named)
            contract = self.held_by(node.id, unit)
            by_right = stands not in (MARKET, OPEN)
            rights[unit] = contract.id if contract is not None and by_right else None
        return rights
