"""The model: what of a host goes with its GPUs, who took it, and what that leaves."""

from collections.abc import Collection
from dataclasses import dataclass

from tests.histories.facts import CLASS_OF, POD, VM, Given, Host, Node, Wish, Workload
from tests.histories.rights import Rights, Room

RAM, CPUS, DISK = "RAM", "CPUs", "disk"
LEAST_DISK = 10


@dataclass(frozen=True)
class Left:
    """What a host has left. None is what it never told, and does not stand in the way."""

    ram: int | None
    cpus: int | None
    disk: int | None
    empty: int | None

    def lacks(self, given: Given, *, disk_is_there: bool = False) -> set[str]:
        """What of it there is too little of. A disk that is there already needs next to nothing more."""
        short = set()
        if self.ram is not None and given.memory and takes(given.memory) > self.ram:
            short.add(RAM)
        if self.cpus is not None and given.cpus and given.cpus > self.cpus:
            short.add(CPUS)
        if self.disk is not None and given.disk > self.disk:
            short.add(DISK)
        if self.empty is not None and (1 if disk_is_there else given.disk) > self.empty:
            short.add(DISK)
        return short


def plus(left: Left, more: tuple[int, int, int]) -> Left:
    ram, cpus, disk = more
    return Left(
        None if left.ram is None else left.ram + ram,
        None if left.cpus is None else left.cpus + cpus,
        None if left.disk is None else left.disk + disk,
        left.empty,
    )


