"""Claims: a workload's right to a unit."""

from django.db import models

from compute.querysets import ClaimQuerySet


class Claim(models.Model):
    """The right of one workload, through one run, to one unit. The row exists exactly as long as the right.

    A unique constraint allows one claim for each unit. Composite foreign keys ensure that unit and run are on
    the claim's node and that the run belongs to the workload.
    """

    id = models.BigAutoField(primary_key=True)
    unit = models.ForeignKey(
        "nodes.GpuUnit", models.PROTECT, db_constraint=False, related_name="claims", db_index=False
    )
    workload = models.ForeignKey(
        "compute.Workload", models.PROTECT, db_constraint=False, related_name="claims"
    )
    run = models.ForeignKey("compute.Run", models.PROTECT, db_constraint=False, related_name="claims")
    node = models.ForeignKey("nodes.Node", models.PROTECT, db_constraint=False, related_name="claims")
    hold = models.ForeignKey(
        "nodes.Hold",
        models.PROTECT,
        null=True,
        blank=True,
        related_name="claims",
        help_text="the hold by whose audience it was had; null for a unit open to others too",
    )
    created_at = models.DateTimeField()

    objects = ClaimQuerySet.as_manager()

    class Meta:
        ordering = ("node", "unit")
        constraints = [models.UniqueConstraint(fields=["unit"], name="one_claim_a_unit")]

    def __str__(self) -> str:
        return f"{self.unit_id} for {self.workload_id}"
