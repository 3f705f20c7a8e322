"""Ending workloads against their users' will: the one function behind reclaim, preemption and draining."""

from collections.abc import Sequence
from dataclasses import replace

from compute.domain import states
from compute.models import Claim, Workload
from compute.services.lifecycle.claims import release_claims
from compute.services.lifecycle.transitions import move_all
from nodes.services.locking import LockedNode
from openrelay.audit.services.record import Actor


def evict(
    locked: LockedNode, workloads: Sequence[Workload], *, reason: str, actor: Actor, note: str = ""
) -> list[Workload]:
    """Terminate those of `workloads` that are on the locked node and not terminated yet, for good.

    `reason` becomes their statusReason, `note` is what the caller gave as the reason and goes to the audit
    log. Each gives up its claims at once and has its guest torn down; its units stay occupied until the
    node's agent confirms. One audit event each, `vm.terminated`, in the log of the workload's organization;
    unless its own user ended it, that does not tell from which address, which is in the log of whoever did.

    Returns the workloads that this call terminated, the oldest first. One that is already gone is left out.
    """
    live = list(
        Workload.objects.active()
        .filter(pk__in=[workload.pk for workload in workloads], node=locked.node)
        .order_by("created_at", "id")
    )
    if not live:
        return []
    units: dict[object, list[str]] = {}
    claimed = Claim.objects.filter(workload__in=live).order_by("unit__address")
    for workload_id, address in claimed.values_list("workload_id", "unit__address"):
        units.setdefault(workload_id, []).append(address)
    move_all(
        live,
        states.TERMINATED,
        reason=reason,
        actor=actor if reason == states.USER_TERMINATED else replace(actor, source_ip=""),
        at=locked.at,
        note=note,
        after={
            workload.pk: {"nodeId": str(locked.node.pk), "unitIds": units.get(workload.pk, [])}
            for workload in live
        },
    )
    release_claims([workload.pk for workload in live], locked.at)
    return live
