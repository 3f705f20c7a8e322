"""How reservations and units read on the wire."""

from collections.abc import Sequence
from typing import Any

from compute.models import Workload
from nodes.models import Node, ProviderApplication
from openrelay.core.clock import rfc3339
from openrelay.identity.models import Organization
from reservations.models import Reservation
from reservations.services.capacity import Eviction
from reservations.services.provider_nodes import ProviderNode, Stats
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


def reservations(rows: Sequence[Reservation]) -> list[dict[str, Any]]:
    """A list of NodeReservation."""
    return [reservation(row) for row in rows]


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
        "sellableGpus": state.facts.sellable_gpus,
        "reservable": not state.not_reservable_reason,
        "state": "free" if state.workload_id is None else "claimed",
    }
    if state.not_reservable_reason:
        shown["notReservableReason"] = state.not_reservable_reason
    if state.workload_id is not None:
        shown["claimedBy"] = f"vm:{state.workload_id}"
    if held is not None:
        shown["reservationId"] = str(held.hold_id)
        shown["released"] = held.released
    return shown


def provider_node(found: ProviderNode) -> dict[str, Any]:
    """A ProviderNode. Its disk is what its agent last said, and unknown while that is silent."""
    node = found.node
    shown: dict[str, Any] = {
        "id": str(node.pk),
        "hostname": node.hostname,
        "nodeType": node.node_class,
        "runtime": node.runtime,
        "status": node.status,
        "tdxEnabled": node.tdx_enabled,
        "gpus": [
            {"gpuName": gpus.name, "vramGb": gpus.vram_gb, "quantity": gpus.quantity} for gpus in found.gpus
        ],
        "diskTotalGb": node.disk_total_gb if node.heard else None,
        "diskFreeGb": node.disk_free_gb if node.heard else None,
        "terminateAt": rfc3339(node.terminate_at) if node.terminate_at else None,
        "createdAt": rfc3339(node.created_at),
    }
    known = {
        "cpuCores": node.cpu_cores,
        "cpuModel": node.cpu_model or None,
        "ramGb": node.ram_mb // 1024 if node.ram_mb else None,
        "locationCity": node.location.city if node.location else None,
        "locationCountry": node.location.country if node.location else None,
        "noticeSeconds": node.notice_seconds if node.node_class == Node.Class.INTERRUPTIBLE else None,
    }
    shown |= {name: value for name, value in known.items() if value is not None}
    if found.reservations:
        shown["reservation"] = {
            "reservedUnitCount": found.reserved_units,
            "releasedUnitCount": found.released_units,
            "reservations": [reservation(row) for row in found.reservations],
        }
    return shown


def provider_nodes(rows: Sequence[ProviderNode]) -> list[dict[str, Any]]:
    """A list of ProviderNode."""
    return [provider_node(row) for row in rows]


def provider_stats(counted: Stats) -> dict[str, Any]:
    """A ProviderStats."""
    return {
        "totalNodes": counted.total,
        "onlineNodes": counted.online,
        "offlineNodes": counted.offline,
        "activeTokens": counted.active_tokens,
    }


def provider_status(organization: Organization, latest: ProviderApplication | None) -> dict[str, Any]:
    """A ProviderStatus. Without an application its fields are null."""
    return {
        "isProvider": organization.is_provider,
        "applicationStatus": latest.status if latest else None,
        "applicationSubmittedAt": rfc3339(latest.submitted_at) if latest else None,
    }
