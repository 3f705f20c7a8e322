"""The last report of each node's agent, and the reports that were flagged."""

from django.db import models

from nodes.models import ReportOrder
from openrelay.core.ids import new_id


class AgentState(ReportOrder):
    """The last accepted report of a node's agent, and the flag of its present reports.

    It is a separate row, so that a report that changes nothing does not wait for the node's lock.
    """

    node = models.OneToOneField("nodes.Node", models.CASCADE, primary_key=True, related_name="agent_state")
    last_sequence = models.PositiveBigIntegerField(default=0)
    last_content = models.CharField(max_length=64, blank=True, help_text="SHA-256 of that report's content")
    flag = models.CharField(max_length=300, blank=True, help_text="empty while reports are as expected")
    flagged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["flagged_at"], condition=~models.Q(flag=""), name="agent_flagged"),
        ]

    def __str__(self) -> str:
        return f"agent of {self.node_id}"


class FlaggedReport(models.Model):
    """A flagged report: empty, partial, out of date, or about runs of another node.

    A row is stored only when the node's flag changes, so that repeated reports do not fill the table.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey("nodes.Node", models.CASCADE, related_name="flagged_reports")
    sequence = models.PositiveBigIntegerField()
    received_at = models.DateTimeField()
    flag = models.CharField(max_length=300)
    content = models.JSONField()

    class Meta:
        ordering = ("-received_at", "-id")
        indexes = [models.Index(fields=["node", "-received_at"], name="flagged_report_of_node")]

    def __str__(self) -> str:
        return f"report {self.sequence} of {self.node_id}"
