"""Holds: units of a node that are reserved to an audience during a term.

The nodes app stores holds, placement obeys them, and only the reservations app writes them.
"""

from typing import Any

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import DateTimeRangeField, RangeOperators
from django.db import models

from nodes.querysets import HoldQuerySet, HoldUnitQuerySet
from openrelay.core.ids import new_id


class Hold(models.Model):
    """Some units of one node, reserved to an audience during `term`, pinned to `topology_gen`.

    `term` is `[start, end)`; its upper bound is null for an open-ended hold. Ending a hold sets the end of
    its term, or makes the term empty if it had not begun. The exclusion constraint then ignores the hold.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey("nodes.Node", models.PROTECT, related_name="holds")
    term = DateTimeRangeField()
    topology_gen = models.PositiveIntegerField()
    audience: "models.ManyToManyField[Any, Any]" = models.ManyToManyField(
        "identity.Organization", through="nodes.HoldAudience", related_name="+"
    )

    objects = HoldQuerySet.as_manager()

    class Meta:
        constraints = [
            # The target of the composite foreign key that keeps `term` of each HoldUnit equal.
            models.UniqueConstraint(fields=["id", "node", "term"], name="hold_term"),
        ]
        indexes = [models.Index(fields=["node"], name="hold_of_node")]

    def __str__(self) -> str:
        return str(self.id)


class HoldAudience(models.Model):
    """One organization in the audience of a hold."""

    hold = models.ForeignKey(Hold, models.CASCADE, related_name="audience_rows")
    organization = models.ForeignKey("identity.Organization", models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["hold", "organization"], name="audience_once")]

    def __str__(self) -> str:
        return str(self.organization_id)


class HoldUnit(models.Model):
    """One unit of a hold: whether it is released, and its class, model and GPU count when it was pinned.

    `term` is a copy of the hold's term, kept equal by a composite foreign key that cascades updates. With it,
    the exclusion constraint can forbid overlapping holds of one unit.
    """

    hold = models.ForeignKey(Hold, models.CASCADE, related_name="held_units", db_constraint=False)
    node = models.ForeignKey("nodes.Node", models.PROTECT, related_name="+", db_constraint=False)
    unit = models.ForeignKey("nodes.GpuUnit", models.PROTECT, related_name="held_in", db_constraint=False)
    term = DateTimeRangeField()
    released = models.BooleanField(default=False, help_text="on the spot market now")
    pinned_class = models.CharField(max_length=32)
    pinned_model = models.ForeignKey("nodes.GpuModel", models.PROTECT, related_name="+")
    pinned_gpu_count = models.PositiveSmallIntegerField()

    objects = HoldUnitQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["hold", "unit"], name="held_once"),
            ExclusionConstraint(
                name="one_hold_at_a_time",
                expressions=[("unit", RangeOperators.EQUAL), ("term", RangeOperators.OVERLAPS)],
            ),
        ]
        indexes = [models.Index(fields=["node"], name="held_of_node")]

    def __str__(self) -> str:
        return f"{self.unit_id} in {self.hold_id}"
