"""Growing a stopped VM's disk."""

from uuid import UUID

from compute.domain import states
from compute.domain.host_usage import HostRemaining
from compute.models import Workload
from compute.services.lifecycle.workload_lock import has_lost_disk, lock_workload, refuse_state
from compute.services.placement.cpu_beside import remaining_beside_cpu_vms
from compute.services.placement.cpu_decide import remaining_for_cpu_vms
from compute.services.placement.decide import share_of
from compute.services.placement.snapshot import read_snapshot
from nodes.services.locking import LockedNode
from openrelay.audit.services.record import record
from openrelay.core.errors import Conflict, Invalid, Unavailable
from openrelay.identity.caller import Caller


def resize_disk(*, caller: Caller, workload_id: UUID, new_size_gb: int) -> None:
    """Let a stopped VM's disk have `new_size_gb` GB from its next start on; more than it has, never less.

    Raises NotFound for one that is not the caller's; Invalid VALIDATION_ERROR for a pod and for a size that
    is not larger, VM_SHAPE_NOT_PLACEABLE above the share of its GPUs; Conflict INVALID_STATE for one that is
    not stopped, or whose node was removed; Unavailable INSUFFICIENT_HOST_CAPACITY when its node has no such
    room now.
    """
    with lock_workload(caller, workload_id, "compute.operate") as (held, now, workload):
        if workload.kind == Workload.Kind.POD:
            raise Invalid("The volume of a pod keeps the size it was created with. Create a new pod.")
        if workload.status != states.STOPPED:
            raise refuse_state(workload, "resize", "stopped")
        if has_lost_disk(held, workload):
            raise Conflict(
                f"The node of {workload.name} was removed, and its disk with it. Restart it to deploy it "
                "elsewhere, with a new disk of the same size."
            )
        size_gb = workload.disk_size_gb
        if new_size_gb <= size_gb:
            raise Invalid(f"newSizeGb must be above {size_gb}, the size of the disk: a disk can only grow.")
        most, left = _room(held, workload)
        if most and new_size_gb > most:
            raise Invalid(
                f"newSizeGb is above {most}, the most that its node could ever give it. Ask for less.",
                code="VM_SHAPE_NOT_PLACEABLE",
            )
        if (left.disk_gb is not None and new_size_gb > left.disk_gb) or (
            left.disk_free_gb is not None and new_size_gb - size_gb > left.disk_free_gb
        ):
            raise Unavailable(
                "The node of the disk does not have that much free space now. Ask for less, or try later.",
                code="INSUFFICIENT_HOST_CAPACITY",
            )
        Workload.objects.filter(pk=workload.pk).update(disk_size_gb=new_size_gb, updated_at=held.at)
        record(
            now.actor,
            "vm.disk_resized",
            target_type="vm",
            target_id=workload.pk,
            org_id=workload.organization_id,
            before={"diskSizeGb": size_gb},
            after={"diskSizeGb": new_size_gb},
            at=held.at,
        )


def _room(held: LockedNode, workload: Workload) -> tuple[int | None, HostRemaining]:
    """The most GB that its disk could have on its node, None for no limit, and what is left there now."""
    if not workload.gpu_count:
        left = remaining_for_cpu_vms(
            held, workload.organization_id, named=True, excluding_workload=workload.pk
        )
        return held.node.disk_total_gb, left
    snapshot = read_snapshot(held, workload.organization_id, workload.tier, excluding_workload=workload.pk)
    each = share_of(held.node, snapshot.units)
    most = None if each.disk_gb is None else each.disk_gb * workload.gpu_count
    # As for a new one: what is beside VMs without GPUs leaves reserved GPUs their share.
    left = remaining_beside_cpu_vms(
        snapshot,
        snapshot.left(excluding_workload=workload.pk),
        workload.organization_id,
        named=True,
        chosen=(),
        excluding_runs=(),
        excluding_workload=workload.pk,
    )
    return most, left
