"""How workloads, keys and GPU models read on the wire. What is unset is absent."""

from collections.abc import Sequence
from typing import Any

from compute import states
from compute.capacity import MIN_DISK_GB, Share, floor_mb, largest_guest_mb
from compute.models import Run, SshKey, Workload
from compute.placement import counts
from compute.services.availability import ModelAvailability, Offer
from compute.services.reach import endpoint
from nodes.models import GpuModel
from openrelay.clock import rfc3339


def _stage(workload: Workload) -> str | None:
    """Where a workload is on its way up: it waits for its GPUs, for its node to begin, or for the guest."""
    if workload.status == states.PENDING:
        return "waiting_for_gpus"
    if workload.status != states.DEPLOYING:
        return None
    begun = getattr(workload, "guest_observed", None) == Run.Observed.STARTING
    return "starting" if begun else "scheduled"



def vm(workload: Workload) -> dict[str, Any]:
    """A VmSummary."""
    model = workload.gpu_model
    shown: dict[str, Any] = {
        "id": str(workload.pk),
        "name": workload.name,
        "organizationId": str(workload.organization_id),
        "status": workload.status,
        "statusReason": workload.status_reason or None,
        "provisioningStage": _stage(workload),
        "tier": workload.tier,
        "capabilityTier": "pod" if workload.kind == Workload.Kind.POD else None,
        "createdAt": rfc3339(workload.created_at),
        "diskSizeGb": workload.disk_size_gb,
        "gpuCount": workload.gpu_count,
        "gpuModelId": str(model.pk) if model else None,
        "gpuModelName": model.name if model else None,
        "gpuManufacturer": model.manufacturer if model else None,
        "imageUrl": workload.image_url or None,
        "endpointUrl": endpoint(workload),
        "pricePerHourCents": workload.price_per_hour_cents,
        "public": workload.public,
    }
    return {name: value for name, value in shown.items() if value is not None}


def ssh_key(key: SshKey, *, attached: int = 0, blocking: Sequence[str] = ()) -> dict[str, Any]:
    """An SshKeySummary: the key, how many live VMs it opens, and the names of those that have no other."""
    return {
        "id": str(key.pk),
        "name": key.name,
        "publicKey": key.public_key,
        "fingerprint": key.fingerprint,
        "createdAt": rfc3339(key.created_at),
        "attachedVmCount": attached,
        "blockingVms": list(blocking),
    }


def gpu_model(model: GpuModel) -> dict[str, Any]:
    """A GpuModel."""
    shown: dict[str, Any] = {
        "id": str(model.pk),
        "name": model.name,
        "manufacturer": model.manufacturer,
        "vramGb": model.vram_gb,
        "hidden": model.hidden,
        "architecture": model.architecture or None,
        "formFactor": model.form_factor or None,
        "interconnect": model.interconnect or None,
        "createdAt": rfc3339(model.created_at),
    }
    return {name: value for name, value in shown.items() if value is not None}


def availability(found: ModelAvailability) -> dict[str, Any]:
    """A GpuAvailability."""
    model, seen = found.model, found
    per_node = [_cap(row.share) for row in seen.offers] or [_cap(share) for share in seen.shares]
    vm: dict[str, Any] = {
        "freeGpus": seen.free,
        "reservedFreeGpus": seen.reserved_free,
        "spotFreeGpus": seen.spot_free,
        "totalGpus": seen.total,
        "maxPlaceableGpus": max(counts(seen.placeable), default=0),
        "placeableGpuCounts": counts(seen.placeable),
        "spotPlaceableGpuCounts": counts(seen.spot_placeable),
        "tileLattice": counts(seen.lattice),
        "shapeSizing": True,
        "minDiskGb": MIN_DISK_GB,
        "floorPerGpu": {"ramMb": floor_mb(model.vram_gb, 1), "vcpu": 1, "diskGb": 0},
        "minPerGpu": {name: min(cap[name] for cap in per_node) for name in ("ramMb", "vcpu", "diskGb")},
        "maxPerGpu": {name: max(cap[name] for cap in per_node) for name in ("ramMb", "vcpu", "diskGb")},
        "nodes": [
            {
                "nodeId": str(node.node_id),
                "freeGpus": sum(node.sizes),
                "freeUnits": len(node.sizes),
                "unitSizes": sorted(node.sizes),
                "reserved": True,
                "spot": node.released,
            }
            for node in seen.nodes
        ],
        "offers": [_offer(offer) for offer in seen.offers],
    }
    shown = {
        "gpuModelId": str(model.pk),
        "name": model.name,
        "formFactor": model.form_factor or None,
        "vramGb": model.vram_gb,
        "vm": vm,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _offer(offer: Offer) -> dict[str, Any]:
    return {
        "perGpu": {**_cap(offer.share), "ramBudgetMb": offer.share.ram_budget_mb or 0},
        "free": {
            "ramMb": 0 if offer.left_ram_mb is None else largest_guest_mb(offer.left_ram_mb),
            "vcpu": offer.left_vcpu or 0,
            "diskGb": max(0, offer.left_disk_gb or 0),
        },
        "unitSizes": sorted(offer.sizes),
        "structuralUnitSizes": sorted(offer.structural),
        "spotUnitSizes": sorted(offer.spot_sizes),
        "spotStructuralUnitSizes": sorted(offer.spot_structural),
    }


def _cap(share: Share) -> dict[str, int]:
    """A ShapeCap: what one GPU comes with; 0 for what its node has not told."""
    return {
        "ramMb": largest_guest_mb(share.ram_budget_mb) if share.ram_budget_mb else 0,
        "vcpu": share.vcpu or 0,
        "diskGb": share.disk_gb or 0,
    }
