"""Incidents of nodes' agents."""

from django.db import models

from openrelay.core.ids import new_id


class NodeIncident(models.Model):
    """A problem with the reports of a node's agent. It is open while `ended_at` is null.

    A node has at most one open incident of a kind, so repeated bad reports add no rows.
    """

    class Kind(models.TextChoices):
        UNREADABLE_INVENTORY = "unreadable-inventory", "inventory reports are refused"
        UNREADABLE_REPORT = "unreadable-report", "guest reports are refused"
        TWO_HOSTS = "two-hosts", "two hosts with one credential?"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey("nodes.Node", models.CASCADE, related_name="incidents", db_index=False)
    kind = models.CharField(max_length=32, choices=Kind.choices)
    detail = models.CharField(max_length=500)
    began_at = models.DateTimeField()
    last_at = models.DateTimeField(help_text="when it was last seen, to the minute")
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-began_at", "-id")
        constraints = [
            models.UniqueConstraint(
                fields=["node", "kind"], condition=models.Q(ended_at=None), name="incident_open_once"
            ),
        ]
        indexes = [
            models.Index(fields=["node", "-began_at"], name="incident_of_node"),
            models.Index(fields=["-began_at", "-id"], name="incident_newest"),
            models.Index(fields=["last_at"], condition=models.Q(ended_at=None), name="incident_open"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}"
