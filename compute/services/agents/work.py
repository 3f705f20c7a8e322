"""What a node's agent is asked to do: which guests to run, with what, and which to tear down."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from compute.models import Occupancy, Run, SshKey, Workload
from compute.services.agents.pod_backoff import held_back
from compute.services.lifecycle.claims import find_awaited_runs
from nodes.models import FabricAddress, Node


def work_for(node: Node) -> list[dict[str, Any]]:
    """The open runs of the node as its agent reads them, the oldest first.

    A wanted run carries its whole specification, and in `waitsFor` the earlier runs that may still be on its
    units: the agent starts it after they are gone. A pod's run that backs off is left out until its time.
    Five queries, six with pods, seven with pods that were started again, whatever the number of runs.
    """
    runs = list(
        Run.objects.open()
        .filter(node=node)
        .select_related("workload__gpu_model", "workload__template")
        .order_by("created_at", "id")
    )
    later = held_back(runs)
    runs = [run for run in runs if run.pk not in later]
    waits = find_awaited_runs(run for run in runs if run.desired == Run.Desired.RUNNING)
    units, keys, addresses = _units_of(runs), _keys_of(runs), _addresses_of(runs)
    return [
        {
            "runId": str(run.pk),
            "workloadId": str(run.workload_id),
            "number": run.number,
            "desired": run.desired,
            "units": units.get(run.pk, []),
            "waitsFor": [str(other) for other in waits.get(run.pk, [])],
            **(
                {
                    "reboots": run.reboots,
                    "spec": _spec(
                        run.workload, keys.get(run.workload_id, []), addresses.get(run.workload_id)
                    ),
                }
                if run.desired == Run.Desired.RUNNING
                else {}
            ),
        }
        for run in runs
    ]


def _units_of(runs: Sequence[Run]) -> dict[UUID, list[dict[str, Any]]]:
    """By run, the units that it occupies, by address."""
    units: dict[UUID, list[dict[str, Any]]] = {}
    occupancies = (
        Occupancy.objects.filter(run__in=runs)
        .select_related("unit")
        .prefetch_related("unit__gpus")
        .order_by("unit__address")
    )
    for occupancy in occupancies:
        units.setdefault(occupancy.run_id, []).append(
            {
                "address": occupancy.unit.address,
                "iommuGroup": occupancy.unit.iommu_group,
                "gpus": [gpu.address for gpu in occupancy.unit.gpus.all()],
            }
        )
    return units


def _keys_of(runs: Sequence[Run]) -> dict[UUID, list[str]]:
    """By workload, the public keys attached to it, the oldest first."""
    keys: dict[UUID, list[str]] = {}
    rows = SshKey.objects.filter(workloads__in=[run.workload_id for run in runs]).order_by("created_at", "id")
    for workload_id, key in rows.values_list("workloads__id", "public_key"):
        keys.setdefault(workload_id, []).append(key)
    return keys


def _addresses_of(runs: Sequence[Run]) -> dict[UUID, str]:
    """By pod, its address on the InfiniBand fabric. No query when there are no pods."""
    pods = [run.workload_id for run in runs if run.workload.kind == Workload.Kind.POD]
    if not pods:
        return {}
    rows = FabricAddress.objects.filter(holder__in=pods).values_list("holder", "address")
    return {holder: str(address) for holder, address in rows if holder is not None}


def _spec(workload: Workload, ssh_keys: list[str], fabric_address: str | None) -> dict[str, Any]:
    spec = {
        "name": workload.name,
        "kind": workload.kind,
        "organizationId": str(workload.organization_id),
        "tier": workload.tier,
        "gpuCount": workload.gpu_count,
        "gpuModel": workload.gpu_model.slug if workload.gpu_model else None,
        "guestMemMb": workload.guest_mem_mb,
        "guestVcpu": workload.guest_vcpu,
        "diskSizeGb": workload.disk_size_gb,
        "volumeMountPath": Workload.VOLUME_PATH if workload.kind == Workload.Kind.POD else None,
        "shmMb": workload.shm_mb,
        "fabricAddress": fabric_address,
        "sshKeys": ssh_keys,
        "template": workload.template.filename if workload.template else None,
        "imageUrl": workload.image_url or None,
        "cloudInit": workload.cloud_init or None,
        "envVars": workload.env_vars or None,
        "containerCommand": workload.container_command or None,
        "containerPort": workload.container_port,
        "healthCheckPath": workload.health_check_path or None,
        "healthCheckPort": workload.health_check_port,
        "healthChecks": workload.health_checks or None,
        "kernelModules": workload.kernel_modules or None,
        "privileged": workload.privileged,
        "public": workload.public,
    }
    return {name: value for name, value in spec.items() if value is not None}
