"""What of a host VMs without GPUs may have. Pure arithmetic.

A host's memory, CPUs and disk are shared out evenly to its GPUs. The shares of GPUs that are kept (see
`services.cpu_hosts`) are left for them: whole where nobody is on them, and where a guest is, what it leaves
of them too, since the next one may ask for all of it.
"""

from dataclasses import dataclass
from uuid import UUID

from compute.domain.host_shares import Shape, Share, allocatable_mb, footprint_mb, share
from compute.domain.host_usage import HostRemaining


@dataclass(frozen=True, slots=True)
class Guest:
    """One guest that may be on a host: MiB, CPUs, GB, and how many of the kept GPUs it may be on."""

    guest_mem_mb: int
    vcpu: int
    disk_gb: int
    kept_gpus: int


@dataclass(frozen=True, slots=True)
class Host:
    """A host and what is on it. None is what it has not told, and does not constrain.

    `gpus` are shared out to; of them `kept_gpus` are kept with nobody on them, `free_gpus` neither kept nor
    used. `disk_gb` is promised to disks, whether their guests are there or not.
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


def share_of(host: Host) -> Share:
    """What one of the host's GPUs brings with it."""
    return share(
        gpus=host.gpus, ram_mb=host.ram_mb, cpu_cores=host.cpu_cores, disk_total_gb=host.disk_total_gb
    )


def spare(host: Host) -> HostRemaining:
    """What is left there for VMs without GPUs; below zero where more is kept than there is."""
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


def after(left: HostRemaining, given: Shape) -> HostRemaining:
    """What is left once a VM of that shape is there too."""
    memory = footprint_mb(given.guest_mem_mb) if given.guest_mem_mb else 0
    return HostRemaining(
        ram_mb=None if left.ram_mb is None else left.ram_mb - memory,
        vcpu=None if left.vcpu is None else left.vcpu - (given.vcpu or 0),
        disk_gb=None if left.disk_gb is None else left.disk_gb - given.disk_gb,
        disk_free_gb=None if left.disk_free_gb is None else left.disk_free_gb - given.disk_gb,
    )


def stranded(host: Host, given: Shape) -> int:
    """How many of the host's free GPUs could no longer start with their share beside a VM of that shape."""
    left = spare(host)
    return _startable(host, left) - _startable(host, after(left, given))


def _startable(host: Host, left: HostRemaining) -> int:
    """How many of the free GPUs have their share in what is left."""
    each = share_of(host)
    most = host.free_gpus
    for amount, part in ((left.ram_mb, each.ram_budget_mb), (left.vcpu, each.vcpu)):
        if amount is not None and part:
            most = min(most, max(0, amount) // part)
    return most


def tightness(host: Host, given: Shape) -> tuple[int, bool, float, float, UUID]:
    """The order in which hosts are tried: the fewest GPUs stranded, no GPUs there at all, the least left."""
    left = after(spare(host), given)
    endless = float("inf")
    return (
        stranded(host, given),
        host.gpus > 0,
        endless if left.vcpu is None else left.vcpu,
        endless if left.ram_mb is None else left.ram_mb,
        host.node_id,
    )
