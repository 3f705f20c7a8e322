"""Announcing what the clock and the hardware did to reservations, once each, in order, whatever crashed."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q

from nodes.models import Hold, TopologyGeneration
from nodes.services.locking import LockedNode, locked
from openrelay.audit.actor import SYSTEM
from openrelay.audit.services.record import record
from openrelay.core import jobs
from openrelay.core.clock import rfc3339
from openrelay.core.errors import NotFound
from reservations.models import Announcement, Reservation
from reservations.querysets import Status

Event = Announcement.Event

# How far ahead exact moments are queued; the task that arms them runs twice as often.
HORIZON = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was taken, and when."""

    event: str
    occurred_at: datetime
    key: int = 0


def announce_due(reservation_id: UUID) -> list[Step]:
    """Announce what is due of one reservation, in a transaction of its own under its node's lock.

    Nothing is due, or no such reservation: nothing is done. Running twice or late does no harm.
    """
    node_id = Hold.objects.filter(pk=reservation_id).values_list("node_id", flat=True).first()
    if node_id is None:
        return []
    try:
        with locked(node_id) as held:
            reservation = Reservation.objects.with_facts(held.at).get(pk=reservation_id)
            return announce_steps(held, reservation)
    except NotFound:
        return []


def announce_steps(held: LockedNode, reservation: Reservation) -> list[Step]:
    """Announce the steps that `reservation` took up to the locked moment and that were not announced yet.

    Every change of a contract calls this before it changes anything, so that a review which began and was
    settled between two sweeps is announced all the same, and before what came after it.
    """
    told = set(Announcement.objects.filter(reservation=reservation).values_list("event", "key"))
    steps = [step for step in _steps(held, reservation) if (step.event, step.key) not in told]
    for step in sorted(steps, key=lambda step: step.occurred_at):
        Announcement.objects.create(
            reservation=reservation,
            event=step.event,
            key=step.key,
            occurred_at=step.occurred_at,
            announced_at=held.at,
        )
        after = {"occurredAt": rfc3339(step.occurred_at)}
        if step.key:
            after["topologyGen"] = str(step.key)
        record(
            SYSTEM,
            step.event,
            target_type="reservation",
            target_id=str(reservation.pk),
            org_id=held.node.organization_id,
            after=after,
            at=held.at,
        )
    return steps


def wake(reservation: Reservation, at: datetime) -> None:
    """Have the reservation's next start or end announced at its exact moment, when that is near.

    A message that waited long in the broker would be delivered again and again; later moments are armed by
    `near_moments` as they come near.
    """
    for moment in (reservation.starts_at, reservation.ends_at):
        if moment is not None and at < moment <= at + HORIZON:
            jobs.on_commit("reservations.announce", str(reservation.pk), eta=moment)


def near_moments(at: datetime) -> list[tuple[UUID, datetime]]:
    """The starts and ends within the horizon after `at`, with the reservations they are of."""
    live = Reservation.objects.filter(cancelled_at=None)
    soon = (at, at + HORIZON)
    return [
        *live.filter(starts_at__range=soon).values_list("pk", "starts_at"),
        *live.filter(ends_at__range=soon).values_list("pk", "ends_at"),
    ]


def due(at: datetime, limit: int = 500) -> list[UUID]:
    """Ids of reservations that took a step up to `at` which was not announced, at most `limit` of them."""

    def told(event: str, **key: object) -> Exists:
        return Exists(Announcement.objects.filter(reservation=OuterRef("pk"), event=event, **key))

    live = Q(ends_at=None) | Q(ends_at__gt=at)
    reviewed = ~Q(hold__topology_gen=F("hold__node__topology_gen"))
    started = Q(starts_at__lte=at, starts_at__gt=F("created_at")) & ~reviewed & ~told(Event.ACTIVATED)
    ended = Q(ends_at__lte=at) & ~told(Event.EXPIRED)
    changed = reviewed & ~told(Event.NEEDS_REVIEW, key=OuterRef("hold__node__topology_gen"))
    rows = Reservation.objects.filter(cancelled_at=None).filter(ended | live & (started | changed))
    return list(rows.order_by("hold__node_id").values_list("pk", flat=True)[:limit])


def _steps(held: LockedNode, reservation: Reservation) -> list[Step]:
    """Every step the facts tell of, announced or not, up to the locked moment."""
    if reservation.status == Status.CANCELLED:
        return []  # cancelling announced what came before it
    ends_at = reservation.ends_at
    reviews = [
        Step(Event.NEEDS_REVIEW, generation.at, generation.number)
        for generation in TopologyGeneration.objects.filter(
            node=held.node, number__gt=reservation.hold.topology_gen, at__lte=held.at
        )
        # What happened to the node after the end is nothing to a reservation that was over.
        if ends_at is None or generation.at < ends_at
    ]
    steps = list(reviews)
    if reservation.starts_at > reservation.created_at:
        # A reservation that was in review at its start became active when it was re-affirmed, if it was.
        begun = max(reservation.starts_at, reservation.pinned_at)
        reviewed_before = any(review.occurred_at <= begun for review in reviews)
        in_term = begun <= held.at and (ends_at is None or begun < ends_at)
        if in_term and not reviewed_before:
            steps.append(Step(Event.ACTIVATED, begun))
    if ends_at is not None and ends_at <= held.at:
        steps.append(Step(Event.EXPIRED, ends_at))
    return steps
