"""What of a node's host is taken, by whom, and what that leaves."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from compute import states
from compute.capacity import Shape, allocatable_mb, footprint_mb
from compute.models import Run, Workload
from nodes.models import Node


@dataclass(frozen=True, slots=True)
class Left:
    """What is left on a host, in MiB and GB. None is what the node has not told, and does not constrain."""

    ram_mb: int | None
    disk_gb: int | None

    def holds(self, given: Shape) -> bool:
        """Whether a VM of that shape still fits."""
        if self.ram_mb is not None and given.guest_mem_mb and footprint_mb(given.guest_mem_mb) > self.ram_mb:
            return False
        return self.disk_gb is None or given.disk_gb <= self.disk_gb


def left_on(node: Node, *, but: Collection[UUID] = ()) -> Left:
    """What the node has left, as if the runs in `but` were over already.

    Memory is taken by every guest that may still be there, disk by every workload that is not terminated and
    by the others' guests until they are gone. Two queries.
    """
    runs = list(
        Run.objects.open()
        .filter(node=node)
        .exclude(pk__in=but)
        .values_list("workload__guest_mem_mb", "workload__disk_size_gb", "workload__status")
    )
    disks = Workload.objects.active().filter(node=node).values_list("disk_size_gb", flat=True)
    ram_mb = sum(footprint_mb(memory) for memory, _, _ in runs if memory)
    disk_gb = sum(disks) + sum(disk for _, disk, status in runs if status == states.TERMINATED)
    return Left(
        ram_mb=allocatable_mb(node.ram_mb) - ram_mb if node.ram_mb else None,
        disk_gb=node.disk_total_gb - disk_gb if node.disk_total_gb else None,
    )
