"""What an organization could have now, model by model, as placement would decide it.

Only nodes that are online and take new work count. Units reserved to others leave every figure; what they put
on the spot market counts as that alone. The organization's own active reservations count as free, and apart.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, Sum

from compute import states
from compute.capacity import Share, allocatable_mb, footprint_mb, share
from compute.models import Claim, Occupancy, Run, Workload
from compute.placement import sums
from compute.services import pool
from nodes.models import Gpu, GpuModel, HoldAudience, HoldUnit, Node
from openrelay import clock


@dataclass(slots=True)
class Offer:
    """What one node gives, unnamed: sizes of units that are free, and of all that could be."""

    share: Share
    left_ram_mb: int | None
    left_vcpu: int | None
    left_disk_gb: int | None
    sizes: list[int] = field(default_factory=list)
    structural: list[int] = field(default_factory=list)
    spot_sizes: list[int] = field(default_factory=list)
    spot_structural: list[int] = field(default_factory=list)


@dataclass(slots=True)
class OwnNode:
    """A node with units reserved to the organization: the sizes of those that are free."""

    node_id: UUID
    sizes: list[int] = field(default_factory=list)
    released: bool = False


@dataclass(slots=True)
class ModelAvailability:
    """One GPU model. The masks are those of `placement.sums`."""

    model: GpuModel
    free: int = 0
    reserved_free: int = 0
    spot_free: int = 0
    total: int = 0
    placeable: int = 1
    spot_placeable: int = 1
    lattice: int = 1
    offers: list[Offer] = field(default_factory=list)
    nodes: list[OwnNode] = field(default_factory=list)
    shares: list[Share] = field(default_factory=list)  # of every node with the model, placeable or not


@dataclass(frozen=True, slots=True)
class _Unit:
    node_id: UUID
    model_id: UUID
    gpus: int
    used: bool
    failed: bool
    held: bool
    own: bool  # held for the organization, and active
    on_market: bool  # held for others, active, and released
    released: bool


@dataclass(frozen=True, slots=True)
class _Host:
    node_id: UUID
    placeable: bool
    share: Share
    left_ram_mb: int | None
    left_vcpu: int | None
    left_disk_gb: int | None


def availability(organization_id: UUID) -> list[ModelAvailability]:
    """Every GPU model that nodes have VM units of, as the organization may place on them now, by name.

    Hidden models show only to whom they are reserved. Eight queries, whatever the fleet.
    """
    at = clock.read()
    units = _units(organization_id, at)
    hosts = _hosts(units, at)
    by_model: dict[UUID, dict[UUID, list[_Unit]]] = {}
    for unit in units:
        by_model.setdefault(unit.model_id, {}).setdefault(unit.node_id, []).append(unit)
    found = []
    for model in GpuModel.objects.filter(pk__in=by_model).order_by("name", "pk"):
        seen = ModelAvailability(model)
        for node_id, of_node in sorted(by_model[model.pk].items()):
            _add(seen, hosts[node_id], of_node)
        if not model.hidden or seen.nodes:
            found.append(seen)
    return found


def _add(seen: ModelAvailability, host: _Host, units: Iterable[_Unit]) -> None:
    """Count one node's units of the model in."""
    units = list(units)
    seen.lattice |= sums(unit.gpus for unit in units)
    seen.shares.append(host.share)
    if not host.placeable:
        return
    offer = Offer(host.share, host.left_ram_mb, host.left_vcpu, host.left_disk_gb)
    own = OwnNode(host.node_id)
    for unit in units:
        free = not unit.used and not unit.failed
        if unit.on_market:
            offer.spot_structural.append(unit.gpus)
            if free:
                offer.spot_sizes.append(unit.gpus)
            continue
        if unit.held and not unit.own:
            continue
        offer.structural.append(unit.gpus)
        if free or unit.used:
            seen.total += unit.gpus
        if free:
            offer.sizes.append(unit.gpus)
        if unit.own:
            own.released = own.released or unit.released
            if free:
                own.sizes.append(unit.gpus)
    if any(unit.own for unit in units):
        seen.nodes.append(own)
    if not offer.structural and not offer.spot_structural:
        return
    seen.offers.append(offer)
    seen.free += sum(offer.sizes)
    seen.reserved_free += sum(own.sizes)
    seen.spot_free += sum(offer.spot_sizes)
    seen.placeable |= sums(offer.sizes)
    seen.spot_placeable |= sums([*offer.sizes, *offer.spot_sizes])


