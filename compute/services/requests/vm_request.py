"""What a customer asks for when creating a VM."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from compute.models import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class VmRequest:
    """A request to create a VM. Sizes are MiB and GB; ids are as the customer sent them.

    `details` has the fields that are handed on to the node unchanged: image, cloud-init, environment and the
    like.
    """

    name: str
    ssh_key_ids: Sequence[str]
    gpu_count: int | None = None
    gpu_model_id: str | None = None
    node_id: str | None = None
    tier: str = Tier.COMMUNITY
    guest_mem_mb: int | None = None
    disk_size_gb: int | None = None
    resource_size: str | None = None
    template_id: str | None = None
    preferred_regions: Sequence[str] = ()
    allow_fallback: bool = False
    details: dict[str, object] = field(default_factory=dict)
