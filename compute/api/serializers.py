"""What compute's operations take: the shape alone, unknown fields refused."""

from typing import Any

from rest_framework import serializers

from compute.domain.host_shares import MAX_DISK_GB, MIN_DISK_GB
from compute.models import Run, Tier
from compute.services.access.gpu_metrics import RANGES
from compute.services.lifecycle.guest_telemetry import CONSOLE_AT_MOST
from nodes.inventory import MAX_RAM_MB, agent_epoch
from openrelay.api.identities import SlugField
from openrelay.api.pagination import PageQuery
from openrelay.api.serializers import (
    IdField,
    NameField,
    StrictBooleanField,
    StrictCharField,
    StrictChoiceField,
    StrictIntegerField,
    StrictListField,
    StrictMapField,
    StrictSerializer,
    ToldField,
)

_MAX_GPUS = 4096
_MAX_SCRIPT = 256 * 1024


def _port(**kwargs: Any) -> StrictIntegerField:
    return StrictIntegerField(min_value=1, max_value=65535, required=False, **kwargs)


def _words(*, max_length: int = 100, word: int = 4096, **kwargs: Any) -> StrictListField:
    return StrictListField(
        child=StrictCharField(max_length=word), max_length=max_length, required=False, **kwargs
    )


def checked_env_vars(value: dict[str, str]) -> dict[str, str]:
    """The environment as it is, or ValidationError for a name that none can have."""
    for name in value:
        if not 0 < len(name) <= 256 or "=" in name or not name.isprintable():
            raise serializers.ValidationError("has a name that an environment variable cannot have")
    return value


class CreateVm(StrictSerializer):
    """A VM to create. Memory in MiB, disk in GB."""

    name = NameField(max_length=128)
    sshKeyIds = StrictListField(
        child=StrictCharField(max_length=64), min_length=1, max_length=100, source="ssh_key_ids"
    )
    gpuCount = StrictIntegerField(min_value=0, max_value=_MAX_GPUS, required=False, source="gpu_count")
    gpuModelId = StrictCharField(max_length=64, required=False, source="gpu_model_id")
    nodeId = StrictCharField(max_length=64, required=False, source="node_id")
    tier = StrictChoiceField(Tier.values, required=False)
    guestMemMb = StrictIntegerField(min_value=1, max_value=MAX_RAM_MB, required=False, source="guest_mem_mb")
    diskSizeGb = StrictIntegerField(
        min_value=MIN_DISK_GB, max_value=MAX_DISK_GB, required=False, source="disk_size_gb"
    )
    resourceSize = StrictCharField(max_length=64, required=False, source="resource_size")
    templateId = StrictCharField(max_length=64, required=False, source="template_id")
    preferredRegions = StrictListField(
        child=SlugField(max_length=64), max_length=100, required=False, source="preferred_regions"
    )
    allowFallback = StrictBooleanField(required=False, source="allow_fallback")
    imageUrl = StrictCharField(max_length=1024, required=False, source="image_url")
    cloudInit = StrictCharField(max_length=_MAX_SCRIPT, required=False, source="cloud_init")
    envVars = StrictMapField(
        child=StrictCharField(max_length=32768, allow_blank=True), required=False, source="env_vars"
    )
    containerCommand = _words(source="container_command")
    containerPort = _port(source="container_port")
    healthCheckPath = StrictCharField(max_length=1024, required=False, source="health_check_path")
    healthCheckPort = _port(source="health_check_port")
    healthChecks = _words(source="health_checks")
    kernelModules = _words(word=64, source="kernel_modules")
    privileged = StrictBooleanField(required=False)
    public = StrictBooleanField(required=False)

    def validate_cloudInit(self, value: str) -> str:
        """Scripts only: a cloud-config document would never run."""
        if not value.startswith("#!"):
            raise serializers.ValidationError("must begin with a shebang, such as #!/bin/bash")
        return value

    def validate_envVars(self, value: dict[str, str]) -> dict[str, str]:
        """Names that an environment can have."""
        return checked_env_vars(value)

    def validate_healthCheckPath(self, value: str) -> str:
        """A path, not a URL."""
        if not value.startswith("/"):
            raise serializers.ValidationError("must begin with a slash")
        return value


class VmQuery(PageQuery):
    """Which VMs to list."""

    activeOnly = StrictBooleanField(required=False, default=False, source="active_only")
    status = StrictCharField(required=False, max_length=16)
    tier = StrictCharField(required=False, max_length=16)
    nodeId = StrictCharField(required=False, max_length=64)
    gpuModelId = StrictCharField(required=False, max_length=64)
    name = StrictCharField(required=False, max_length=128)


class ResizeDisk(StrictSerializer):
    """A disk to grow, in GB."""

    newSizeGb = StrictIntegerField(min_value=MIN_DISK_GB, max_value=MAX_DISK_GB, source="new_size_gb")


class SetVisibility(StrictSerializer):
    """Who reaches an endpoint."""

    public = StrictBooleanField()


class AttachSshKey(StrictSerializer):
    """A key to open a VM with."""

    sshKeyId = StrictCharField(max_length=64, source="ssh_key_id")


class MetricsQuery(StrictSerializer):
    """The range of metrics to show."""

    range = StrictChoiceField(list(RANGES), required=False, default="1h")


class CreateSshKey(StrictSerializer):
    """A public key to add."""

    name = NameField(max_length=128)
    publicKey = StrictCharField(max_length=16 * 1024, source="public_key")


class GuestReport(StrictSerializer):
    """What an agent says of one guest."""

    runId = IdField(source="run_id")
    state = StrictChoiceField([state for state in Run.Observed.values if state])
    message = ToldField(max_length=2000, required=False, allow_blank=True, default="")
    sshReady = StrictBooleanField(required=False, source="ssh_ready")
    console = ToldField(max_length=CONSOLE_AT_MOST, cut=False, required=False, allow_blank=True)
    diskTotalBytes = StrictIntegerField(min_value=0, required=False, source="disk_total_bytes")
    diskUsedBytes = StrictIntegerField(min_value=0, required=False, source="disk_used_bytes")


class AgentReport(StrictSerializer):
    """An agent's account of its guests."""

    epoch = agent_epoch()
    sequence = StrictIntegerField(min_value=1, max_value=2**62)
    complete = StrictBooleanField(required=False, default=True)
    guests = GuestReport(many=True, allow_empty=True, max_length=1000)  # type: ignore[call-arg]
    disks = StrictListField(child=IdField(), max_length=10_000, required=False, default=list)

    def validate_guests(self, guests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One word a run."""
        if len({guest["run_id"] for guest in guests}) != len(guests):
            raise serializers.ValidationError("names a run twice")
        return guests
