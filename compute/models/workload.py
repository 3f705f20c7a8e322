"""Workloads: VMs and pods, with what was requested and their present state."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from compute.domain import states
from compute.models.ssh_key import SshKey
from compute.querysets import WorkloadQuerySet
from openrelay.core.ids import new_id


class Tier(models.TextChoices):
    """How a workload is bought. The owner of the capacity may evict a spot workload without notice."""

    COMMUNITY = "community"
    VERIFIED = "verified"
    SPOT = "spot"


class Workload(models.Model):
    """A VM or a pod of an organization.

    Only `services.lifecycle.transitions` changes `status` and `status_reason`, by the table of states. The
    row stores the request as it was made; `guest_mem_mb` and `guest_vcpu` are what the guest got.
    """

    class Kind(models.TextChoices):
        VM = "vm", "VM"
        POD = "pod", "pod"

    # The path of a pod's volume inside the pod.
    VOLUME_PATH = "/workspace"

    class ComputeClass(models.TextChoices):
        NONE = "", "none (a VM)"
        ON_DEMAND = "on_demand"

    class Status(models.TextChoices):
        PENDING = states.PENDING
        DEPLOYING = states.DEPLOYING
        RUNNING = states.RUNNING
        INTERRUPTED = states.INTERRUPTED
        STOPPED = states.STOPPED
        FAILED = states.FAILED
        TERMINATED = states.TERMINATED

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey("identity.Organization", models.PROTECT, related_name="workloads")
    kind = models.CharField(max_length=8, choices=Kind, default=Kind.VM)
    name = models.CharField(max_length=128)
    tier = models.CharField(max_length=16, choices=Tier, default=Tier.COMMUNITY)
    status = models.CharField(max_length=16, choices=Status)
    status_reason = models.CharField(max_length=300, blank=True)
    status_since = models.DateTimeField(
        null=True, blank=True, help_text="when the status last changed; null since its creation"
    )
    node = models.ForeignKey("nodes.Node", models.PROTECT, null=True, blank=True, related_name="workloads")

    gpu_model = models.ForeignKey(
        "nodes.GpuModel", models.PROTECT, null=True, blank=True, related_name="workloads"
    )
    gpu_count = models.PositiveSmallIntegerField(default=0)
    resource_size = models.CharField(max_length=64, blank=True, help_text="of a VM without GPUs")
    guest_vcpu = models.PositiveIntegerField(null=True, blank=True)
    guest_mem_mb = models.PositiveIntegerField(null=True, blank=True, help_text="MiB the guest got")
    requested_guest_mem_mb = models.PositiveIntegerField(null=True, blank=True, help_text="MiB asked for")
    # For a pod, the size of its volume.
    disk_size_gb = models.PositiveIntegerField()
    compute_class = models.CharField(
        max_length=16, choices=ComputeClass, default=ComputeClass.NONE, blank=True, help_text="of a pod"
    )
    requested_shm_gb = models.PositiveIntegerField(
        null=True, blank=True, help_text="GiB of shared memory that a pod asked for"
    )
    shm_mb = models.PositiveIntegerField(
        null=True, blank=True, help_text="MiB of shared memory that a pod got; null for its runtime's default"
    )
    price_per_hour_cents = models.PositiveIntegerField(
        null=True, blank=True, help_text="the whole workload's rate; null where a contract sets it elsewhere"
    )

    template = models.ForeignKey(
        "compute.VmTemplate", models.PROTECT, null=True, blank=True, related_name="workloads"
    )
    image_url = models.CharField(max_length=1024, blank=True)
    cloud_init = models.TextField(blank=True)
    env_vars = models.JSONField(default=dict, blank=True)
    container_command = ArrayField(models.TextField(), default=list, blank=True)
    container_port = models.PositiveIntegerField(null=True, blank=True)
    health_check_path = models.CharField(max_length=1024, blank=True)
    health_check_port = models.PositiveIntegerField(null=True, blank=True)
    health_checks = ArrayField(models.TextField(), default=list, blank=True)
    kernel_modules = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    privileged = models.BooleanField(default=False)
    public = models.BooleanField(default=False)
    preferred_regions = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    allow_fallback = models.BooleanField(default=False)
    node_named = models.BooleanField(default=False, help_text="whether its creator named the node")
    ssh_keys: "models.ManyToManyField[SshKey, WorkloadSshKey]" = models.ManyToManyField(
        "compute.SshKey", through="compute.WorkloadSshKey", related_name="workloads"
    )

    created_by = models.CharField(max_length=80)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    started_at = models.DateTimeField(
        null=True, blank=True, help_text="when it first ran since it last deployed"
    )
    interrupted_at = models.DateTimeField(null=True, blank=True)
    terminated_at = models.DateTimeField(null=True, blank=True)

    objects = WorkloadQuerySet.as_manager()

    # Annotations of `workload_detail.detail`.
    catalog_cents: int | None
    node_heard: bool

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = [
            models.CheckConstraint(condition=Q(status__in=states.ALL), name="workload_status_known"),
            models.CheckConstraint(condition=Q(tier__in=Tier.values), name="workload_tier_known"),
            models.CheckConstraint(
                condition=~Q(status__in=states.HOLDING) | Q(node__isnull=False), name="workload_live_has_node"
            ),
            models.CheckConstraint(
                condition=Q(status=states.TERMINATED, terminated_at__isnull=False)
                | (~Q(status=states.TERMINATED) & Q(terminated_at=None)),
                name="workload_terminated_has_time",
            ),
            models.CheckConstraint(
                condition=Q(compute_class__in=("", "on_demand")), name="workload_compute_class_known"
            ),
            models.CheckConstraint(
                condition=Q(gpu_count=0) | Q(gpu_model__isnull=False), name="workload_gpus_have_model"
            ),
        ]
        indexes = [
            models.Index(fields=["organization", "kind", "-created_at", "-id"], name="workload_org_newest"),
            models.Index(
                fields=["organization", "kind", "-created_at", "-id"],
                condition=~Q(status=states.TERMINATED),
                name="workload_org_active",
            ),
            models.Index(fields=["organization", "status", "-created_at", "-id"], name="workload_org_status"),
            models.Index(fields=["organization", "tier", "-created_at", "-id"], name="workload_org_tier"),
            models.Index(
                fields=["organization", "gpu_model", "-created_at", "-id"], name="workload_org_model"
            ),
            models.Index(fields=["organization", "node", "-created_at", "-id"], name="workload_org_node"),
            models.Index(fields=["organization", "name", "-created_at", "-id"], name="workload_org_name"),
            models.Index(fields=["node"], condition=~Q(status=states.TERMINATED), name="workload_of_node"),
            # For the sweeps: only a few of all rows are in a passing state.
            models.Index(fields=["status"], condition=Q(status__in=states.PASSING), name="workload_passing"),
        ]

    def __str__(self) -> str:
        return self.name


class WorkloadSshKey(models.Model):
    """One SSH key attached to one workload."""

    workload = models.ForeignKey(Workload, models.CASCADE, related_name="key_rows")
    ssh_key = models.ForeignKey("compute.SshKey", models.PROTECT, related_name="workload_rows")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workload", "ssh_key"], name="workload_key_once")]

    def __str__(self) -> str:
        return f"{self.ssh_key_id} on {self.workload_id}"
