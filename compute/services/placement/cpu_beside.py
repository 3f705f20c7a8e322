"""What of a host is left for GPUs where VMs without GPUs are.

Those may take what free GPUs would start with. So that GPUs that nobody reserved do not start on what
reserved ones need then, the shares of these are kept from them too, while the reservation's term lasts.
"""

from collections.abc import Collection
from uuid import UUID

from compute.domain import states
from compute.domain.cpu_shares import Guest, Host, host_remaining, share_of
from compute.domain.host_usage import HostRemaining
from compute.services.placement.snapshot import NodeSnapshot
from nodes.models import GpuUnit


def remaining_beside_cpu_vms(
    snapshot: NodeSnapshot,
    left: HostRemaining,
    organization_id: UUID,
    *,
    named: bool,
    chosen: Collection[UUID],
    excluding_runs: Collection[UUID],
    excluding_workload: UUID | None,
) -> HostRemaining:
    """What is left for a workload of that organization on the units `chosen`: `left` itself where there is no
    VM without GPUs.

    The runs in `excluding_runs` count as over, and `excluding_workload` as not there. `named` as for placing.
    """
    on_units: dict[UUID, list[UUID]] = {}  # by run, the units it may be on
    for unit_id, rows in snapshot.occupancies.items():
        for row in rows:
            on_units.setdefault(row.run_id, []).append(unit_id)
    if all(guest.run_id in on_units for guest in snapshot.guests):
        return left
    for_sale = [unit for unit in snapshot.units if unit.for_sale and unit.alloc_class == GpuUnit.VFIO_GROUP]
    kept = {
        unit.id: unit.gpus
        for unit in for_sale
        if unit.held is not None
        and unit.id not in chosen
        and not (named and unit.held.serves(organization_id))
    }
    guests = []
    disk_gb = snapshot.disk_gb
    for guest in snapshot.guests:
        if guest.workload_id == excluding_workload:
            continue
        kept_gpus = sum(kept.get(unit_id, 0) for unit_id in on_units.get(guest.run_id, ()))
        if guest.run_id in excluding_runs:
            guests.append(Guest(0, 0, 0, kept_gpus))
            continue
        guests.append(Guest(guest.mem_mb or 0, guest.vcpu or 0, guest.disk_gb, kept_gpus))
        disk_gb += guest.disk_gb if guest.status == states.TERMINATED else 0
    node = snapshot.held.node
    host = Host(
        node_id=node.pk,
        ram_mb=node.ram_mb,
        cpu_cores=node.cpu_cores,
        disk_total_gb=node.disk_total_gb,
        disk_free_gb=node.disk_free_gb,
        gpus=sum(unit.gpus for unit in for_sale),
        kept_gpus=sum(gpus for unit_id, gpus in kept.items() if unit_id not in snapshot.occupancies),
        free_gpus=0,
        disk_gb=disk_gb,
        guests=tuple(guests),
    )
    unkept, each = (
        host_remaining(host).plus(
            snapshot.twice(excluding_runs=excluding_runs, excluding_workload=excluding_workload)
        ),
        share_of(host),
    )
    # Whoever starts on reserved units has these units' own share, however short others are already.
    own = sum(unit.gpus for unit in for_sale if unit.held is not None and unit.id in chosen)
    return HostRemaining(
        ram_mb=_more(unkept.ram_mb, left.ram_mb, each.ram_budget_mb, own),
        vcpu=_more(unkept.vcpu, left.vcpu, each.vcpu, own),
        disk_gb=_more(unkept.disk_gb, left.disk_gb, each.disk_gb, own),
        disk_free_gb=left.disk_free_gb,
    )


def _more(unkept: int | None, left: int | None, part: int | None, own: int) -> int | None:
    """The larger of what nobody keeps and, as far as it is there, so many GPUs' own part."""
    if unkept is None or left is None:
        return left
    return max(unkept, min(left, (part or 0) * own))
