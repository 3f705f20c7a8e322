"""Runs: one guest of a workload on one node, from its placement to the report that it ended."""

from django.db import models
from django.db.models import F, Q

from compute.querysets import RunQuerySet
from openrelay.core.ids import new_id


class Run(models.Model):
    """One guest of a workload on one node. The agent knows the guest by the run's id.

    `desired` is what the platform wants. `observed` is the agent's last explicit report about this run. The
    run is open until the agent reports that the guest ended, or an operator overrides.
    """

    class Desired(models.TextChoices):
        RUNNING = "running"
        GONE = "gone"

    class Observed(models.TextChoices):
        NOTHING = "", "not heard of"
        STARTING = "starting"
        RUNNING = "running"
        STOPPED = "stopped"
        FAILED = "failed"
        GONE = "gone"
        NEVER_STARTED = "never-started"

    LIVE = (Observed.STARTING, Observed.RUNNING)
    ENDED = (Observed.STOPPED, Observed.FAILED, Observed.GONE, Observed.NEVER_STARTED)

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workload = models.ForeignKey("compute.Workload", models.PROTECT, related_name="runs")
    node = models.ForeignKey("nodes.Node", models.PROTECT, related_name="runs")
    number = models.PositiveIntegerField(help_text="1 for a workload's first run")
    desired = models.CharField(max_length=8, choices=Desired, default=Desired.RUNNING)
    observed = models.CharField(max_length=16, choices=Observed, default=Observed.NOTHING, blank=True)
    observed_at = models.DateTimeField(null=True, blank=True)
    observed_sequence = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="the report that said so"
    )
    message = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField()
    gone_asked_at = models.DateTimeField(null=True, blank=True, help_text="when it was first to be torn down")
    overdue_reported_at = models.DateTimeField(null=True, blank=True)
    reboots = models.PositiveIntegerField(
        default=0, help_text="how often the guest is to have been rebooted; its node acts on the difference"
    )
    stuck_reported_at = models.DateTimeField(
        null=True, blank=True, help_text="when it was reported as not coming up"
    )
    closed_at = models.DateTimeField(null=True, blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ("workload", "-number")
        constraints = [
            models.UniqueConstraint(fields=["workload", "number"], name="run_number_once"),
            # The targets of composite foreign keys from claims and occupancies.
            models.UniqueConstraint(fields=["id", "workload", "node"], name="run_of_workload_on_node"),
            models.UniqueConstraint(fields=["id", "node"], name="run_on_node"),
            models.UniqueConstraint(
                fields=["workload"],
                condition=Q(desired="running", closed_at=None),
                name="one_wanted_run_a_workload",
            ),
            models.CheckConstraint(
                condition=Q(desired="running", gone_asked_at=None)
                | Q(desired="gone", gone_asked_at__isnull=False),
                name="run_gone_has_time",
            ),
            models.CheckConstraint(
                condition=Q(closed_at=None) | Q(closed_at__gte=F("created_at")),
                name="run_closes_after_it_opens",
            ),
        ]
        indexes = [
            models.Index(fields=["node"], condition=Q(closed_at=None), name="run_open_on_node"),
            models.Index(
                fields=["gone_asked_at"],
                condition=Q(desired="gone", closed_at=None),
                name="run_being_torn_down",
            ),
        ]

    def __str__(self) -> str:
        return f"run {self.number} of {self.workload_id}"
