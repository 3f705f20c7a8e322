"""Host shares: the memory, CPUs and disk that go with GPUs. Pure arithmetic.

A node gives each GPU an even share of its host, and a VM gets the shares of its GPUs. So a node can always
run one VM for each GPU. A request may name less memory or disk than its share.
"""

import math
from dataclasses import dataclass

# The host's own system keeps 2 % of its memory, at least 2 GiB.
HOST_KEEPS_PERCENT = 2
HOST_KEEPS_MB = 2048
# A hypervisor needs 5 % of a guest's memory besides it, at least 1 GiB, and a constant for itself.
OVERHEAD_PERCENT = 5
OVERHEAD_LEAST_MB = 1024
OVERHEAD_FLAT_MB = 32
# A guest's memory is at least this part of its GPUs' memory, so that it can feed them.
FLOOR_PERCENT_OF_VRAM = 65
DISK_GB_A_GPU = 100
MIN_DISK_GB = 10
# The disk of a VM without GPUs that names no size.
DISK_GB = 100
# The default volume of a pod, and its shared memory for each GPU where it shares the node with others.
VOLUME_GB = 50
SHM_MB_A_GPU = 2048
MAX_DISK_GB = 1_000_000


@dataclass(frozen=True, slots=True)
class GpuShare:
    """The share of one GPU of a node. None where the node reported nothing: that does not constrain."""

    ram_budget_mb: int | None
    vcpu: int | None
    disk_gb: int | None


@dataclass(frozen=True, slots=True)
class HostAllocation:
    """The part of a host that a VM or pod gets: MiB, CPUs and GB. None where the host's size is unknown.

    `shm_mb` is a pod's shared memory; None leaves it to its runtime.
    """

    guest_mem_mb: int | None
    vcpu: int | None
    disk_gb: int
    shm_mb: int | None = None


def allocatable_mb(ram_mb: int) -> int:
    """The MiB of a host's memory that guests may use."""
    return max(0, ram_mb - max(HOST_KEEPS_MB, ram_mb * HOST_KEEPS_PERCENT // 100))


def gpu_share(*, gpus: int, ram_mb: int | None, cpu_cores: int | None, disk_total_gb: int | None) -> GpuShare:
    """The even share of one of a host's `gpus`."""
    if gpus < 1:
        return GpuShare(None, None, None)
    return GpuShare(
        ram_budget_mb=allocatable_mb(ram_mb) // gpus if ram_mb else None,
        vcpu=max(1, cpu_cores // gpus) if cpu_cores else None,
        disk_gb=disk_total_gb // gpus if disk_total_gb else None,
    )


def footprint_mb(guest_mem_mb: int) -> int:
    """The MiB of its host that a guest of that memory takes."""
    return (
        guest_mem_mb + max(OVERHEAD_LEAST_MB, -(-guest_mem_mb * OVERHEAD_PERCENT // 100)) + OVERHEAD_FLAT_MB
    )


def largest_guest_mb(budget_mb: int) -> int:
    """The largest guest whose footprint fits into the budget."""
    guest = min(
        budget_mb - OVERHEAD_FLAT_MB - OVERHEAD_LEAST_MB,
        (budget_mb - OVERHEAD_FLAT_MB) * 100 // (100 + OVERHEAD_PERCENT),
    )
    while guest > 0 and footprint_mb(guest) > budget_mb:  # rounding: one step at most
        guest -= 1
    return max(0, guest)


def floor_mb(vram_gb: int, gpu_count: int) -> int:
    """The least MiB of a guest with that many GPUs of that VRAM."""
    return math.ceil(vram_gb * 1024 * gpu_count * FLOOR_PERCENT_OF_VRAM / 100)


def vm_allocation(
    share: GpuShare,
    *,
    gpu_count: int,
    vram_gb: int,
    guest_mem_mb: int | None = None,
    disk_gb: int | None = None,
) -> HostAllocation | None:
    """The allocation of a VM with `gpu_count` GPUs on a node of that share; None when it asks for more.

    Without `guest_mem_mb` it gets the whole share. Memory below the floor is raised to it; a share below the
    floor cannot be used. Without `disk_gb` it gets 100 GB for each GPU, or the share where that is less.
    """
    most_mb = None if share.ram_budget_mb is None else largest_guest_mb(share.ram_budget_mb * gpu_count)
    most_disk = None if share.disk_gb is None else share.disk_gb * gpu_count
    least_mb = floor_mb(vram_gb, gpu_count)
    asked_mb = most_mb if guest_mem_mb is None else guest_mem_mb
    memory = max(asked_mb or 0, least_mb) or None
    if memory is not None and most_mb is not None and memory > most_mb:
        return None
    if disk_gb is None:
        disk_gb = DISK_GB_A_GPU * gpu_count
        if most_disk is not None:
            disk_gb = max(MIN_DISK_GB, min(disk_gb, most_disk))
    elif most_disk is not None and disk_gb > most_disk:
        return None
    return HostAllocation(memory, None if share.vcpu is None else share.vcpu * gpu_count, disk_gb)


def restart_allocation(
    share: GpuShare,
    *,
    gpu_count: int,
    vram_gb: int,
    guest_mem_mb: int | None,
    disk_gb: int,
    new_disk: bool = False,
) -> HostAllocation | None:
    """The allocation of a VM that starts again on a node of that share; None when it does not fit.

    A request for more memory than the share gets the share, unless that is below the floor. The disk keeps
    its size; a `new_disk`, on another node, has to fit the share.
    """
    if new_disk and share.disk_gb is not None and disk_gb > share.disk_gb * gpu_count:
        return None
    most_mb = None if share.ram_budget_mb is None else largest_guest_mb(share.ram_budget_mb * gpu_count)
    least_mb = floor_mb(vram_gb, gpu_count)
    memory = max(guest_mem_mb or 0, least_mb) if guest_mem_mb is not None else most_mb or least_mb or None
    if memory is not None and most_mb is not None and memory > most_mb:
        if most_mb < least_mb:
            return None
        memory = most_mb
    return HostAllocation(memory, None if share.vcpu is None else share.vcpu * gpu_count, disk_gb)


def pod_allocation(
    share: GpuShare,
    *,
    gpu_count: int,
    node_gpus: int,
    volume_gb: int,
    shm_gb: int | None,
    again: bool = False,
) -> HostAllocation | None:
    """The allocation of a pod with `gpu_count` of a node's `node_gpus` GPUs; None when it asks for more.

    It gets the whole share of memory, and at most half of that as shared memory. Without `shm_gb` it gets
    that half when it has the node alone, 2 GiB for each GPU when it has several of a shared node, and its
    runtime's default otherwise. With `again`, for a restart, a request for more is cut to the share.
    """
    memory = None if share.ram_budget_mb is None else largest_guest_mb(share.ram_budget_mb * gpu_count)
    most_shm = None if memory is None else memory // 2
    most_disk = None if share.disk_gb is None else max(VOLUME_GB, share.disk_gb * gpu_count)
    shm: int | None = None
    if shm_gb is not None:
        shm = shm_gb * 1024
        if most_shm is not None and shm > most_shm:
            if not again:
                return None
            shm = most_shm
    elif gpu_count == node_gpus:
        shm = most_shm
    elif gpu_count > 1:
        shm = SHM_MB_A_GPU * gpu_count if most_shm is None else min(SHM_MB_A_GPU * gpu_count, most_shm)
    if most_disk is not None and volume_gb > most_disk and not again:
        return None
    return HostAllocation(memory, None if share.vcpu is None else share.vcpu * gpu_count, volume_gb, shm)
