"""What is known of the agents on nodes: their starts and the order of their reports."""

from django.db import models


class AgentEpoch(models.Model):
    """One start of a node's agent, by the id that the agent chose for it; the newest row is the current one.

    `epoch` is empty for an agent that sends none and took over from one that did.
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
    """The order of one kind of report of a node: which epoch the last taken one is of, and which refused ones
    came since. See `nodes.services.report_order`.
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
