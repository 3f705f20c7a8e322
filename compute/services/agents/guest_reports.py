"""Taking a node agent's account of its guests.

Only what is said of a run explicitly counts, and only for that run: a run that a report leaves out is as it
was.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from compute.domain import states
from compute.models import AgentState, FlaggedReport, Occupancy, Run, Workload
from compute.services.agents.pod_recovery import lost_its_job, reason_of_a_failed_start, resubmit
from compute.services.lifecycle.claims import close, let_waiting_deploy, release_claims
from compute.services.lifecycle.drain import leaving_reason
from compute.services.lifecycle.evict import evict
from compute.services.lifecycle.guest_telemetry import store_guest_telemetry
from compute.services.lifecycle.transitions import move
from nodes.models import Node
from nodes.services.locking import LockedNode, locked
from nodes.services.report_order import (
    Verdict,
    begin_epoch,
    judge_report,
    record_out_of_order_report,
    with_current_epoch,
)
from openrelay.audit.services.record import SYSTEM, Actor, record
from openrelay.audit.services.repeats import record_repeated
from openrelay.core import clock

# What becomes of a workload that should run, by what its agent says of its guest's end.
_ENDINGS = {
    Run.Observed.STOPPED: (states.STOPPED, states.VM_EXITED),
    Run.Observed.FAILED: (states.FAILED, "the guest failed"),
    Run.Observed.GONE: (states.FAILED, "the guest is gone from its node"),
    Run.Observed.NEVER_STARTED: (states.FAILED, "the guest could not be started"),
}


@dataclass(frozen=True, slots=True)
class Guest:
    """What a report says of one run. `state` is one of `Run.Observed` but nothing."""

    run_id: UUID
    state: str
    message: str = ""
    ssh_ready: bool | None = None
    console: str | None = None
    disk_total_bytes: int | None = None
    disk_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """An agent's account. `complete` is false when it could not look at all of its guests."""

    sequence: int
    complete: bool
    guests: tuple[Guest, ...]
    epoch: str = ""  # of the agent's start; empty where it sends none

    @property
    def content(self) -> str:
        """SHA-256 of what the report says, its place in the order apart."""
        return hashlib.sha256(repr((self.complete, self.guests)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a report: why it was flagged, if it was, and which of its runs are to be torn down."""

    flagged: str
    tear_down: tuple[UUID, ...]


def take_report(*, node: Node, report: Report, actor: Actor) -> Taken:
    """Take what the node's agent says of its guests.

    A report older than one already taken (see `nodes.services.report_order`), one with the sequence of a
    taken one and other content, or one that is not complete, changes nothing and is flagged; so is one that
    leaves out runs that were there, or names runs that are not the node's, and of it the rest is taken. The
    same report again changes nothing. Nothing is locked unless something changes.
    """
    content = report.content
    state = _state(node)
    verdict = _judge(state, report, content, state.now)
    if verdict.is_repeated:
        return Taken(state.flag, _unknown(report, _runs(node, report)))
    doubt = _doubt(report, verdict)
    if doubt:
        if verdict.flag_reason:
            record_out_of_order_report(state, epoch=report.epoch, sequence=report.sequence, at=state.now)
        _flag(node, report, doubt, actor)
        return Taken(doubt, ())
    runs = _runs(node, report)
    store_guest_telemetry([guest for guest in report.guests if guest.run_id in runs])
    changes = any(_differs(runs[guest.run_id], guest) for guest in report.guests if guest.run_id in runs)
    if not changes and not verdict.starts_count:
        flag = _oddities(node, report, runs)
        AgentState.objects.filter(node=node, epoch=report.epoch, last_sequence__lt=report.sequence).update(
            last_sequence=report.sequence, last_content=content, last_report_at=clock.Now()
        )
        _flag(node, report, flag, actor)
        return Taken(flag, _unknown(report, runs))

    with locked(node.pk) as held:
        state = _state(node)
        tear_down: tuple[UUID, ...] = ()
        verdict = _judge(state, report, content, held.at)
        flag = "" if verdict.is_repeated else _doubt(report, verdict)
        if not flag and not verdict.is_repeated:
            if verdict.starts_count:
                begin_epoch(node.pk, report.epoch, current=state.current_epoch, at=held.at)
            AgentState.objects.filter(node=node).update(
                epoch=report.epoch,
                last_sequence=report.sequence,
                last_content=content,
                last_report_at=held.at,
            )
            runs = _runs(held.node, report)
            returned = [
                guest.run_id
                for guest in report.guests
                if guest.run_id in runs and _apply(held, runs[guest.run_id], guest, report.sequence, actor)
            ]
            let_waiting_deploy(held.node, actor=actor, at=held.at)
            flag = _oddities(node, report, runs, returned)
            tear_down = (*_unknown(report, runs), *returned)
        _flag(node, report, flag, actor)
    return Taken(flag, tear_down)


def _state(node: Node) -> Any:
    """The node's row of AgentState with its current epoch and the time."""
    rows = with_current_epoch(AgentState.objects.filter(node=node))
    found = rows.first()
    if found is None:
        AgentState.objects.get_or_create(node=node)
        found = rows.get()
    return found


def _judge(state: Any, report: Report, content: str, at: datetime) -> Verdict:
    return judge_report(
        state,
        last_sequence=state.last_sequence,
        last_content=state.last_content,
        epoch=report.epoch,
        sequence=report.sequence,
        content=content,
        at=at,
    )


def _doubt(report: Report, verdict: Verdict) -> str:
    if verdict.flag_reason:
        return verdict.flag_reason
    if not report.complete:
        return "it is partial: the agent could not look at all of its guests"
    return ""


def _runs(node: Node, report: Report) -> dict[UUID, Run]:
    """The runs of this node that the report speaks of; no other node's run is ever touched."""
    rows = Run.objects.filter(node=node, pk__in=[guest.run_id for guest in report.guests])
    runs = {run.pk: run for run in rows.select_related("workload")}
    for run in runs.values():
        run.node = node
    return runs


def _unknown(report: Report, runs: dict[UUID, Run]) -> tuple[UUID, ...]:
    return tuple(
        guest.run_id for guest in report.guests if guest.run_id not in runs and guest.state in Run.LIVE
    )


def _oddities(node: Node, report: Report, runs: dict[UUID, Run], returned: Sequence[UUID] = ()) -> str:
    """What is odd about a report that was taken, in words; empty when nothing is."""
    there = Run.objects.open().filter(node=node, observed__in=Run.LIVE)
    missing = there.exclude(pk__in=[guest.run_id for guest in report.guests]).count()
    found = []
    if missing and not report.guests:
        found.append(f"it is empty, though {missing} guests were there")
    elif missing:
        found.append(f"it leaves out {missing} guests that were there")
    if unknown := _unknown(report, runs):
        found.append(f"it names {len(unknown)} guests that are not this node's")
    if returned:
        found.append(f"{len(returned)} guests are there that were said to be over")
    return "; ".join(found)


def _differs(run: Run, guest: Guest) -> bool:
    """Whether the guest's state is news."""
    if run.closed_at is not None:
        return guest.state in Run.LIVE
    if guest.state == Run.Observed.RUNNING and run.workload.status == states.INTERRUPTED:
        return run.desired == Run.Desired.RUNNING  # it is heard of again, though it says nothing new
    return run.observed != guest.state or run.message != guest.message[:300]


def _apply(held: LockedNode, run: Run, guest: Guest, sequence: int, actor: Actor) -> bool:
    """Take what is said of one run, under its node's lock; returns whether a run that was over turned up
    again.
    """
    if not _differs(run, guest):
        return False
    returned = run.closed_at is not None
    Run.objects.filter(pk=run.pk).update(
        observed=guest.state, observed_at=held.at, observed_sequence=sequence, message=guest.message[:300]
    )
    if returned:
        _reopen(run, actor, held.at)
        return True
    if guest.state in Run.ENDED:
        close(run, by=Occupancy.AGENT, at=held.at)
    if run.desired == Run.Desired.RUNNING:
        _follow(held, run, guest, actor)
    return False


def _follow(held: LockedNode, run: Run, guest: Guest, actor: Actor) -> None:
    """Bring the workload to what its guest is. Once its node's end has come it is to become nothing but
    terminated, as what still runs there is by the node's removal.
    """
    workload, at = run.workload, held.at
    if held.is_removed:
        if guest.state in Run.ENDED:
            evict(held, [workload], reason=states.NODE_REMOVED, actor=SYSTEM)
        return
    if guest.state in Run.LIVE and workload.status == states.PENDING:
        move(workload, states.DEPLOYING, reason="", actor=actor, at=at)
    if guest.state == Run.Observed.RUNNING and workload.status in (states.DEPLOYING, states.INTERRUPTED):
        move(workload, states.RUNNING, reason=leaving_reason(run.node), actor=actor, at=at)
    if guest.state in Run.ENDED and lost_its_job(workload, guest.state):
        resubmit(held, run, actor=actor)
    elif guest.state in Run.ENDED and workload.status in states.HOLDING:
        target, reason = _ENDINGS[Run.Observed(guest.state)]
        if target == states.STOPPED and not states.may(workload.status, target):
            target, reason = states.FAILED, "the guest stopped before it had started"
        coming = workload.status in (states.PENDING, states.DEPLOYING)
        # `run.observed` is from before this word.
        never_ran = target == states.FAILED and run.observed != Run.Observed.RUNNING
        if workload.kind == Workload.Kind.POD and (coming or never_ran):
            target, reason = states.FAILED, reason_of_a_failed_start(guest.message)
        elif target == states.FAILED:
            reason = _why(reason, guest.message)
        move(workload, target, reason=reason, actor=actor, at=at)
        release_claims([workload.pk], at)


def _why(what: str, message: str) -> str:
    """The statusReason of what failed: its agent's message, where that cannot be taken for the platform's."""
    said = message.strip()
    if not said:
        return what
    return f"{what}: {said}" if states.read_by_programs(said) else said


def _reopen(run: Run, actor: Actor, at: datetime) -> None:
    """A guest that was over is there after all: its units are occupied, and it is to go."""
    Run.objects.filter(pk=run.pk).update(
        closed_at=None, desired=Run.Desired.GONE, gone_asked_at=at, overdue_reported_at=None
    )
    Occupancy.objects.filter(run=run).update(closed_at=None, closed_by="", override_reason="")
    record(
        actor,
        "vm.guest_returned",
        target_type="vm",
        target_id=run.workload_id,
        org_id=run.node.organization_id,
        after={"runId": str(run.pk), "nodeId": str(run.node_id)},
        at=at,
    )


def _flag(node: Node, report: Report, flag: str, actor: Actor) -> None:
    """Keep what is odd about the node's reports now, and the report itself when that is new."""
    with transaction.atomic():
        changed = (
            AgentState.objects.filter(node=node)
            .exclude(flag=flag[:300])
            .update(flag=flag[:300], flagged_at=clock.Now() if flag else None)
        )
        if not changed or not flag:
            return
        # An agent whose trouble comes and goes, or changes its numbers, adds a row a minute at most.
        is_noted = record_repeated(
            actor,
            "node.report_flagged",
            same=re.sub(r"\d+", "N", flag),
            target_type="node",
            target_id=node.pk,
            org_id=node.organization_id,
            after={"sequence": report.sequence, "flagged": flag},
        )
        if not is_noted:
            return
        FlaggedReport.objects.create(
            node=node,
            sequence=report.sequence,
            received_at=clock.read(),
            flag=flag[:300],
            content={
                "epoch": report.epoch,
                "sequence": report.sequence,
                "complete": report.complete,
                "guests": [
                    {"runId": str(guest.run_id), "state": guest.state, "message": guest.message}
                    for guest in report.guests
                ],
            },
        )