def _units(organization_id: UUID, at: datetime) -> list[_Unit]:
    own = HoldAudience.objects.filter(hold=OuterRef("hold"), organization_id=organization_id)
    held = {
        unit_id: (released, is_own, active)
        for unit_id, released, is_own, active in HoldUnit.objects.in_term(at)
        .annotate(own=Exists(own), active=Q(hold__topology_gen=F("hold__node__topology_gen")))
        .values_list("unit_id", "released", "own", "active")
    }
    rows = (
        pool.vm_units()
        .filter(node__in=pool.vm_nodes())
        .annotate(
            used=Exists(Claim.objects.filter(unit=OuterRef("pk")))
            | Exists(Occupancy.objects.open().filter(unit=OuterRef("pk"))),
            failed=Exists(Gpu.objects.filter(unit=OuterRef("pk"), failed_at__isnull=False)),
        )
        .order_by()
        .values_list("pk", "node_id", "gpu_model_id", "gpu_count", "used", "failed")
    )
    units = []
    for pk, node_id, model_id, gpus, used, failed in rows:
        released, is_own, active = held.get(pk, (False, False, False))
        units.append(
            _Unit(
                node_id=node_id,
                model_id=model_id,
                gpus=gpus,
                used=used,
                failed=failed,
                held=pk in held,
                own=is_own and active,
                on_market=released and active and not is_own,
                released=released,
            )
        )
    return units


def _hosts(units: Iterable[_Unit], at: datetime) -> dict[UUID, _Host]:
    gpus: dict[UUID, int] = {}
    for unit in units:
        gpus[unit.node_id] = gpus.get(unit.node_id, 0) + unit.gpus
    ram: dict[UUID, int] = {}
    vcpu: dict[UUID, int] = {}
    disk: dict[UUID, int] = {
        row["node_id"]: row["disk"]
        for row in Workload.objects.active()
        .filter(node__isnull=False)
        .order_by()
        .values("node_id")
        .annotate(disk=Sum("disk_size_gb"))
    }
    for node_id, guest_mem, guest_vcpu, guest_disk, status in Run.objects.open().values_list(
        "node_id",
        "workload__guest_mem_mb",
        "workload__guest_vcpu",
        "workload__disk_size_gb",
        "workload__status",
    ):
        ram[node_id] = ram.get(node_id, 0) + (footprint_mb(guest_mem) if guest_mem else 0)
        vcpu[node_id] = vcpu.get(node_id, 0) + (guest_vcpu or 0)
        if status == states.TERMINATED:
            disk[node_id] = disk.get(node_id, 0) + guest_disk
    placeable = set(Node.objects.taking_new_work(at).values_list("pk", flat=True))
    hosts = {}
    for pk, ram_mb, cpu_cores, disk_total_gb in pool.vm_nodes().values_list(
        "pk", "ram_mb", "cpu_cores", "disk_total_gb"
    ):
        hosts[pk] = _Host(
            node_id=pk,
            placeable=pk in placeable,
            share=share(
                gpus=gpus.get(pk, 0), ram_mb=ram_mb, cpu_cores=cpu_cores, disk_total_gb=disk_total_gb
            ),
            left_ram_mb=max(0, allocatable_mb(ram_mb) - ram.get(pk, 0)) if ram_mb else None,
            left_vcpu=max(0, cpu_cores - vcpu.get(pk, 0)) if cpu_cores else None,
            left_disk_gb=max(0, disk_total_gb - disk.get(pk, 0)) if disk_total_gb else None,
        )
    return hosts
