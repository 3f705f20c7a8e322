"""The model: where a request may go, and what it is answered when it may go nowhere."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.histories.facts import (
    CLASS_OF,
    POD,
    RUNTIME_OF,
    VM,
    Given,
    Node,
    Wish,
    Workload,
    subsets,
)
from tests.histories.hosting import LEAST_DISK, Hosting, Left, for_guests, plus, takes
from tests.histories.rights import OPEN, Fault, Room

INFINIBAND, AMD_GRANT = 2, 3  # the levels of agents that give these
NO_ROOM: Fault = (503, "INSUFFICIENT_GPU_CAPACITY")
NO_HOST: Fault = (503, "INSUFFICIENT_HOST_CAPACITY")
NO_ADDRESS: Fault = (503, "INSUFFICIENT_IP_CAPACITY")
NEVER: Fault = (400, "GPU_COUNT_NOT_ALLOCATABLE")
TOO_LARGE: dict[str, Fault] = {VM: (400, "VM_SHAPE_NOT_PLACEABLE"), POD: (400, "POD_ADMISSION_FAILED")}


@dataclass
class Rooms:
    """The rooms that a request may get, one as good as the other, with what it is given there; and what else
    was looked at and lacked only the host's share or an address. `unsure` when what is as good by its GPUs is
    not by its host: which of these was looked at is not for the rules to say.
    """

    found: dict[Room, Given] = field(default_factory=dict)
    no_host: bool = False
    no_address: bool = False
    unsure: bool = False


class Placing(Hosting):
    """Regions, agents, addresses, and the fleet as a whole."""

    # Nodes

    def suits(self, node: Node, wish: Wish) -> bool:
        """Whether a request without a preference for it may go there at all."""
        return not wish.regions or wish.fallback or node.region in wish.regions

    def able(self, node: Node, org: str, model: str) -> bool:
        """Whether the node's agent can give a pod of that organization those GPUs."""
        return (model not in self.amd or node.level >= AMD_GRANT) and (
            org not in self.infiniband or node.level >= INFINIBAND
        )

    def connects(self, node: Node, org: str, pod: str | None = None) -> bool:
        """Whether there is an address for a pod, where it needs one."""
        if org not in self.infiniband or not node.fabric:
            return True
        return len(self.leases.keys() - {pod}) < self.pool

    def connect(self, node: Node, org: str, pod: str) -> None:
        """The pod has an address from now on, or none, as its organization and node have it."""
        self.leases.pop(pod, None)
        if org in self.infiniband and node.fabric and len(self.leases) < self.pool:
            self.leases[pod] = node.id

    # Rooms for GPUs

    def rooms_here(self, node: Node, org: str, wish: Wish, *, again: Workload | None = None) -> Rooms:
        """The best rooms of the node that the request names, or that has its disk."""
        stands = self.standings(node, org=org, tier=wish.tier, kind=wish.kind, named=True, model=wish.model)
        return self._rooms(node, org, wish, stands, named=True, again=again, disk_is_there=again is not None)

    def rooms_in_pool(self, org: str, wish: Wish, *, again: Workload | None = None) -> Rooms:
        """The best fits of the public pool: where it is preferred, if there is room; where the fewest GPUs
        are taken that everybody may have; of those on whose node the fewest free GPUs of the model are left.
        """
        found: dict[tuple[bool, int, int], Rooms] = {}
        for node in self.nodes.values():
            if not self.suits(node, wish):
                continue
            stands = self.standings(
                node, org=org, tier=wish.tier, kind=wish.kind, named=False, model=wish.model
            )
            for model in {node.units[unit].model for unit in stands}:
                if wish.kind == POD and not self.able(node, org, model):
                    continue
                mine = {unit: how for unit, how in stands.items() if node.units[unit].model == model}
                away = bool(wish.regions) and node.region not in wish.regions
                free = sum(node.units[unit].gpus for unit in mine)
                rooms = self._rooms(node, org, wish, mine, named=False, again=again)
                # As much of what is open to everybody is taken in each of them.
                open_ = min(
                    (
                        sum(node.units[unit].gpus for unit in room.units if mine[unit] == OPEN)
                        for room in self.rooms_on(node, mine, wish.count)
                    ),
                    default=0,
                )
                _add(found.setdefault((away, open_, free), Rooms()), rooms)
        answer = Rooms()
        for key in sorted(found):
            # Whose node is busy with another request is passed over.
            if not answer.found or answer.unsure or self.racing:
                answer.found |= found[key].found
                answer.unsure = found[key].unsure
        for rooms in found.values():
            answer.no_host |= rooms.no_host
            answer.no_address |= rooms.no_address
        return answer

    def _rooms(
        self,
        node: Node,
        org: str,
        wish: Wish,
        stands: dict[int, str],
        *,
        named: bool,
        again: Workload | None = None,
        disk_is_there: bool = False,
    ) -> Rooms:
        answer = Rooms()
        # Where the host has too little for the model that is best, it may have enough for another.
        while not answer.found and (best := self.rooms_on(node, stands, wish.count)):
            for room in best:
                self._judge(answer, node, org, wish, room, named=named, again=again, there=disk_is_there)
            answer.unsure = bool(answer.found) and len(answer.found) < len(best)
            tried = {node.units[unit].model for room in best for unit in room.units}
            stands = {unit: how for unit, how in stands.items() if node.units[unit].model not in tried}
        return answer

    def _judge(
        self,
        rooms: Rooms,
        node: Node,
        org: str,
        wish: Wish,
        room: Room,
        *,
        named: bool,
        again: Workload | None,
        there: bool,
    ) -> None:
        """Whether the host has what goes with the room, and an address; what is found is noted in `rooms`."""
        if again is None:
            given = self.given(node, wish, node.units[min(room.units)].model)
        else:
            given = self.given_again(node, again, new_disk=not there)
        without = again.id if again is not None else None
        if given is None or self.short(
            node, org, given, room, named=named, without=without, disk_is_there=there
        ):
            rooms.no_host = True
        elif wish.kind == POD and again is None and not self.connects(node, org):
            rooms.no_address = True
        else:
            rooms.found[room] = given

    def could_have(self, node: Node, unit: int, org: str, kind: str) -> bool:
        """Whether reservations let the organization have the unit ever: its own, or what is released."""
        contract = self.held_by(node.id, unit)
        if contract is None:
            return True
        released = self.status(contract) == "active" and unit in contract.released
        return kind == VM and (org in contract.audience or released)

    def no_room(self, nodes: Iterable[Node], org: str, wish: Wish, rooms: Rooms) -> list[Fault]:
        """What a request may be answered that has no room on those nodes: whether it ever could have."""
        there = possible = tiled = shaped = False
        for node in nodes:
            if node.removed or node.runtime != RUNTIME_OF[wish.kind]:
                continue
            sold = [
                number
                for number, unit in node.units.items()
                if unit.present and unit.sellable and unit.klass == CLASS_OF[wish.kind]
                if wish.model in (None, unit.model)
            ]
            able = [
                number
                for number in sold
                if node.units[number].healthy and self.could_have(node, number, org, wish.kind)
            ]
            there, possible = there or bool(sold), possible or bool(able)
            for units in subsets(able):
                of = {node.units[unit].model for unit in units}
                if len(of) == 1 and sum(node.units[unit].gpus for unit in units) == wish.count:
                    tiled = True
                    shaped = shaped or self.given(node, wish, of.pop()) is not None
        if there and not possible:
            return [NO_ROOM]
        if not tiled:
            return [NEVER]
        if not shaped:
            return [TOO_LARGE[wish.kind]]
        short = [NO_HOST] * rooms.no_host + [NO_ADDRESS] * rooms.no_address
        return short or [NO_ROOM]

    # VMs without GPUs

    def cpu_rooms(
        self, nodes: Sequence[Node], org: str, wish: Wish, *, named: bool, again: Workload | None = None
    ) -> list[Room]:
        """The hosts with room for a VM of that size, where it is preferred before others."""
        given = self.size_of(wish) if again is None else again.given
        found: dict[bool, list[Room]] = {}
        for node in nodes:
            if not self.takes_work(node) or node.runtime != "qemu" or not (named or self.suits(node, wish)):
                continue
            there = again is not None and named
            left = self.for_cpus(node, org, named=named, without=again.id if again is not None else None)
            if not left.lacks(given, disk_is_there=there):
                away = bool(wish.regions) and node.region not in wish.regions
                found.setdefault(away, []).append(Room(node.id, frozenset()))
        if self.racing:
            return [room for rooms in found.values() for room in rooms]
        return found[min(found)] if found else []

    def cpu_could(self, nodes: Iterable[Node], given: Given) -> bool:
        """Whether one of the hosts is as large as that."""
        return any(
            not node.removed and node.runtime == "qemu" and not self.bare(node).lacks(given) for node in nodes
        )

    def bare(self, node: Node) -> Left:
        """What the host would have with nothing on it."""
        host = node.host
        return Left(for_guests(host.ram) if host.ram else None, host.cpus or None, host.disk or None, None)

    def size_of(self, wish: Wish) -> Given:
        """What a VM of a size is given: what the table of sizes says, and 100 GB unless it asks for more."""
        size = self.sizes[wish.size]
        return Given(size.memory, size.cpus, wish.disk or 100)

    # What is shown

    def availability(self, org: str) -> dict[str, tuple[int, int, int, int]]:
        """By GPU model: free to the organization, of it reserved to it, on the spot market, in all."""
        found: dict[str, list[int]] = {}
        for node in self.nodes.values():
            if not self.takes_work(node) or node.runtime != "qemu":
                continue
            for model in {unit.model for unit in node.units.values()}:
                sums = found.setdefault(model, [0, 0, 0, 0])
                for number, more in enumerate(self._available(node, org, model)):
                    sums[number] += more
        return {model: (a, b, c, d) for model, (a, b, c, d) in found.items() if a or b or c or d}

    def _available(self, node: Node, org: str, model: str) -> tuple[int, int, int, int]:
        free: list[int] = []
        own_free: list[int] = []
        market: list[int] = []
        total = 0
        for number, unit in node.units.items():
            if unit.model != model or not (unit.present and unit.sellable and unit.klass == CLASS_OF[VM]):
                continue
            contract = self.held_by(node.id, number)
            used = bool(self.open_runs(node.id, [number])) or self.claim_on(node.id, number) is not None
            active = contract is not None and self.status(contract) == "active"
            own = contract is not None and active and org in contract.audience
            is_free = not used and unit.healthy
            if contract is None or own:
                free += [unit.gpus] * is_free
                own_free += [unit.gpus] * (is_free and own)
                total += (is_free or used) * unit.gpus
            elif active and number in contract.released:
                market += [unit.gpus] * is_free
        return (
            self._startable(node, model, free),
            self._startable(node, model, own_free),
            self._startable(node, model, market),
            total,
        )

    def _startable(self, node: Node, model: str, sizes: Sequence[int]) -> int:
        """The most of those GPUs that the host can start now, each with its CPUs, least memory and disk."""
        left, each = plus(self.left(node), self.twice(node)), self.share(node)
        if left.lacks(Given(None, None, LEAST_DISK)):
            return 0
        most = 0
        for units in subsets(range(len(sizes))):
            count = sum(sizes[unit] for unit in units)
            few = bool(node.host.cpus) and (node.host.cpus or 0) < self.gpus(node)
            cpus = few or left.cpus is None or (each.cpus or 0) * count <= left.cpus
            ram = left.ram is None or not count or takes(self.least_memory(model, count)) <= left.ram
            of_share = each.ram is None or takes(self.least_memory(model, count)) <= each.ram * count
            if cpus and ram and of_share:
                most = max(most, count)
        return most

    def beside(self) -> bool:
        """Whether VMs without GPUs took of a host that told what it has."""
        return any(
            not run.units and any((host.ram, host.cpus))
            for run in self.runs.values()
            if run.open
            for host in [self.nodes[run.node].host]
        )

    def pod_capacity(self, org: str) -> dict[str, tuple[int, int, int]]:
        """By GPU model: units a pod could have now, all there are, the most GPUs of one node."""
        found: dict[str, tuple[int, int, int]] = {}
        for node in self.nodes.values():
            if node.removed or node.runtime != "runc":
                continue
            left = self.left(node)
            disk = not left.lacks(Given(None, None, 50))
            for number, unit in node.units.items():
                sold = unit.present and unit.sellable and unit.klass == CLASS_OF[POD]
                if not sold or self.held_by(node.id, number) is not None:
                    continue
                claimed = self.claim_on(node.id, number) is not None
                ready = self.takes_work(node) and self.connects(node, org) and disk
                ready = ready and self.able(node, org, unit.model)
                open_ = ready and self.standing(node, number, org=org, tier="", named=False) == OPEN
                there = self.takes_work(node) and (claimed or unit.healthy)
                free, all_, _ = found.get(unit.model, (0, 0, 0))
                found[unit.model] = (free + open_, all_ + there, 0)
        for model, (free, all_, _) in found.items():
            found[model] = (
                free,
                all_,
                max(self._open_gpus(node, org, model) for node in self.nodes.values()),
            )
        return found

    def _open_gpus(self, node: Node, org: str, model: str) -> int:
        disk = not self.left(node).lacks(Given(None, None, 50))
        if not (self.able(node, org, model) and self.connects(node, org) and disk):
            return 0
        stands = self.standings(node, org=org, tier="", kind=POD, named=False, model=model)
        return sum(node.units[unit].gpus for unit, how in stands.items() if how == OPEN)


def _add(rooms: Rooms, more: Rooms) -> None:
    rooms.found |= more.found
    rooms.no_host |= more.no_host
    rooms.no_address |= more.no_address
    rooms.unsure |= more.unsure
