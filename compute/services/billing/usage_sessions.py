"""Open and close usage sessions, in the transaction that changes the status of their workload.

A session opens when a workload starts to run and closes when it stops running, for any reason. An interrupted
workload has no open session. A restart in place leaves the session open.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import F, OuterRef, Subquery, Value
from django.db.models.functions import Greatest, Least

from compute.domain import states
from compute.models import Claim, Run, UsageSession, UsageUnit, Workload
from compute.services.billing.prices import is_free, rate, size_rate
from nodes.models import HoldUnit, Node
from nodes.querysets import OFFLINE_GRACE, Moment
from openrelay.core.ids import new_id

_NOT_HELD = (None, False)


class _Place(NamedTuple):
    """The node that a workload runs on, the node's owner, and the run."""

    node_id: UUID
    owner_id: UUID
    run_id: UUID | None


def open_sessions(workloads: Sequence[Workload], at: datetime) -> None:
    """Open a session for each of the workloads, which start to run at `at`.

    The caller holds their node's lock. The session keeps the rate that the organization pays at this moment.
    The workload's price becomes that rate.
    """
    if not workloads:
        return
    ids = [workload.pk for workload in workloads]
    runs = dict(Run.objects.wanted().filter(workload_id__in=ids).values_list("workload_id", "pk"))
    node_ids = {workload.node_id for workload in workloads}
    owners = dict(Node.objects.filter(pk__in=node_ids).values_list("pk", "organization_id"))
    claims: dict[UUID, list[Claim]] = {}
    for row in Claim.objects.filter(workload_id__in=ids).select_related("unit").order_by("unit_id"):
        claims.setdefault(row.workload_id, []).append(row)
    holds = _holds_of([row.unit_id for rows in claims.values() for row in rows], at)
    sessions: list[UsageSession] = []
    units: list[UsageUnit] = []
    for workload in workloads:
        if workload.node_id is None:  # a workload that runs has a node
            continue
        place = _Place(workload.node_id, owners[workload.node_id], runs.get(workload.pk))
        mine = claims.get(workload.pk, [])
        session = _session(workload, place, mine, holds, at)
        sessions.append(session)
        units += _session_units(session, mine, holds)
    UsageSession.objects.bulk_create(sessions)
    UsageUnit.objects.bulk_create(units)


def _holds_of(unit_ids: Sequence[UUID], at: datetime) -> dict[UUID, tuple[UUID | None, bool]]:
    """For each of the units that is in a hold at `at`, the hold and whether the unit is released."""
    rows = HoldUnit.objects.in_term(at).filter(unit_id__in=unit_ids)
    return {
        unit_id: (hold_id, released)
        for unit_id, hold_id, released in rows.values_list("unit_id", "hold_id", "released")
    }


def _session(
    workload: Workload,
    place: _Place,
    claims: Sequence[Claim],
    holds: Mapping[UUID, tuple[UUID | None, bool]],
    at: datetime,
) -> UsageSession:
    """A new session of the workload, whose price is set to the session's rate."""
    cents = hourly_cents(workload)
    rights = [row.hold_id if _is_by_hold(row, holds) else None for row in claims]
    if cents is not None and workload.price_per_hour_cents != cents:
        Workload.objects.filter(pk=workload.pk).update(price_per_hour_cents=cents)
        workload.price_per_hour_cents = cents
    return UsageSession(
        id=new_id(),
        workload=workload,
        run_id=place.run_id,
        organization_id=workload.organization_id,
        node_id=place.node_id,
        node_owner_id=place.owner_id,
        tier=workload.tier,
        gpu_model_id=workload.gpu_model_id,
        gpu_count=workload.gpu_count,
        resource_size=workload.resource_size,
        cents_per_hour=cents or 0,
        non_billable=is_free(workload.organization_id, place.owner_id, rights),
        started_at=at,
    )


def _session_units(
    session: UsageSession, claims: Sequence[Claim], holds: Mapping[UUID, tuple[UUID | None, bool]]
) -> list[UsageUnit]:
    units = []
    for row in claims:
        hold_id, released = holds.get(row.unit_id, _NOT_HELD)
        units.append(
            UsageUnit(
                session=session,
                unit_id=row.unit_id,
                gpu_count=row.unit.gpu_count,
                hold_id=hold_id,
                released=released,
                own=_is_by_hold(row, holds),
            )
        )
    return units


def _is_by_hold(claim: Claim, holds: Mapping[UUID, tuple[UUID | None, bool]]) -> bool:
    """Whether a hold that is in its term gives the right to the claim.

    A hold that was cancelled after the claim does not make the session free.
    """
    hold_id, _ = holds.get(claim.unit_id, _NOT_HELD)
    return claim.hold_id is not None and claim.hold_id == hold_id


def close_sessions(workload_ids: Collection[UUID], at: datetime, *, reason: str) -> None:
    """Close the open sessions of those workloads, which stopped running by `at` for `reason`.

    A session on a node that went offline, or came to its announced end, before `at` ends at that earlier
    time. The organization does not pay for the time after it, even when the end is noticed late.
    """
    if not workload_ids:
        return
    node = Node.objects.filter(pk=OuterRef("node"))
    # PostgreSQL's LEAST and GREATEST ignore nulls.
    gone_at = Least(
        Subquery(node.values(end=F("heartbeat__seen_at") + OFFLINE_GRACE)),
        Subquery(node.values("terminate_at")),
        Value(at),
    )
    UsageSession.objects.open().filter(workload_id__in=workload_ids).update(
        ended_at=Greatest(F("started_at"), gone_at), end_reason=reason[:300]
    )


def find_unbilled_ids(workloads: Sequence[Workload], at: Moment) -> set[UUID]:
    """Find which of the workloads are not billed at `at`.

    The open session of a running workload decides. For any other workload, the session that would open
    decides.
    """
    running = [workload.pk for workload in workloads if workload.status == states.RUNNING]
    free = set(
        UsageSession.objects.open()
        .filter(workload_id__in=running, non_billable=True)
        .values_list("workload_id", flat=True)
    )
    others = {workload.pk: workload for workload in workloads if workload.status != states.RUNNING}
    holds: dict[UUID, list[UUID | None]] = {}
    owners: dict[UUID, UUID] = {}
    in_term = HoldUnit.objects.in_term(at).filter(unit=OuterRef("unit"), hold=OuterRef("hold"))
    claims = Claim.objects.filter(workload_id__in=others).annotate(had_by=Subquery(in_term.values("hold")))
    for pk, hold_id, owner_id in claims.values_list("workload_id", "had_by", "node__organization_id"):
        holds.setdefault(pk, []).append(hold_id)
        owners[pk] = owner_id
    return free | {pk for pk in holds if is_free(others[pk].organization_id, owners[pk], holds[pk])}


def hourly_cents(workload: Workload) -> int | None:
    """Cents of one hour of the workload at the present prices, or None when it is not sold."""
    if workload.gpu_count and workload.gpu_model_id is not None:
        cents = rate(workload.gpu_model_id, workload.tier, workload.organization_id)
        return None if cents is None else cents * workload.gpu_count
    cents = size_rate(workload.resource_size)
    # A workload of a deleted size keeps its price.
    return workload.price_per_hour_cents if cents is None else cents


def open_session_of(workload: Workload) -> UsageSession | None:
    """Read the open session of the workload, if it has one."""
    session: UsageSession | None = UsageSession.objects.open().filter(workload=workload).first()
    return session