def for_guests(ram: int) -> int:
    """What guests may have of a host's memory: it keeps 2 %, and 2 GiB at least."""
    return max(0, ram - max(2048, ram * 2 // 100))


def takes(memory: int) -> int:
    """What a guest of that memory takes of its host: 5 % more, 1 GiB at least, and 32 MiB."""
    return memory + max(1024, (memory * 5 + 99) // 100) + 32


def largest(budget: int) -> int:
    """The most memory of a guest that takes no more than that."""
    low, high = 0, max(0, budget)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if takes(middle) <= budget else (low, middle - 1)
    return low


class Hosting(Rights):
    """Shares of hosts."""

    def least_memory(self, model: str, count: int) -> int:
        """65 % of the memory of its GPUs, in MiB."""
        return -(-self.vram[model] * 1024 * count * 65 // 100)

    def gpus(self, node: Node, kind: str = VM) -> int:
        """How many GPUs the host is shared out to."""
        return sum(
            unit.gpus
            for unit in node.units.values()
            if unit.present and unit.sellable and unit.klass == CLASS_OF[kind]
        )

    def share(self, node: Node, kind: str = VM) -> Host:
        """What each of its GPUs brings with it."""
        gpus, host = self.gpus(node, kind), node.host
        if not gpus:
            return Host()
        return Host(
            ram=for_guests(host.ram) // gpus if host.ram else None,
            cpus=max(1, host.cpus // gpus) if host.cpus else None,
            disk=host.disk // gpus if host.disk else None,
        )

    # What a request is given

    def given(self, node: Node, wish: Wish, model: str) -> Given | None:
        """What a new VM or pod is given with GPUs of that model there; None when it asks for more."""
        each, count = self.share(node, wish.kind), wish.count
        cpus = each.cpus * count if each.cpus is not None else None
        most = largest(each.ram * count) if each.ram is not None else None
        disk = each.disk * count if each.disk is not None else None
        if wish.kind == POD:
            volume = wish.disk or 50
            shared = self._shared(node, wish, most)
            if disk is not None and volume > max(50, disk):
                return None
            if wish.shared is not None and most is not None and wish.shared * 1024 > most // 2:
                return None
            return Given(most, cpus, volume, shared)
        least = self.least_memory(model, count)
        wanted = wish.memory if wish.memory is not None else most if most is not None else least
        memory = max(wanted, least)
        if most is not None and memory > most:
            return None
        if wish.disk is None:
            size = 100 * count if disk is None else max(LEAST_DISK, min(100 * count, disk))
            return Given(memory, cpus, size)
        return None if disk is not None and wish.disk > disk else Given(memory, cpus, wish.disk)

    def given_again(self, node: Node, workload: Workload, *, new_disk: bool) -> Given | None:
        """The same for one that is started again: what it asked for, or the share where that is less."""
        each, count, had = self.share(node, workload.kind), workload.count, workload.given
        cpus = each.cpus * count if each.cpus is not None else None
        most = largest(each.ram * count) if each.ram is not None else None
        if workload.kind == POD:
            shared = self._shared(node, workload.asked, most)
            return Given(most, cpus, had.disk, shared)
        if new_disk and each.disk is not None and had.disk > each.disk * count:
            return None
        least = self.least_memory(workload.model, count)
        memory = max(workload.requested or 0, least)
        if most is not None and memory > most:
            if most < least:
                return None
            memory = most
        return Given(memory, cpus, had.disk)

    def _shared(self, node: Node, wish: Wish, most: int | None) -> int | None:
        """A pod's shared memory: what it asks for, half of its memory at most, unless that is not known."""
        half = most // 2 if most is not None else None
        if wish.shared is not None:
            size: int | None = wish.shared * 1024
        elif wish.count == self.gpus(node, POD):
            return half
        else:
            size = 2048 * wish.count if wish.count > 1 else None
        return size if size is None or half is None else min(size, half)

    # What there is left

    def left(
        self,
        node: Node,
        *,
        over: Collection[str] = (),
        without: str | None = None,
        ended: Collection[str] = (),
        kept: Collection[int] = (),
    ) -> Left:
        """What the host has left, as if the runs `over` were over, the workloads `ended` were terminated and
        the workload `without` was not there. `kept` are units whose share is left to them: what a guest on
        them does not use of it too.
        """
        each, host = self.share(node), node.host
        ram = cpus = disk = 0
        on: set[int] = set()
        leaving = set()
        for run, workload in self.guests_of(node.id):
            mine = sum(node.units[unit].gpus for unit in run.units if unit in kept)
            on |= run.units
            if workload.id == without:
                on -= run.units
                continue
            there = run.id not in over
            memory, cores = (workload.given.memory, workload.given.cpus) if there else (0, 0)
            ram += max(takes(memory) if memory else 0, (each.ram or 0) * mine)
            cpus += max(cores or 0, (each.cpus or 0) * mine)
            disk += max(0, (each.disk or 0) * mine - (workload.given.disk if there else 0))
            if workload.status == "terminated" and there:
                leaving.add(workload.id)
        free = sum(node.units[unit].gpus for unit in kept if unit not in on)
        ram, cpus, disk = (
            used + (part or 0) * free
            for used, part in ((ram, each.ram), (cpus, each.cpus), (disk, each.disk))
        )
        for workload in self.workloads.values():
            stays = workload.status != "terminated" and workload.id not in ended
            if workload.node == node.id and workload.id != without and (stays or workload.id in leaving):
                disk += workload.given.disk
        return Left(
            ram=for_guests(host.ram) - ram if host.ram else None,
            cpus=host.cpus - cpus if host.cpus else None,
            disk=host.disk - disk if host.disk else None,
            empty=host.empty,
        )

    def twice(
        self, node: Node, *, over: Collection[str] = (), without: str | None = None
    ) -> tuple[int, int, int]:
        """What of RAM, CPUs and disk is counted for guests that wait and for those that each alone waits for,
        of which only ever one is there.
        """
        there = [
            (run, workload)
            for run, workload in self.guests_of(node.id)
            if run.id not in over and workload.id != without
        ]
        first = {
            run.id: [other for other in there[:place] if other[0].units & run.units]
            for place, (run, workload) in enumerate(there)
            if workload.status == "pending" and run.wanted
        }
        waited_for = [run.id for earlier in first.values() for run, _ in earlier]
        ram = cpus = disk = 0
        for run, workload in there:
            alone = [each for other, each in first.get(run.id, ()) if waited_for.count(other.id) == 1]
            memory = sum(takes(each.given.memory) for each in alone if each.given.memory)
            ram += min(takes(workload.given.memory) if workload.given.memory else 0, memory)
            cpus += min(workload.given.cpus or 0, sum(each.given.cpus or 0 for each in alone))
            ended = sum(each.given.disk for each in alone if each.status == "terminated")
            disk += min(workload.given.disk, ended)
        return ram, cpus, disk

    def for_gpus(self, node: Node, org: str, room: Room, *, named: bool, without: str | None = None) -> Left:
        """What is left for a VM or pod in that room, whose victims and earlier guests are gone by then.

        Where there are VMs without GPUs, what is reserved keeps its share from what is not; who is served by
        a reservation has its units' own share at least.
        """
        over = {run.id for run in self.open_runs(node.id, room.units)}
        ended = room.victims
        twice = self.twice(node, over=over, without=without)
        plain = plus(self.left(node, over=over, without=without, ended=ended), twice)
        if all(run.units for run, _ in self.guests_of(node.id)):
            return plain
        reserved = [unit for unit in self._shared_out(node) if self.held_by(node.id, unit)]
        kept = {
            unit
            for unit in reserved
            if unit not in room.units and not (named and self._serves(node, unit, org))
        }
        rest = plus(self.left(node, over=over, without=without, ended=ended, kept=kept), twice)
        own = sum(node.units[unit].gpus for unit in reserved if unit in room.units)
        each = self.share(node)

        def more(unkept: int | None, at_most: int | None, part: int | None) -> int | None:
            if unkept is None or at_most is None:
                return at_most
            return max(unkept, min(at_most, (part or 0) * own))

        return Left(
            ram=more(rest.ram, plain.ram, each.ram),
            cpus=more(rest.cpus, plain.cpus, each.cpus),
            disk=more(rest.disk, plain.disk, each.disk),
            empty=plain.empty,
        )

    def for_cpus(self, node: Node, org: str, *, named: bool, without: str | None = None) -> Left:
        """What is left for a VM without GPUs: not the share of what is or will be reserved, but to whom it is
        reserved.
        """
        kept = [
            unit
            for unit in self._shared_out(node)
            for contract in self.of_node(node.id)
            if unit in contract.units and not self.ended(contract)
            if not (named and self.held_by(node.id, unit) is contract and self._serves(node, unit, org))
        ]
        return self.left(node, without=without, kept=set(kept))

    def _serves(self, node: Node, unit: int, org: str) -> bool:
        contract = self.held_by(node.id, unit)
        return contract is not None and self.status(contract) == "active" and org in contract.audience

    def _shared_out(self, node: Node) -> list[int]:
        return [
            number
            for number, unit in node.units.items()
            if unit.present and unit.sellable and unit.klass == CLASS_OF[VM]
        ]

    def short(
        self,
        node: Node,
        org: str,
        given: Given,
        room: Room,
        *,
        named: bool,
        without: str | None = None,
        disk_is_there: bool = False,
    ) -> set[str]:
        """What of the host is missing for that room; nothing when it has all."""
        left = self.for_gpus(node, org, room, named=named, without=without)
        kind = POD if node.runtime == "runc" else VM
        short = left.lacks(given, disk_is_there=disk_is_there)
        if node.host.cpus and node.host.cpus < self.gpus(node, kind):
            short -= {CPUS}  # a host with fewer CPUs than GPUs shares them out
        return short
