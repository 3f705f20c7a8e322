"""How reservations and units read on the wire."""

from collections.abc import Sequence
from typing import Any

from compute.models import Workload
from openrelay.clock import rfc3339
from reservations.models import Reservation
from reservations.services.capacity import Eviction
from reservations.services.units import UnitState


def reservation(found: Reservation) -> dict[str, Any]:
    """A NodeReservation. What is unset is absent."""
    shown: dict[str, Any] = {
        "id": str(found.pk),
        "nodeId": str(found.hold.node_id),
        "status": found.status,
        "reservedUnitIds": found.unit_addresses,
        "releasedUnitIds": found.released_addresses,
        "allowedOrgIds": [str(org) for org in found.audience_ids],
        "managingOrgIds": [str(org) for org in found.manager_ids],
        "startsAt": rfc3339(found.starts_at),
        "topologyGen": found.hold.topology_gen,
        "createdAt": rfc3339(found.created_at),
        "updatedAt": rfc3339(found.updated_at),
    }
    if found.ends_at is not None:
        shown["endsAt"] = rfc3339(found.ends_at)
    if found.contract_ref:
        shown["contractRef"] = found.contract_ref
    if found.reason:
        shown["reason"] = found.reason
    return shown


def reclaimed(found: Reservation, eviction: Eviction, *, dry_run: bool) -> dict[str, Any]:
    """A NodeReservation after a reclaim, with whom it ended and whom it left; both lists, even empty."""
    ended, left = ("wouldTerminate", "wouldSkip") if dry_run else ("terminated", "skipped")
    return {**reservation(found), ended: ids(eviction.victims), left: ids(eviction.skipped)}


def ids(workloads: Sequence[Workload]) -> list[str]:
    """Workload ids, sorted."""
    return sorted(str(workload.pk) for workload in workloads)


def unit(state: UnitState) -> dict[str, Any]:
    """A NodeGpuUnitItem."""
    found, held = state.facts.unit, state.facts.held
    shown: dict[str, Any] = {
        "id": found.address,
        "allocClass": found.alloc_class,
        "gpuModelId": str(found.gpu_model_id),
        "gpuModelName": found.gpu_model.name,
        "sellableGpus": found.sellable_gpus,
        "reservable": not found.not_reservable_reason,
        "state": "free" if state.workload_id is None else "claimed",
    }
    if found.not_reservable_reason:
        shown["notReservableReason"] = found.not_reservable_reason
    if state.workload_id is not None:
        shown["claimedBy"] = f"vm:{state.workload_id}"
    if held is not None:
        shown["reservationId"] = str(held.hold_id)
        shown["released"] = held.released
    return shown
