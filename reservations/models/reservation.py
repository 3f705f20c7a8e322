"""The contract around one hold."""

from typing import Any
from uuid import UUID

from django.db import models

from reservations.querysets import ReservationQuerySet


class Reservation(models.Model):
    """What was agreed: these units of a node, for this audience, from `starts_at` to `ends_at`.

    The hold has what takes effect; its id is the reservation's. A status is not stored: it follows from the
    facts here, the hold's term, the node's topology generation and the clock.
    """

    hold = models.OneToOneField("nodes.Hold", models.PROTECT, primary_key=True, related_name="reservation")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)
    cancelled_at = models.DateTimeField(null=True, blank=True)
    contract_ref = models.CharField(max_length=128, blank=True)
    reason = models.CharField(max_length=500, blank=True)
    created_by = models.CharField(max_length=64)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    pinned_at = models.DateTimeField(help_text="when it was last pinned to a topology generation")
    managers: "models.ManyToManyField[Any, Any]" = models.ManyToManyField(
        "identity.Organization", through="reservations.ReservationManager", related_name="+"
    )

    objects = ReservationQuerySet.as_manager()

    # What `with_facts` adds to a row.
    status: str
    audience_ids: list[UUID]
    manager_ids: list[UUID]
    unit_addresses: list[str]
    released_addresses: list[str]

    class Meta:
        ordering = ("-created_at", "-hold_id")
        constraints = [
            models.CheckConstraint(
                condition=models.Q(ends_at=None) | models.Q(ends_at__gt=models.F("starts_at")),
                name="reservation_ends_after_it_starts",
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-hold_id"], name="reservation_newest"),
            # What the announcing sweep looks for: moments that came, of reservations nobody cancelled.
            models.Index(
                fields=["starts_at"], condition=models.Q(cancelled_at=None), name="reservation_starts"
            ),
            models.Index(fields=["ends_at"], condition=models.Q(cancelled_at=None), name="reservation_ends"),
            models.Index(fields=["contract_ref"], name="reservation_contract_ref"),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class ReservationManager(models.Model):
    """One organization that may release and reclaim on the owner's behalf."""

    reservation = models.ForeignKey(Reservation, models.CASCADE, related_name="manager_rows")
    organization = models.ForeignKey("identity.Organization", models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["reservation", "organization"], name="manager_once")]

    def __str__(self) -> str:
        return str(self.organization_id)
