"""What of a node's host is taken, by whom, and what that leaves."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from compute import states
from compute.capacity import Shape, allocatable_mb, footprint_mb
from nodes.models import Node

RAM, CPU, DISK = "RAM", "CPU", "disk"


@dataclass(frozen=True, slots=True)
class Left:
    """What is left on a host: MiB, CPUs and GB. None is what the node has not told, and does not constrain.

    `disk_gb` is what is not promised to anyone, `disk_free_gb` what the node says is empty.
    """

    ram_mb: int | None
    vcpu: int | None
    disk_gb: int | None
    disk_free_gb: int | None

    def lacks(self, given: Shape, *, disk_is_there: bool = False) -> tuple[str, ...]:
        """Which of RAM, CPU and disk a VM of that shape would find too little of; empty when it fits.

        With `disk_is_there` its disk needs no more room than it has, but for what a full host cannot write.
        """
        short = []
        if self.ram_mb is not None and given.guest_mem_mb and footprint_mb(given.guest_mem_mb) > self.ram_mb:
            short.append(RAM)
        if self.vcpu is not None and given.vcpu and given.vcpu > self.vcpu:
            short.append(CPU)
        empty_gb = 1 if disk_is_there else given.disk_gb
        if (self.disk_gb is not None and given.disk_gb > self.disk_gb) or (
            self.disk_free_gb is not None and empty_gb > self.disk_free_gb
        ):
            short.append(DISK)
        return tuple(short)


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


def left(
    node: Node,
    guests: Collection[Guest],
    disk_gb: int,
    *,
    but: Collection[UUID] = (),
    without: UUID | None = None,
) -> Left:
    """What the node has left, as if the runs in `but` were over, and the workload `without` not there.

    Memory and CPUs are taken by every guest that may still be there; disk by every workload that is not
    terminated, `disk_gb` without that of `without`, and by the others' guests until they are gone.
    """
    there = [guest for guest in guests if guest.run_id not in but and guest.workload_id != without]
    ram_mb = sum(footprint_mb(guest.mem_mb) for guest in there if guest.mem_mb)
    vcpu = sum(guest.vcpu or 0 for guest in there)
    disk_gb += sum(guest.disk_gb for guest in there if guest.status == states.TERMINATED)
    return Left(
        ram_mb=allocatable_mb(node.ram_mb) - ram_mb if node.ram_mb else None,
        vcpu=node.cpu_cores - vcpu if node.cpu_cores else None,
        disk_gb=node.disk_total_gb - disk_gb if node.disk_total_gb else None,
        disk_free_gb=node.disk_free_gb,
    )
