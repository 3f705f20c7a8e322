"""Growing a stopped VM's disk."""

from uuid import UUID

from compute import states
from compute.models import Workload
from compute.services.host import left_on
from compute.services.own import on_its_node, refuse_state
from compute.services.room import share_of
from nodes.services.survey import survey
from openrelay.audit.services.record import record
from openrelay.errors import Invalid, Unavailable
from openrelay.identity.caller import Caller


def resize_disk(*, caller: Caller, workload_id: UUID, new_size_gb: int) -> None:
    """Let a stopped VM's disk have `new_size_gb` GB from its next start on; more than it has, never less.

    Raises NotFound for one that is not the caller's; Invalid VALIDATION_ERROR for a pod and for a size that
    is not larger, VM_SHAPE_NOT_PLACEABLE above the share of its GPUs; Conflict INVALID_STATE for one that is
    not stopped; Unavailable INSUFFICIENT_HOST_CAPACITY when its node has no such room now.
    """
    with on_its_node(caller, workload_id, "compute.operate") as (held, now, workload):
        if workload.kind == Workload.Kind.POD:
            raise Invalid("The volume of a pod keeps the size it was created with. Create a new pod.")
        if workload.status != states.STOPPED:
            raise refuse_state(workload, "resize", "stopped")
        size_gb = workload.disk_size_gb
        if new_size_gb <= size_gb:
            raise Invalid(f"newSizeGb must be above {size_gb}, what the disk has: it can only grow.")
        share = share_of(held.node, survey(held.node, held.at))
        most = None if share.disk_gb is None else share.disk_gb * max(1, workload.gpu_count)
        if most is not None and new_size_gb > most:
            raise Invalid(
                f"newSizeGb is above {most}, what its GPUs come with on its node. Ask for less.",
                code="VM_SHAPE_NOT_PLACEABLE",
            )
        left = left_on(held.node, without=workload.pk)
        if (left.disk_gb is not None and new_size_gb > left.disk_gb) or (
            left.disk_free_gb is not None and new_size_gb - size_gb > left.disk_free_gb
        ):
            raise Unavailable(
                "The node that holds the disk has not that much room now. Ask for less, or try later.",
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
