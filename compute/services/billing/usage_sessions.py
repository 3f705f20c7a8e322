"""Recording from when to when workloads run, and at which rate: in the transaction that changes their state.

A session opens when a workload comes to run and closes when it no longer does, for whatever reason; while it
is interrupted there is none. Restarting in place leaves it open.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
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


def open_sessions(workloads: Sequence[Workload], at: datetime) -> None:
    """Open a session for each of the workloads, which come to run at `at`, under the lock of their node.

    The rate is what the organization pays at this moment, and stays; the workloads' own price follows it.
    """
    if not workloads:
        return
    ids = [workload.pk for workload in workloads]
    runs = dict(Run.objects.wanted().filter(workload_id__in=ids).values_list("workload_id", "pk"))
    owners = dict(
        Node.objects.filter(pk__in={workload.node_id for workload in workloads}).values_list(
            "pk", "organization_id"
        )
    )
    claims: dict[UUID, list[Claim]] = {}
    for row in Claim.objects.filter(workload_id__in=ids).select_related("unit").order_by("unit_id"):
        claims.setdefault(row.workload_id, []).append(row)
    units = [row.unit_id for rows in claims.values() for row in rows]
    held = {
        unit_id: (hold_id, released)
        for unit_id, hold_id, released in HoldUnit.objects.in_term(at)
        .filter(unit_id__in=units)
        .values_list("unit_id", "hold_id", "released")
    }
    sessions, parts = [], []
    for workload in workloads:
        if workload.node_id is None:  # what comes to run is on a node
            continue
        cents = hourly_cents(workload)
        mine = claims.get(workload.pk, [])
        # What it is had by must still be in its term: what was cancelled since frees nobody from paying.
        own = {
            row.unit_id: row.hold_id
            for row in mine
            if row.hold_id is not None and row.hold_id == held.get(row.unit_id, _NOT_HELD)[0]
        }
        owner_id = owners[workload.node_id]
        session = UsageSession(
            id=new_id(),
            workload=workload,
            run_id=runs.get(workload.pk),
            organization_id=workload.organization_id,
            node_id=workload.node_id,
            node_owner_id=owner_id,
            tier=workload.tier,
            gpu_model_id=workload.gpu_model_id,
            gpu_count=workload.gpu_count,
            resource_size=workload.resource_size,
            cents_per_hour=cents or 0,
            non_billable=is_free(workload.organization_id, owner_id, [own.get(row.unit_id) for row in mine]),
            started_at=at,
        )
        sessions.append(session)
        for row in mine:
            hold_id, released = held.get(row.unit_id, _NOT_HELD)
            parts.append(
                UsageUnit(
                    session=session,
                    unit_id=row.unit_id,
                    gpu_count=row.unit.gpu_count,
                    hold_id=hold_id,
                    released=released,
                    own=row.unit_id in own,
                )
            )
        if cents is not None and workload.price_per_hour_cents != cents:
            Workload.objects.filter(pk=workload.pk).update(price_per_hour_cents=cents)
            workload.price_per_hour_cents = cents
    UsageSession.objects.bulk_create(sessions)
    UsageUnit.objects.bulk_create(parts)


def close_sessions(workload_ids: Collection[UUID], at: datetime, *, reason: str) -> None:
    """Close the open sessions of those workloads, which ceased to run by `at` for `reason`.

    One whose node had gone offline, or come to its announced end, before that ended then: however late it is
    noticed, and whoever notices, nobody pays for a node that is not there.
    """
    if not workload_ids:
        return
    node = Node.objects.filter(pk=OuterRef("node"))
    # PostgreSQL's LEAST and GREATEST leave nulls out.
    gone_at = Least(
        Subquery(node.values(end=F("heartbeat__seen_at") + OFFLINE_GRACE)),
        Subquery(node.values("terminate_at")),
        Value(at),
    )
    UsageSession.objects.open().filter(workload_id__in=workload_ids).update(
        ended_at=Greatest(F("started_at"), gone_at), end_reason=reason[:300]
    )


def unbilled(workloads: Sequence[Workload], at: Moment) -> set[UUID]:
    """Which of the workloads their organization does not pay for at `at`: by the open session of one that
    runs, by the session that would open for any other.
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
    """What an hour of the workload costs by today's prices; None where it is not for sale by them."""
    if workload.gpu_count and workload.gpu_model_id is not None:
        cents = rate(workload.gpu_model_id, workload.tier, workload.organization_id)
        return None if cents is None else cents * workload.gpu_count
    cents = size_rate(workload.resource_size)
    # A size that is sold no more costs those who have it what it did.
    return workload.price_per_hour_cents if cents is None else cents


def open_session_of(workload: Workload) -> UsageSession | None:
    """The session that the workload accrues to now, if it runs."""
    session: UsageSession | None = UsageSession.objects.open().filter(workload=workload).first()
    return session
