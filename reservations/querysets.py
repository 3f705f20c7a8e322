"""Questions to the contracts: their status at a moment, who reaches a node through them."""

from typing import Any, Self
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db import models
from django.db.models import Case, Exists, F, OuterRef, Q, Value, When

from nodes.models import HoldAudience, HoldUnit, Node
from nodes.querysets import Moment, NodeQuerySet, Phase, phase
from openrelay.identity.caller import Caller


class Status:
    """The statuses of a reservation, as the API spells them."""

    CANCELLED, EXPIRED = "cancelled", "expired"
    NEEDS_REVIEW, PENDING, ACTIVE = Phase.NEEDS_REVIEW, Phase.PENDING, Phase.ACTIVE
    LIVE = (NEEDS_REVIEW, PENDING, ACTIVE)
    ENDED = (CANCELLED, EXPIRED)


class ReservationQuerySet(models.QuerySet[Any]):
    """Reservations."""

    def with_status(self, at: Moment) -> Self:
        """Annotate `status` at `at`: the hold's phase, and above it whether it was cancelled."""
        return self.annotate(phase=phase(at, "hold__")).annotate(
            status=Case(
                When(cancelled_at__isnull=False, then=Value(Status.CANCELLED)),
                When(phase=Phase.ENDED, then=Value(Status.EXPIRED)),
                default=F("phase"),
                output_field=models.CharField(),
            )
        )

    def with_facts(self, at: Moment) -> Self:
        """Everything an answer shows of a reservation, in one query however many there are."""
        units = HoldUnit.objects.filter(hold=OuterRef("pk")).order_by("unit__address")
        return (
            self.with_status(at)
            .select_related("hold")
            .annotate(
                audience_ids=ArraySubquery(
                    HoldAudience.objects.filter(hold=OuterRef("pk"))
                    .order_by("organization_id")
                    .values("organization_id")
                ),
                manager_ids=ArraySubquery(
                    self.model.managers.through.objects.filter(reservation=OuterRef("pk"))
                    .order_by("organization_id")
                    .values("organization_id")
                ),
                unit_addresses=ArraySubquery(units.values("unit__address")),
                released_addresses=ArraySubquery(units.filter(released=True).values("unit__address")),
            )
        )

    def managed_by(self, organization_id: UUID) -> Self:
        """Reservations that the organization may release and reclaim for the owner."""
        return self.filter(manager_rows__organization_id=organization_id)

    def concerning(self, organization_id: UUID) -> Self:
        """Reservations whose audience or managers include the organization."""
        return self.filter(
            Exists(HoldAudience.objects.filter(hold=OuterRef("pk"), organization_id=organization_id))
            | Exists(
                self.model.managers.through.objects.filter(
                    reservation=OuterRef("pk"), organization_id=organization_id
                )
            )
        )


def active_in_term(at: Moment) -> Q:
    """The filter for reservations that are in term and not in review at `at`."""
    return Q(hold__term__contains=at, hold__topology_gen=F("hold__node__topology_gen"))


def not_ended(at: Moment) -> Q:
    """The filter for reservations that are pending, active or in review at `at`."""
    return Q(hold__term__isempty=False) & (Q(hold__term__upper_inf=True) | Q(hold__term__endswith__gt=at))


def reachable_by(caller: Caller, managed: ReservationQuerySet) -> NodeQuerySet:
    """Nodes that `caller` owns, operates, or reaches through one of the `managed` reservations.

    `managed` is already narrowed to the reservations that count for the question at hand; being in an
    audience reaches nothing.
    """
    nodes: NodeQuerySet = Node.objects.all()
    if caller.is_operator:
        return nodes
    through = managed.managed_by(caller.organization_id).filter(hold__node=OuterRef("pk"))
    return nodes.filter(Q(organization_id=caller.organization_id) | Exists(through))
