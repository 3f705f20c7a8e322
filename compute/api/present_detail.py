"""How one workload reads in full. What is unset is absent."""

from datetime import datetime
from typing import Any

from compute.api import presenters
from compute.models import SshKey, Workload
from compute.services.access.workload_detail import Detail
from openrelay.core.clock import rfc3339


def detail(found: Detail) -> dict[str, Any]:
    """A VmDetail."""
    workload, guest, ssh, session = found.workload, found.guest, found.ssh, found.session
    template = workload.template
    model, node = workload.gpu_model, workload.node
    pod = workload.kind == Workload.Kind.POD
    cents = found.cents_per_hour
    host = node if pod and found.node_heard else None
    shown: dict[str, Any] = {
        **presenters.vm(workload),
        "healthy": found.healthy,
        "resourceSize": workload.resource_size,
        "pricePerHourCents": cents,
        "nonBillable": session.non_billable if session else None,
        "updatedAt": rfc3339(workload.updated_at),
        "startedAt": _time(workload.started_at),
        "interruptedAt": _time(workload.interrupted_at),
        "terminatedAt": _time(workload.terminated_at),
        "guestMemMb": workload.guest_mem_mb,
        "guestVcpu": workload.guest_vcpu,
        "requestedGuestMemMb": workload.requested_guest_mem_mb,
        "containerPort": workload.container_port,
        "gpuInfo": {
            "name": model.name,
            "manufacturer": model.manufacturer,
            "vramGb": model.vram_gb,
            **({"pricePerHourCents": cents // workload.gpu_count} if cents and workload.gpu_count else {}),
        }
        if model
        else None,
        "templateInfo": {
            "name": template.name,
            "osType": template.os_type,
            **({"osVersion": template.os_version} if template.os_version else {}),
        }
        if template
        else None,
        "osType": template.os_type if template else None,
        "nodeInfo": {"location": node.location.name} if node and node.location else None,
        "diskTotalBytes": guest.disk_total_bytes if guest and not pod else None,
        "diskUsedBytes": guest.disk_used_bytes if guest and not pod else None,
        "volumeMountPath": Workload.VOLUME_PATH if pod else None,
        "volumeUsedBytes": guest.disk_used_bytes if pod and guest else None,
        "volumeUsedAt": _time(guest.said_at) if pod and guest and guest.disk_used_bytes is not None else None,
        "hostDiskTotalGb": host.disk_total_gb if host else None,
        "hostDiskFreeGb": host.disk_free_gb if host else None,
        "sshHandle": ssh.handle,
        "sshHost": ssh.host,
        "sshPort": ssh.port,
        "sshCommand": ssh.command,
        "sshUser": ssh.user,
        "sshReady": ssh.state == "ready",
        "sshState": ssh.state,
        "sshStateReason": ssh.reason,
    }
    for name in ("gpuModelName", "gpuManufacturer"):
        shown.pop(name, None)
    return {name: value for name, value in shown.items() if value is not None}


def ssh_key(key: SshKey, *, attached: bool) -> dict[str, Any]:
    """A VmSshKeyItem. Keys of other organizations open nothing here."""
    return {
        "id": str(key.pk),
        "name": key.name,
        "fingerprint": key.fingerprint,
        "attached": attached,
        "crossOrg": False,
        "orgName": None,
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else rfc3339(moment)
