"""The part of a host that VMs without GPUs may use. Pure arithmetic.

Each GPU has an even share of the host's memory, CPUs and disk. The shares of kept GPUs (see
`services.placement.cpu_hosts`) stay reserved for them. Where a guest uses less than the share of its kept
GPUs, the rest stays reserved too, because the next guest may ask for all of it.
"""

from dataclasses import dataclass
from uuid import UUID

from compute.domain.host_shares import GpuShare, HostAllocation, allocatable_mb, footprint_mb, gpu_share
from compute.domain.host_usage import HostRemaining


@dataclass(frozen=True, slots=True)
class Guest:
    """A guest that may run on a host: MiB, CPUs, GB, and how many of the kept GPUs it may use."""

    guest_mem_mb: int
    vcpu: int
    disk_gb: int
    kept_gpus: int


@dataclass(frozen=True, slots=True)
class Host:
    """A host and its guests. None where the node reported nothing: that does not constrain.

    Each of `gpus` has a share; of them `kept_gpus` are kept and unused, `free_gpus` neither kept nor used.
    `disk_gb` is promised to disks, whether or not their guests run.
    """

    node_id: UUID
    ram_mb: int | None
    cpu_cores: int | None
    disk_total_gb: int | None
    disk_free_gb: int | None
    gpus: int
    kept_gpus: int
    free_gpus: int
    disk_gb: int
    guests: tuple[Guest, ...]

    @property
    def model_id(self) -> None:
        """A VM without GPUs gets no GPU model, whatever the host has."""
        return None


def share_of(host: Host) -> GpuShare:
    """The share of one of the host's GPUs."""
    return gpu_share(
        gpus=host.gpus, ram_mb=host.ram_mb, cpu_cores=host.cpu_cores, disk_total_gb=host.disk_total_gb
    )


def host_remaining(host: Host) -> HostRemaining:
    """What remains for VMs without GPUs; below zero where more is kept than the host has."""
    each = share_of(host)
    ram, vcpu, disk = each.ram_budget_mb or 0, each.vcpu or 0, each.disk_gb or 0
    taken_mb = sum(
        max(footprint_mb(guest.guest_mem_mb) if guest.guest_mem_mb else 0, ram * guest.kept_gpus)
        for guest in host.guests
    )
    taken_vcpu = sum(max(guest.vcpu, vcpu * guest.kept_gpus) for guest in host.guests)
    # Their disks are in `disk_gb` already; here is what they leave of their GPUs' share.
    taken_gb = host.disk_gb + sum(max(0, disk * guest.kept_gpus - guest.disk_gb) for guest in host.guests)
    return HostRemaining(
        ram_mb=allocatable_mb(host.ram_mb) - taken_mb - ram * host.kept_gpus if host.ram_mb else None,
        vcpu=host.cpu_cores - taken_vcpu - vcpu * host.kept_gpus if host.cpu_cores else None,
        disk_gb=host.disk_total_gb - taken_gb - disk * host.kept_gpus if host.disk_total_gb else None,
        disk_free_gb=host.disk_free_gb,
    )


def after_placing(left: HostRemaining, allocation: HostAllocation) -> HostRemaining:
    """What remains once a VM of that allocation runs there too."""
    memory = footprint_mb(allocation.guest_mem_mb) if allocation.guest_mem_mb else 0
    return HostRemaining(
        ram_mb=None if left.ram_mb is None else left.ram_mb - memory,
        vcpu=None if left.vcpu is None else left.vcpu - (allocation.vcpu or 0),
        disk_gb=None if left.disk_gb is None else left.disk_gb - allocation.disk_gb,
        disk_free_gb=None if left.disk_free_gb is None else left.disk_free_gb - allocation.disk_gb,
    )


def stranded(host: Host, allocation: HostAllocation) -> int:
    """How many of the host's free GPUs would lose their share to a VM of that allocation."""
    left = host_remaining(host)
    return _startable(host, left) - _startable(host, after_placing(left, allocation))


def _startable(host: Host, left: HostRemaining) -> int:
    """How many of the free GPUs have their share in what remains."""
    each = share_of(host)
    most = host.free_gpus
    for amount, part in ((left.ram_mb, each.ram_budget_mb), (left.vcpu, each.vcpu)):
        if amount is not None and part:
            most = min(most, max(0, amount) // part)
    return most


def tightness(host: Host, allocation: HostAllocation) -> tuple[int, bool, float, float, UUID]:
    """The order in which hosts are tried: the fewest GPUs stranded, no GPUs there at all, the least left."""
    left = after_placing(host_remaining(host), allocation)
    endless = float("inf")
    return (
        stranded(host, allocation),
        host.gpus > 0,
        endless if left.vcpu is None else left.vcpu,
        endless if left.ram_mb is None else left.ram_mb,
        host.node_id,
    )
