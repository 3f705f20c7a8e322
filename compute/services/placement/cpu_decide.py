"""Whether a node has room for a VM without GPUs, under the node's lock."""

from dataclasses import dataclass, field
from uuid import UUID

from compute.domain.cpu_shares import spare
from compute.domain.host_shares import Shape
from compute.domain.host_usage import HostRemaining
from compute.models import Workload
from compute.services.placement.cpu_hosts import hosts
from compute.services.placement.decide import Rejection
from nodes.models import Node
from nodes.services.locking import LockedNode


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPlacementRequest:
    """A VM without GPUs to place: `given` is what its size and disk come to.

    `details` has the fields of the workload that placement only hands on. `again` is a VM that was placed
    before, and `disk_is_there` says that its disk is on the very node.
    """

    name: str
    size: str
    given: Shape
    tier: str
    keys: tuple[UUID, ...] = ()
    again: Workload | None = None
    disk_is_there: bool = False
    details: dict[str, object] = field(default_factory=dict)


def wanted_again(workload: Workload, *, disk_is_there: bool) -> CpuPlacementRequest:
    """A VM that was placed before, as large as it was then."""
    return CpuPlacementRequest(
        name=workload.name,
        size=workload.resource_size,
        given=Shape(workload.guest_mem_mb, workload.guest_vcpu, workload.disk_size_gb),
        tier=workload.tier,
        again=workload,
        disk_is_there=disk_is_there,
    )


def refuse_cpu(
    held: LockedNode, organization_id: UUID, wanted: CpuPlacementRequest, *, named: bool
) -> Rejection | None:
    """Why the locked node has no room for the VM now; None when it has. Nothing is changed.

    `named` says that the request names the node: only so does it reach what is kept for reservations that
    serve the organization.
    """
    node = held.node
    if node.removed_at is not None:
        return Rejection("the node was removed")
    if not node.takes_new_work:
        return Rejection("the node takes no new work now")
    if not Node.objects.taking_new_work(held.at).filter(pk=node.pk).exists():
        return Rejection("the node is offline")
    if node.runtime != Node.Runtime.QEMU:
        return Rejection("the node runs no VMs")
    left = left_for_cpu(held, organization_id, named=named, excluding_workload=wanted.again)
    if short := left.lacks(wanted.given, disk_is_there=wanted.disk_is_there):
        return Rejection(f"the node has too little {' and '.join(short)} to spare", host=True, short=short)
    return None


def left_for_cpu(
    held: LockedNode, organization_id: UUID, *, named: bool, excluding_workload: Workload | None = None
) -> HostRemaining:
    """What the locked node has for VMs without GPUs, as if `excluding_workload` were not there."""
    (host,) = hosts(
        [held.node.pk],
        organization_id,
        named=named,
        at=held.at,
        excluding_workload=excluding_workload.pk if excluding_workload is not None else None,
    )
    return spare(host)
