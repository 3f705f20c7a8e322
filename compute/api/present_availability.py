"""How availability reads on the wire: alike offers are spelled once and counted."""

import json
from collections.abc import Iterable
from typing import Any

from compute.domain.host_shares import MIN_DISK_GB, GpuShare, floor_mb, largest_guest_mb
from compute.domain.selection import list_totals
from compute.services.fleet.availability import ModelAvailability, Offer
from openrelay.api.runs import Part

_DIMENSIONS = ("ramMb", "vcpu", "diskGb")


def availability(models: Iterable[ModelAvailability]) -> list[Part]:
    """A list of GpuAvailability as JSON, in parts: a piece, and how often it stands there."""
    parts: list[Part] = [(b"[", 1)]
    for number, found in enumerate(models):
        text = _json(_model(found))
        # The offers are the last field of the last object, so what follows them is known.
        head, _, tail = text.rpartition(b"[]")
        parts.append((b"," * bool(number) + head + b"[", 1))
        for place, offer in enumerate(found.offers):
            entry = _json(_offer(offer))
            if place == 0:
                parts.append((entry, 1))
            parts.append((b"," + entry, offer.nodes - (place == 0)))
        parts.append((b"]" + tail, 1))
    parts.append((b"]", 1))
    return [(piece, times) for piece, times in parts if times]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _model(seen: ModelAvailability) -> dict[str, Any]:
    """A GpuAvailability, with its offers still to come at its end."""
    model = seen.model
    per_node = [_cap(row.shape.share) for row in seen.offers] or [_cap(share) for share in seen.shares]
    vm: dict[str, Any] = {
        "freeGpus": seen.free,
        "reservedFreeGpus": seen.reserved_free,
        "spotFreeGpus": seen.spot_free,
        "totalGpus": seen.total,
        "maxPlaceableGpus": max(list_totals(seen.placeable), default=0),
        "placeableGpuCounts": list_totals(seen.placeable),
        "spotPlaceableGpuCounts": list_totals(seen.spot_placeable),
        "tileLattice": list_totals(seen.lattice),
        "shapeSizing": True,
        "minDiskGb": MIN_DISK_GB,
        "floorPerGpu": {"ramMb": floor_mb(model.vram_gb, 1), "vcpu": 1, "diskGb": 0},
        **_extremes(per_node),
        "nodes": [
            {
                "nodeId": str(node.node_id),
                "freeGpus": node.free,
                "freeUnits": len(node.sizes),
                "unitSizes": list(node.sizes),
                "reserved": True,
                "spot": node.released,
            }
            for node in seen.nodes
        ],
        "offers": [],
    }
    shown = {
        "gpuModelId": str(model.pk),
        "name": model.name,
        "formFactor": model.form_factor or None,
        "vramGb": model.vram_gb,
        "vm": vm,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _extremes(per_node: list[dict[str, int]]) -> dict[str, Any]:
    """The least and the most that one GPU comes with; nothing where the caller could be placed on no host."""
    if not per_node:
        return {}
    return {
        "minPerGpu": {name: min(cap[name] for cap in per_node) for name in _DIMENSIONS},
        "maxPerGpu": {name: max(cap[name] for cap in per_node) for name in _DIMENSIONS},
    }


def _offer(offer: Offer) -> dict[str, Any]:
    shape = offer.shape
    free = shape.free()
    disk_gb = [gb for gb in (free.disk_gb, shape.disk_free_gb) if gb is not None]
    return {
        "perGpu": {**_cap(shape.share), "ramBudgetMb": shape.share.ram_budget_mb or 0},
        "free": {
            "ramMb": 0 if free.ram_mb is None else largest_guest_mb(free.ram_mb),
            "vcpu": max(0, free.vcpu or 0),
            "diskGb": max(0, min(disk_gb, default=0)),
        },
        "unitSizes": shape.sizes,
        "structuralUnitSizes": shape.structural,
        "spotUnitSizes": shape.spot_sizes,
        "spotStructuralUnitSizes": shape.spot_structural,
    }


def _cap(share: GpuShare) -> dict[str, int]:
    """A ShapeCap: what one GPU comes with; 0 for what its node has not told."""
    return {
        "ramMb": 0 if share.ram_budget_mb is None else largest_guest_mb(share.ram_budget_mb),
        "vcpu": share.vcpu or 0,
        "diskGb": share.disk_gb or 0,
    }
