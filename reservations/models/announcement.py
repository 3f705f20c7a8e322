"""Steps in a reservation's life that the clock or the hardware took, and that were announced."""

from django.db import models

from openrelay.core.ids import new_id


class Announcement(models.Model):
    """One step, announced once: the row is written with its audit event, in one transaction."""

    class Event(models.TextChoices):
        ACTIVATED = "reservation.activated"
        NEEDS_REVIEW = "reservation.needs_review"
        EXPIRED = "reservation.expired"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    reservation = models.ForeignKey("reservations.Reservation", models.CASCADE, related_name="announcements")
    event = models.CharField(max_length=32, choices=Event)
    key = models.PositiveIntegerField(
        default=0, help_text="the topology generation, for needs_review; else 0"
    )
    occurred_at = models.DateTimeField()
    announced_at = models.DateTimeField()

    class Meta:
        ordering = ("-occurred_at", "-id")
        constraints = [models.UniqueConstraint(fields=["reservation", "event", "key"], name="announced_once")]
        indexes = [models.Index(fields=["-occurred_at", "-id"], name="announcement_newest")]

    def __str__(self) -> str:
        return f"{self.event} of {self.reservation_id}"
