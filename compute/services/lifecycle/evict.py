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
    """Terminate those of `workloads` that are on the locked node and not terminated yet.

    `reason` becomes their statusReason. `note` is the reason that the caller gave; it goes to the audit log.
    This call releases their claims and requests the teardown of their guests. The units stay occupied until
    the node's agent confirms. Each workload gets one audit event, `vm.terminated`, in the log of its
    organization. That event has the actor's address only when the workload's user terminated it.

    Returns the workloads that this call terminated, the oldest first.
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
