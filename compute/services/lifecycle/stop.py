"""Stop a workload for its user."""

from uuid import UUID

from compute.domain import states
from compute.models import Workload
from compute.services.lifecycle.claims import release_claims
from compute.services.lifecycle.transitions import move
from compute.services.lifecycle.workload_lock import find, lock_workload, refuse_state, require_its_node
from openrelay.core.errors import Conflict
from openrelay.identity.caller import Caller
from openrelay.identity.models import Organization


def stop(*, caller: Caller, workload_id: UUID) -> Workload:
    """Stop a workload. It releases its GPUs and keeps its disk and its node.

    Raises NotFound for a workload of another organization; Conflict INVALID_STATE for one that is not
    deploying, running or interrupted, or whose node has come to its announced end; Conflict STOP_DISABLED for
    a VM of an organization that may not stop VMs.
    """
    with lock_workload(caller, workload_id, "compute.operate") as (held, now, workload):
        if workload.kind == Workload.Kind.VM and not may_stop(now):
            raise Conflict(
                "Stopping VMs is switched off for your organization. Let it run, or terminate it.",
                code="STOP_DISABLED",
            )
        if not states.may(workload.status, states.STOPPED):
            raise refuse_state(workload, "stop", "deploying, running or interrupted")
        require_its_node(held, workload)
        move(workload, states.STOPPED, reason=states.USER_STOPPED, actor=now.actor, at=held.at)
        release_claims([workload.pk], held.at)
        return find(now, workload_id)


def may_stop(caller: Caller) -> bool:
    """Whether the caller's organization may stop VMs."""
    allowed: bool = Organization.objects.values_list("stop_enabled", flat=True).get(pk=caller.organization_id)
    return allowed
