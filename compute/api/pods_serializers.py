"""What the pod operations take: the shape alone, unknown fields refused."""

from compute.api.serializers import checked_env_vars
from compute.domain.host_shares import MAX_DISK_GB
from compute.services.requests.create_pod import COMPUTE_CLASSES
from openrelay.api.pagination import PageQuery
from openrelay.api.serializers import (
    NameField,
    StrictBooleanField,
    StrictCharField,
    StrictChoiceField,
    StrictIntegerField,
    StrictListField,
    StrictMapField,
    StrictSerializer,
)

_MAX_GPUS = 4096
_MAX_GIB = 1_000_000


class PodQuery(PageQuery):
    """Which pods to list."""


class CreatePod(StrictSerializer):
    """A pod to create. Volume in GB, shared memory in GiB."""

    image = StrictCharField(max_length=1024)
    sshKeyIds = StrictListField(
        child=StrictCharField(max_length=64), min_length=1, max_length=100, source="ssh_key_ids"
    )
    name = NameField(max_length=128, required=False)
    gpuCount = StrictIntegerField(min_value=1, max_value=_MAX_GPUS, required=False, source="gpu_count")
    gpuModelId = StrictCharField(max_length=64, required=False, source="gpu_model_id")
    computeClass = StrictChoiceField(list(COMPUTE_CLASSES), required=False, source="compute_class")
    volumeGb = StrictIntegerField(min_value=1, max_value=MAX_DISK_GB, required=False, source="volume_gb")
    shmSizeGb = StrictIntegerField(min_value=1, max_value=_MAX_GIB, required=False, source="shm_size_gb")
    httpPort = StrictIntegerField(min_value=1, max_value=65535, required=False, source="http_port")
    envVars = StrictMapField(
        child=StrictCharField(max_length=32768, allow_blank=True), required=False, source="env_vars"
    )
    public = StrictBooleanField(required=False)

    def validate_envVars(self, value: dict[str, str]) -> dict[str, str]:
        """Names that an environment can have."""
        return checked_env_vars(value)
