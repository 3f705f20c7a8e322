"""Pods whose job was lost while their node lives: interrupted, and started again where they were."""

from typing import Final

from compute.domain import states
from compute.models import Claim, Occupancy, Run, Workload
from compute.services.agents.pod_backoff import wait_of
from compute.services.lifecycle.interrupt import interrupt
from compute.services.lifecycle.transitions import set_status_reason
from compute.services.placement.pod_admission import connect
from nodes.services.locking import LockedNode
from openrelay.audit.services.record import Actor
from openrelay.core.clock import rfc3339

JOB_LOST: Final = "its job was lost on its node and is started again"
# What a container that never came up is said to have died of.
START_FAILED: Final = "container failed to start: "


def lost_its_job(pod: Workload, observed: str) -> bool:
    """Whether a workload is a pod that ran, and its agent's word `observed` is that nobody ended it: it is
    simply no longer there.
    """
    return (
        pod.kind == Workload.Kind.POD
        and observed == Run.Observed.GONE
        and pod.status in (states.RUNNING, states.INTERRUPTED)
    )


def resubmit(held: LockedNode, lost: Run, *, actor: Actor) -> Run:
    """Have the pod of a run that is over start again by a new one, on the GPUs and volume that it has.

    It is interrupted until its node says that the new run runs. One that is lost again and again waits longer
    each time. Under the node's lock.
    """
    pod = lost.workload
    wait = wait_of(pod, lost.number + 1)
    reason = JOB_LOST
    if wait.until is not None:
        reason = f"its job was lost {wait.times} in a row and is started again at {rfc3339(wait.until)}"
    if pod.status == states.RUNNING:
        interrupt(held, [pod], reason=reason, actor=actor)
    else:
        set_status_reason([pod], reason, event="vm.job_lost", actor=actor, at=held.at)
    fresh = Run(workload=pod, node=held.node, number=lost.number + 1, created_at=held.at)
    fresh.save(force_insert=True)
    claims = Claim.objects.filter(workload=pod)
    Occupancy.objects.bulk_create(
        [
            Occupancy(run=fresh, unit_id=unit_id, node=held.node, opened_at=held.at)
            for unit_id in claims.order_by("unit_id").values_list("unit_id", flat=True)
        ]
    )
    claims.update(run=fresh)
    connect(held, pod.organization_id, pod.pk)
    return fresh


def reason_of_a_failed_start(message: str) -> str:
    """The statusReason of a pod whose container did not come up, by its agent's message."""
    said = " ".join(message.split()) or "its node gave no reason"
    return START_FAILED + said
