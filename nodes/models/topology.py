"""What a node's hardware was, generation by generation, and the reports that said so."""

from django.db import models

from openrelay.core.ids import new_id


class InventoryReport(models.Model):
    """A node's account of its hardware, kept when it changed something or could not be taken as it was.

    `flagged` is empty for one that was taken; otherwise it says why it changed nothing.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey("nodes.Node", models.CASCADE, related_name="inventory_reports")
    sequence = models.PositiveBigIntegerField(help_text="the agent's own number; a smaller one is older")
    received_at = models.DateTimeField()
    flagged = models.CharField(max_length=300, blank=True)
    content = models.JSONField()

    class Meta:
        ordering = ("-received_at", "-id")
        indexes = [models.Index(fields=["node", "-received_at"], name="report_of_node")]

    def __str__(self) -> str:
        return f"report {self.sequence} of {self.node_id}"


class TopologyGeneration(models.Model):
    """One generation of a node's units: number, time, the report behind it, and what the units then were."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey("nodes.Node", models.CASCADE, related_name="generations")
    number = models.PositiveIntegerField()
    at = models.DateTimeField()
    report = models.ForeignKey(InventoryReport, models.PROTECT, null=True, blank=True, related_name="+")
    cause = models.CharField(max_length=200, help_text="what changed, in words")
    units = models.JSONField(help_text="[{address, allocClass, gpuModel, gpuModelId, gpuCount}]")

    class Meta:
        ordering = ("node", "-number")
        constraints = [models.UniqueConstraint(fields=["node", "number"], name="generation_once")]

    def __str__(self) -> str:
        return f"generation {self.number} of {self.node_id}"
