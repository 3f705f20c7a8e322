"""The use of a host: what each guest takes of its memory, CPUs and disk, and what remains. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol
from uuid import UUID

from compute.domain import states
from compute.domain.host_shares import HostAllocation, allocatable_mb, footprint_mb

RAM, CPU, DISK = "RAM", "CPU", "disk"


class HostFigures(Protocol):
    """The size of a host as its node reported it: MiB, CPUs and GB. None where it reported nothing."""

    @property
    def ram_mb(self) -> int | None: ...
    @property
    def cpu_cores(self) -> int | None: ...
    @property
    def disk_total_gb(self) -> int | None: ...
    @property
    def disk_free_gb(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class HostRemaining:
    """What remains of a host: MiB, CPUs, GB. None where the node reported nothing: that does not constrain.

    `disk_gb` is not promised to any disk, `disk_free_gb` is what the node reports as free.
    """

    ram_mb: int | None
    vcpu: int | None
    disk_gb: int | None
    disk_free_gb: int | None

    def lacks(self, allocation: HostAllocation, *, disk_is_there: bool = False) -> tuple[str, ...]:
        """Which of RAM, CPU and disk are too little for the allocation; empty when it fits.

        With `disk_is_there` the disk is on the host and needs 1 GB free, so that the guest can write.
        """
        short = []
        if (
            self.ram_mb is not None
            and allocation.guest_mem_mb
            and footprint_mb(allocation.guest_mem_mb) > self.ram_mb
        ):
            short.append(RAM)
        if self.vcpu is not None and allocation.vcpu and allocation.vcpu > self.vcpu:
            short.append(CPU)
        empty_gb = 1 if disk_is_there else allocation.disk_gb
        if (self.disk_gb is not None and allocation.disk_gb > self.disk_gb) or (
            self.disk_free_gb is not None and empty_gb > self.disk_free_gb
        ):
            short.append(DISK)
        return tuple(short)

    def plus(self, more: "Amount") -> "HostRemaining":
        """The remainder with that much more."""
        return replace(
            self,
            ram_mb=None if self.ram_mb is None else self.ram_mb + more.ram_mb,
            vcpu=None if self.vcpu is None else self.vcpu + more.vcpu,
            disk_gb=None if self.disk_gb is None else self.disk_gb + more.disk_gb,
        )


@dataclass(frozen=True, slots=True)
class Amount:
    """MiB, CPUs and GB of a host."""

    ram_mb: int = 0
    vcpu: int = 0
    disk_gb: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.ram_mb + other.ram_mb, self.vcpu + other.vcpu, self.disk_gb + other.disk_gb)

    def least(self, other: "Amount") -> "Amount":
        """Of each the less."""
        return Amount(
            min(self.ram_mb, other.ram_mb), min(self.vcpu, other.vcpu), min(self.disk_gb, other.disk_gb)
        )


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest that may still be on a node, with what its workload was given: MiB, CPUs and GB; of which tier
    that is, where it was asked; and of a spot workload when it was created.
    """

    run_id: UUID
    workload_id: UUID
    mem_mb: int | None
    vcpu: int | None
    disk_gb: int
    status: str  # the workload's
    tier: str = ""
    since: datetime | None = None

    @property
    def takes(self) -> Amount:
        """What of the host it has while it is there; its disk, only where that goes with it."""
        ram_mb = footprint_mb(self.mem_mb) if self.mem_mb else 0
        return Amount(ram_mb, self.vcpu or 0, self.disk_gb if self.status == states.TERMINATED else 0)


def counted_twice(
    queues: Iterable[Sequence[Guest]],
    *,
    excluding_runs: Collection[UUID] = (),
    excluding_workload: UUID | None = None,
) -> Amount:
    """What counts for a guest that is to come and for one that is to go first, though only one of the two is
    ever there: who waits for guests that nobody else waits for takes over from them.

    `queues` has the guests that may come to be on a unit, the earliest first. The runs in `excluding_runs`
    count as over, and `excluding_workload` as not there.
    """
    waits: dict[UUID, tuple[Guest, dict[UUID, Guest]]] = {}
    waited_for: Counter[UUID] = Counter()
    for queue in queues:
        *earlier, last = queue
        if (
            last.status != states.PENDING
            or last.run_id in excluding_runs
            or last.workload_id == excluding_workload
        ):
            continue
        _, first = waits.setdefault(last.run_id, (last, {}))
        for guest in earlier:
            if (
                guest.run_id not in first
                and guest.run_id not in excluding_runs
                and guest.workload_id != excluding_workload
            ):
                first[guest.run_id] = guest
                waited_for[guest.run_id] += 1
    twice = Amount()
    for last, first in waits.values():
        alone = [guest.takes for run_id, guest in first.items() if waited_for[run_id] == 1]
        comes = replace(last.takes, disk_gb=last.disk_gb)
        twice += comes.least(sum(alone, Amount()))
    return twice


def left(
    node: HostFigures,
    guests: Collection[Guest],
    disk_gb: int,
    *,
    excluding_runs: Collection[UUID] = (),
    excluding_workload: UUID | None = None,
) -> HostRemaining:
    """The remainder of the host. `excluding_runs` count as over, `excluding_workload` as absent.

    Memory and CPUs are taken by every guest that may still be there; disk by every workload that is not
    terminated, `disk_gb` without that of `excluding_workload`, and by the others' guests until they are gone.
    """
    there = [
        guest
        for guest in guests
        if guest.run_id not in excluding_runs and guest.workload_id != excluding_workload
    ]
    ram_mb = sum(footprint_mb(guest.mem_mb) for guest in there if guest.mem_mb)
    vcpu = sum(guest.vcpu or 0 for guest in there)
    disk_gb += sum(guest.disk_gb for guest in there if guest.status == states.TERMINATED)
    return HostRemaining(
        ram_mb=allocatable_mb(node.ram_mb) - ram_mb if node.ram_mb else None,
        vcpu=node.cpu_cores - vcpu if node.cpu_cores else None,
        disk_gb=node.disk_total_gb - disk_gb if node.disk_total_gb else None,
        disk_free_gb=node.disk_free_gb,
    )
