"""Agents on nodes: their starts (epochs) and the order of their reports."""

from django.db import models


class AgentEpoch(models.Model):
    """One start of a node's agent, with the id that the agent chose. The newest row is the current epoch.

    `epoch` is empty if the agent sends no epoch but an earlier agent of the node did.
    """

    id = models.BigAutoField(primary_key=True)
    node = models.ForeignKey("nodes.Node", models.CASCADE, related_name="agent_epochs", db_index=False)
    epoch = models.CharField(max_length=64, blank=True)
    began_at = models.DateTimeField()

    class Meta:
        ordering = ("node", "-id")
        constraints = [models.UniqueConstraint(fields=["node", "epoch"], name="agent_epoch_once")]
        indexes = [models.Index(fields=["node", "-id"], name="agent_epoch_newest")]

    def __str__(self) -> str:
        return self.epoch or "(none)"


class ReportOrder(models.Model):
    """The order of one kind of report of a node. See `nodes.services.report_order`.

    `epoch` belongs to the last report that was taken. `doubted_epoch`, `doubted_sequence` and `doubted_since`
    describe the out-of-order reports that followed it.
    """

    epoch = models.CharField(max_length=64, blank=True, help_text="of the last report that was taken")
    last_report_at = models.DateTimeField(null=True, blank=True)
    doubted_epoch = models.CharField(max_length=64, blank=True)
    doubted_sequence = models.PositiveBigIntegerField(null=True, blank=True)
    doubted_since = models.DateTimeField(
        null=True, blank=True, help_text="since when reports are refused as older than the last"
    )

    class Meta:
        abstract = True


class InventoryState(ReportOrder):
    """The order of a node's inventory reports."""

    node = models.OneToOneField(
        "nodes.Node", models.CASCADE, primary_key=True, related_name="inventory_state"
    )

    def __str__(self) -> str:
        return f"inventory of {self.node_id}"
