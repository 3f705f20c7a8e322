"""Nodes, their heartbeats, and the credentials of their agents."""

from django.db import models

from nodes.querysets import NodeQuerySet
from openrelay.core.canonical import HOST_NAME_PATTERN
from openrelay.core.ids import new_id


class Node(models.Model):
    """One host, owned by one organization. Every change of the node locks this row first.

    Stores facts only: the owner's decisions (`owner_hold`, `removed_at`), the announced removal
    (`terminate_at`) and the hardware. The status is computed from these, the heartbeat and the clock.
    """

    class Runtime(models.TextChoices):
        QEMU = "qemu", "qemu (VMs)"
        RUNC = "runc", "runc (pods)"
        PROCESS = "process", "process (interruptible container)"

    class Class(models.TextChoices):
        PERSISTENT = "persistent"
        INTERRUPTIBLE = "interruptible"

    class OwnerHold(models.TextChoices):
        NONE = "", "none"
        MAINTENANCE = "maintenance"
        DRAINING = "draining"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey("identity.Organization", models.PROTECT, related_name="nodes")
    location = models.ForeignKey(
        "nodes.Location", models.PROTECT, null=True, blank=True, related_name="nodes"
    )
    fabric = models.ForeignKey(
        "nodes.Fabric",
        models.PROTECT,
        null=True,
        blank=True,
        related_name="nodes",
        help_text="the InfiniBand fabric it is on",
    )
    hostname = models.CharField(max_length=253)
    runtime = models.CharField(max_length=16, choices=Runtime, default=Runtime.QEMU)
    node_class = models.CharField(max_length=16, choices=Class, default=Class.PERSISTENT)
    topology_gen = models.PositiveIntegerField(default=0, help_text="grows by one with each topology change")
    inventory_sequence = models.PositiveBigIntegerField(
        default=0, help_text="of the last report that was taken"
    )
    inventory_digest = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 of that report's content"
    )

    owner_hold = models.CharField(max_length=16, choices=OwnerHold, default=OwnerHold.NONE, blank=True)
    terminate_at = models.DateTimeField(
        null=True, blank=True, help_text="when it will be removed, as announced; only ever moves earlier"
    )
    notice_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="how long an interruptible node announces its end before it"
    )
    removed_at = models.DateTimeField(null=True, blank=True)

    cpu_cores = models.PositiveIntegerField(null=True, blank=True)
    cpu_model = models.CharField(max_length=128, blank=True)
    ram_mb = models.PositiveBigIntegerField(null=True, blank=True)
    disk_total_gb = models.PositiveIntegerField(null=True, blank=True)
    disk_free_gb = models.PositiveIntegerField(null=True, blank=True)
    tdx_enabled = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = NodeQuerySet.as_manager()

    # Annotations of `with_status`.
    status: str
    heard: bool
    # Set by NodeAuthentication. `was_silent`: the node was offline until this call.
    was_silent: bool
    open_incidents: list[str]

    class Meta:
        ordering = ("-created_at", "-id")
        indexes = [
            models.Index(fields=["organization", "-created_at", "-id"], name="node_org_newest"),
            models.Index(fields=["runtime"], condition=models.Q(removed_at=None), name="node_live_runtime"),
            models.Index(
                fields=["terminate_at"],
                condition=models.Q(removed_at=None, terminate_at__isnull=False),
                name="node_leaving",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "hostname"],
                condition=models.Q(removed_at=None),
                name="node_hostname_once",
            ),
            models.CheckConstraint(
                condition=models.Q(hostname__regex=HOST_NAME_PATTERN), name="node_hostname_canonical"
            ),
        ]

    def __str__(self) -> str:
        return self.hostname

    @property
    def takes_new_work(self) -> bool:
        """Whether the owner allows new workloads here. True also for an offline node."""
        return not self.owner_hold and self.removed_at is None and self.terminate_at is None


class NodeHeartbeat(models.Model):
    """The last heartbeat of a node. A separate row, so that heartbeats do not wait for the node's lock."""

    node = models.OneToOneField(Node, models.CASCADE, primary_key=True, related_name="heartbeat")
    seen_at = models.DateTimeField(null=True, blank=True)
    agent_version = models.CharField(max_length=64, blank=True)
    agent_level = models.PositiveIntegerField(default=1)

    class Meta:
        indexes = [models.Index(fields=["seen_at"], name="heartbeat_seen")]

    def __str__(self) -> str:
        return f"heartbeat of {self.node_id}"


class NodeCredential(models.Model):
    """A credential of a node's agent. Only the digest of the secret is stored."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    node = models.ForeignKey(Node, models.CASCADE, related_name="credentials")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(max_length=16)
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["node"], condition=models.Q(revoked_at=None), name="node_credential_live"),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}…"
