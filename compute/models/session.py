"""Usage sessions: when a workload ran, at which rate, and on whose capacity."""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import DateTimeRangeField, RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value

from compute.models.workload import Tier
from compute.querysets import UsageSessionQuerySet
from openrelay.core.ids import new_id


def _span() -> Func:
    return Func(
        F("started_at"),
        F("ended_at"),
        Value("[)"),
        function="tstzrange",
        output_field=DateTimeRangeField(),
    )


class UsageSession(models.Model):
    """One interval in which a workload ran. It is open while `ended_at` is null. Its rate never changes.

    The session stores the node's owner and each unit's hold at its start. The revenue of released capacity
    can then be divided later, even if the reservation has changed.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    workload = models.ForeignKey("compute.Workload", models.PROTECT, related_name="usage_sessions")
    run = models.ForeignKey("compute.Run", models.PROTECT, null=True, blank=True, related_name="+")
    organization = models.ForeignKey("identity.Organization", models.PROTECT, related_name="usage_sessions")
    node = models.ForeignKey("nodes.Node", models.PROTECT, related_name="usage_sessions")
    node_owner = models.ForeignKey("identity.Organization", models.PROTECT, related_name="+")
    tier = models.CharField(max_length=16, choices=Tier)
    gpu_model = models.ForeignKey(
        "nodes.GpuModel", models.PROTECT, null=True, blank=True, related_name="usage_sessions"
    )
    gpu_count = models.PositiveSmallIntegerField(default=0)
    resource_size = models.CharField(max_length=64, blank=True)
    cents_per_hour = models.PositiveIntegerField(help_text="of the whole workload")
    non_billable = models.BooleanField(
        default=False, help_text="recorded and never charged: a provider on its own reserved node"
    )
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    end_reason = models.CharField(max_length=300, blank=True)

    objects = UsageSessionQuerySet.as_manager()

    class Meta:
        ordering = ("-started_at", "-id")
        constraints = [
            models.CheckConstraint(
                condition=Q(ended_at=None) | Q(ended_at__gte=F("started_at")),
                name="session_ends_after_it_starts",
            ),
            models.CheckConstraint(condition=Q(tier__in=Tier.values), name="session_tier_known"),
            ExclusionConstraint(
                name="one_session_at_a_time",
                expressions=[("workload", RangeOperators.EQUAL), (_span(), RangeOperators.OVERLAPS)],
            ),
        ]
        indexes = [
            models.Index(fields=["organization", "-started_at", "-id"], name="session_of_org"),
            models.Index(fields=["organization"], condition=Q(ended_at=None), name="session_open_of_org"),
            models.Index(fields=["workload"], condition=Q(ended_at=None), name="session_open_of_vm"),
            models.Index(fields=["node_owner", "-started_at", "-id"], name="session_of_owner"),
        ]

    def __str__(self) -> str:
        return f"{self.workload_id} from {self.started_at}"


class UsageUnit(models.Model):
    """One unit of a session, with its hold and whether the hold had released it, at the session's start."""

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(UsageSession, models.CASCADE, related_name="units")
    unit = models.ForeignKey("nodes.GpuUnit", models.PROTECT, related_name="+")
    gpu_count = models.PositiveSmallIntegerField()
    hold = models.ForeignKey("nodes.Hold", models.PROTECT, null=True, blank=True, related_name="usage_units")
    released = models.BooleanField(default=False, help_text="on the spot market when the session opened")
    own = models.BooleanField(default=False, help_text="had by being in the hold's audience")

    class Meta:
        ordering = ("session", "unit")
        constraints = [models.UniqueConstraint(fields=["session", "unit"], name="usage_unit_once")]

    def __str__(self) -> str:
        return f"{self.unit_id} in {self.session_id}"
