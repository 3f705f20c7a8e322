"""Topology generations of nodes, and the inventory reports that caused them."""

from django.db import models

from openrelay.core.ids import new_id


class InventoryReport(models.Model):
    """An inventory report that changed the topology, or that was flagged and changed nothing.

    `flagged` says why the report was not taken; it is empty if it was taken.
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
    """One topology generation of a node: its number, time, cause and report, and a snapshot of the units."""

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
