"""The errors for a request that was not placed: impossible on any host, or without room now."""

import dataclasses
from collections.abc import Sequence

from compute.domain.host_shares import largest_guest_mb
from compute.domain.selection import list_totals, reachable_totals
from compute.services.fleet.pool_scan import Hardware
from compute.services.placement.decide import allocation_for
from compute.services.placement.request import PlacementRequest, Rejection
from openrelay.core.errors import ApiError, Invalid, Unavailable


def no_room(rejections: Sequence[Rejection], request: PlacementRequest, sentence: str, most: int) -> ApiError:
    """The error when no node took the workload, though one could: what is short now, and that `most` GPUs
    would fit.
    """
    what = _gpus(request)
    are = "are" if request.gpu_count > 1 else "is"
    fits = f"At most {most} would fit now." if most else "None would fit now."
    if any(rejection.host or rejection.over_share for rejection in rejections):
        return Unavailable(
            f"{what} {are} free, but not with that much memory and disk now. {fits} Ask for less, or try "
            "later.",
            code="INSUFFICIENT_HOST_CAPACITY",
        )
    if any(rejection.addresses for rejection in rejections):
        return Unavailable(
            f"{what} {are} free, but the InfiniBand fabric there has no free address. Try again later.",
            code="INSUFFICIENT_IP_CAPACITY",
        )
    another = "fewer" if most < request.gpu_count else "another number of"
    return Unavailable(f"{sentence} {fits} Try again later{f', or with {another} GPUs' if most else ''}.")


def impossible(hardware: Sequence[Hardware], request: PlacementRequest) -> Invalid | None:
    """The error when that hardware could never run the workload; None when it could."""
    able = [row for row in hardware if reachable_totals(row.sizes) >> request.gpu_count & 1]
    what = _gpus(request)
    if not able:
        possible = sorted({count for row in hardware for count in list_totals(reachable_totals(row.sizes))})
        # All of it is reserved to others or has failed. What is there is not told, and may come back.
        if hardware and not possible:
            return None
        offered = f"Possible are {', '.join(map(str, possible))}." if possible else "None is possible there."
        return Invalid(
            f"No node can give a {'pod' if request.is_pod else 'VM'} {what} of one model. {offered}",
            code="GPU_COUNT_NOT_ALLOCATABLE",
        )
    if any(_has_share(request, row) for row in able):
        return None
    if request.is_pod:
        return _pod_too_large(able, request, what)
    return Invalid(_vm_too_large(able, request, what), code="VM_SHAPE_NOT_PLACEABLE")


def cpu_vm_too_large(request: PlacementRequest, where: str) -> Invalid:
    """The error when a VM without GPUs is larger than the hosts that it could be placed on."""
    return Invalid(f"A {_size(request)} is larger than {where}. Ask for less.", code="VM_SHAPE_NOT_PLACEABLE")


def no_room_for_cpu_vm(request: PlacementRequest) -> Unavailable:
    """The error when no node of the pool has room for a VM without GPUs now."""
    return Unavailable(
        f"No node has room for a {_size(request)} now. Try again later, or ask for less.",
        code="INSUFFICIENT_HOST_CAPACITY",
    )


def _size(request: PlacementRequest) -> str:
    disk_gb = request.allocation.disk_gb if request.allocation is not None else 0
    return f"VM of size {request.resource_size} with a disk of {disk_gb} GB"


def _gpus(request: PlacementRequest) -> str:
    return f"{request.gpu_count} GPU{'s' if request.gpu_count > 1 else ''}"


def _has_share(request: PlacementRequest, row: Hardware) -> bool:
    share = allocation_for(request, row.share, vram_gb=row.vram_gb, node_gpus=row.node_gpus)
    return share is not None


def _vm_too_large(able: Sequence[Hardware], request: PlacementRequest, what: str) -> str:
    """Whether the VM asks for more than its GPUs come with, or any VM with them would."""
    least = dataclasses.replace(request, guest_mem_mb=None, disk_gb=None)
    if request.restarted is None and not any(_has_share(least, row) for row in able):
        return (
            f"The memory that goes with {what} is below what a guest with them has to have, on any node. Ask "
            "for another number of GPUs, or another model."
        )
    return f"guestMemMb or diskSizeGb is above what {what} come with on any node. Ask for less."


def _pod_too_large(able: Sequence[Hardware], request: PlacementRequest, what: str) -> Invalid:
    """Which of its sizes makes a pod larger than what its GPUs come with on any node."""
    with_default_shm = dataclasses.replace(request, shm_gb=None)
    if any(_has_share(with_default_shm, row) for row in able):
        memory_mb = max(
            largest_guest_mb(row.share.ram_budget_mb * request.gpu_count)
            for row in able
            if row.share.ram_budget_mb is not None
        )
        sentence = (
            f"shmSizeGb is above {memory_mb // 2048}, half of the memory that {what} come with at most."
        )
    else:
        sentence = f"volumeGb is above what {what} come with on any node."
    return Invalid(f"{sentence} Ask for less.", code="POD_ADMISSION_FAILED")
