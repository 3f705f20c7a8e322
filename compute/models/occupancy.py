"""Occupancies: the fact that a run may be on a unit."""

from django.db import models
from django.db.models import Q

from compute.querysets import OccupancyQuerySet


class Occupancy(models.Model):
    """The fact that a run may be on a unit. It opens with the claim and may stay open after it.

    The agent's explicit report, or an operator's override, closes it. Ids are assigned under the node's lock,
    so on one unit they grow in the order of opening. Of two open occupancies, the guest of the one with the
    larger id waits for the other.
    """

    AGENT = "agent"

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey("compute.Run", models.PROTECT, db_constraint=False, related_name="occupancies")
    unit = models.ForeignKey(
        "nodes.GpuUnit", models.PROTECT, db_constraint=False, related_name="occupancies", db_index=False
    )
    node = models.ForeignKey(
        "nodes.Node", models.PROTECT, db_constraint=False, related_name="occupancies", db_index=False
    )
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = models.CharField(max_length=80, blank=True, help_text="agent, or the operator who overrode")
    override_reason = models.CharField(max_length=500, blank=True)

    objects = OccupancyQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "occupancies"
        ordering = ("unit", "id")
        constraints = [
            models.UniqueConstraint(fields=["run", "unit"], name="occupancy_once"),
            models.CheckConstraint(
                condition=Q(closed_at=None, closed_by="", override_reason="")
                | (Q(closed_at__isnull=False, closed_by="agent", override_reason=""))
                | (Q(closed_at__isnull=False) & ~Q(closed_by__in=("", "agent")) & ~Q(override_reason="")),
                name="occupancy_closed_by_somebody",
            ),
        ]
        indexes = [
            models.Index(fields=["unit", "id"], condition=Q(closed_at=None), name="occupancy_open_on_unit"),
            models.Index(fields=["node"], condition=Q(closed_at=None), name="occupancy_open_on_node"),
        ]

    def __str__(self) -> str:
        return f"{self.unit_id} by {self.run_id}"
