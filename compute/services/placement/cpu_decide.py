"""Deciding whether a locked node has room for a VM without GPUs."""

from uuid import UUID

from compute.domain.cpu_shares import host_remaining
from compute.domain.host_usage import HostRemaining
from compute.services.billing.prices import size_rate
from compute.services.placement.cpu_hosts import hosts
from compute.services.placement.request import Placement, PlacementRequest, Rejection
from nodes.models import Node
from nodes.services.locking import LockedNode


def decide_without_gpus(
    held: LockedNode, organization_id: UUID, request: PlacementRequest, *, named: bool
) -> Placement | Rejection:
    """Decide whether the locked node, which runs VMs and takes new work, has room for the VM now.

    Changes nothing. `named` says that the request names the node: only so may it use what is kept for
    reservations that serve the organization.
    """
    if request.allocation is None:
        raise ValueError("a request without GPUs needs its share of the host")
    if not Node.objects.taking_new_work(held.at).filter(pk=held.node.pk).exists():
        return Rejection("the node is offline")
    remaining = remaining_for_cpu_vms(
        held, organization_id, named=named, excluding_workload=request.restarted_id
    )
    if short := remaining.lacks(request.allocation, disk_is_there=request.disk_is_there):
        return Rejection(f"the node has not enough free {' and '.join(short)}", host=True, short=short)
    return Placement(request.allocation, size_rate(request.resource_size))


def remaining_for_cpu_vms(
    held: LockedNode, organization_id: UUID, *, named: bool, excluding_workload: UUID | None = None
) -> HostRemaining:
    """The remainder of the locked node for VMs without GPUs. `excluding_workload` counts as absent."""
    (host,) = hosts(
        [held.node.pk],
        organization_id,
        named=named,
        at=held.at,
        excluding_workload=excluding_workload,
    )
    return host_remaining(host)
