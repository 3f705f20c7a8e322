"""How workloads, keys and GPU models read on the wire. What is unset is absent."""

from collections.abc import Sequence
from typing import Any

from compute.domain import states
from compute.models import Run, SshKey, Workload
from compute.services.access.connection_info import endpoint
from nodes.models import GpuModel
from openrelay.core.clock import rfc3339


def _stage(workload: Workload) -> str | None:
    """Where a workload is on its way up: it waits for its GPUs, for its node to begin, or for the guest; a
    pod that lost its job, to be started again.
    """
    begun = getattr(workload, "guest_observed", None)
    coming = workload.status == states.DEPLOYING or (
        workload.status == states.INTERRUPTED and workload.kind == Workload.Kind.POD
    )
    if workload.status == states.PENDING:
        return "waiting_for_gpus"
    if coming and begun == Run.Observed.STARTING:
        return "starting"
    if workload.status == states.DEPLOYING:
        return "scheduled"
    return "waiting_to_restart" if coming and begun == Run.Observed.NOTHING else None


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
        "computeClass": workload.compute_class or None,
        "createdAt": rfc3339(workload.created_at),
        "diskSizeGb": workload.disk_size_gb,
        "volumeGb": workload.disk_size_gb if workload.kind == Workload.Kind.POD else None,
        "gpuCount": workload.gpu_count,
        "resourceSize": workload.resource_size or None,
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
