"""Change the status of workloads by the table of states. Only this module writes a status."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from compute.domain import states
from compute.models import Workload
from compute.services.billing import usage_sessions
from openrelay.audit.services.record import Actor, AuditEntry, record_all
from openrelay.core.clock import rfc3339
from openrelay.core.errors import Conflict


def facts(workload: Workload) -> dict[str, Any]:
    """The state of a workload as audit events show it."""
    shown = {"status": workload.status}
    if workload.status_reason:
        shown["statusReason"] = workload.status_reason
    return shown


def move(
    workload: Workload,
    target: str,
    *,
    reason: str,
    actor: Actor,
    at: datetime,
    note: str = "",
    after: dict[str, Any] | None = None,
    event: str | None = None,
) -> None:
    """Change the status of one workload to `target`. The caller holds its node's lock; see `move_all`."""
    if not states.may(workload.status, target):
        raise Conflict(
            f"{workload.name} is {workload.status}. A workload in this state cannot become {target}."
        )
    shown = {workload.pk: after} if after else None
    move_all([workload], target, reason=reason, actor=actor, at=at, note=note, after=shown, event=event)


def move_all(
    workloads: Sequence[Workload],
    target: str,
    *,
    reason: str,
    actor: Actor,
    at: datetime,
    note: str = "",
    after: dict[Any, dict[str, Any]] | None = None,
    event: str | None = None,
    since: datetime | None = None,
) -> None:
    """Change the status of workloads of one node to `target`, with `reason` as their statusReason. The caller
    holds the node's lock.

    The UPDATE is conditional: the rows must still have the status and node that were read. Each workload gets
    one audit event, `event` or else `vm.` and the target, with `note` as its reason and what `after` has for
    its id. The objects are updated too. `since` is when the change happened, if it is noticed late.

    Raises Conflict (INVALID_STATE) when one of them is no longer in a state that may become the target.
    """
    if not workloads:
        return
    befores = {workload.pk: facts(workload) for workload in workloads}
    since = at if since is None else min(since, at)
    values: dict[str, Any] = {
        "status": target,
        "status_reason": reason[:300],
        "updated_at": at,
        **_times(workloads, target, since=since, at=at),
    }
    rows = Workload.objects.filter(
        pk__in=befores,
        status__in={workload.status for workload in workloads} & set(states.sources(target)),
        # A workload that deployed and stopped on another node in the meantime has its disk there.
        node__in={workload.node_id for workload in workloads},
    )
    if rows.update(**values) != len(befores):
        raise Conflict(
            f"The state changed meanwhile. The workload can no longer become {target}. Read it again and "
            "retry."
        )
    for workload in workloads:
        if target == states.RUNNING and workload.started_at is None:
            Workload.objects.filter(pk=workload.pk).update(started_at=at)
            workload.started_at = at
        for name, value in values.items():
            setattr(workload, name, value)
    _update_usage_sessions(
        workloads, {pk: before["status"] for pk, before in befores.items()}, target, reason, at
    )
    record_all(
        [
            AuditEntry(
                actor=actor,
                event=event or f"vm.{target}",
                target_type="vm",
                target_id=workload.pk,
                org_id=workload.organization_id,
                before=befores[workload.pk],
                after={
                    **facts(workload),
                    **({} if since == at else {"since": rfc3339(since)}),
                    **(after or {}).get(workload.pk, {}),
                },
                reason=note,
                at=at,
            )
            for workload in workloads
        ]
    )


def _times(
    workloads: Sequence[Workload], target: str, *, since: datetime, at: datetime
) -> dict[str, datetime | None]:
    """The times that a change to `target` sets."""
    times: dict[str, datetime | None] = {}
    if target != states.RUNNING or any(workload.status != target for workload in workloads):
        times["status_since"] = since
    if target == states.RUNNING:
        times["interrupted_at"] = None
    elif target == states.INTERRUPTED:
        times["interrupted_at"] = since
    elif target == states.TERMINATED:
        times["terminated_at"] = at
    elif target == states.DEPLOYING:
        times["started_at"] = times["interrupted_at"] = None
    return times


def set_status_reason(
    workloads: Sequence[Workload], reason: str, *, event: str, actor: Actor, at: datetime, note: str = ""
) -> None:
    """Change the statusReason of workloads of one node and keep their status. The caller holds its lock.

    Each workload whose reason differs gets one audit event, `event`. Raises Conflict (INVALID_STATE) when the
    status of a workload has changed since it was read.
    """
    changed = [workload for workload in workloads if workload.status_reason != reason[:300]]
    if not changed:
        return
    befores = {workload.pk: facts(workload) for workload in changed}
    rows = Workload.objects.filter(pk__in=befores, status__in={workload.status for workload in changed})
    if rows.update(status_reason=reason[:300], updated_at=at) != len(changed):
        raise Conflict("The state changed meanwhile. Read the workload again and retry.")
    for workload in changed:
        workload.status_reason, workload.updated_at = reason[:300], at
    record_all(
        [
            AuditEntry(
                actor=actor,
                event=event,
                target_type="vm",
                target_id=workload.pk,
                org_id=workload.organization_id,
                before=befores[workload.pk],
                after=facts(workload),
                reason=note,
                at=at,
            )
            for workload in changed
        ]
    )


def _update_usage_sessions(
    workloads: Sequence[Workload], were: dict[Any, str], target: str, reason: str, at: datetime
) -> None:
    """Open a usage session for each workload that starts to run, and close those of workloads that stop."""
    if target == states.RUNNING:
        starting = [workload for workload in workloads if were[workload.pk] != states.RUNNING]
        usage_sessions.open_sessions(starting, at)
    else:
        ended = [pk for pk, status in were.items() if status == states.RUNNING]
        usage_sessions.close_sessions(ended, at, reason=reason or target)
