"""Creating a pod: a container image on whole GPUs of one node of the public pool."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from compute.domain.container_images import why_not_an_image
from compute.domain.host_shares import VOLUME_GB
from compute.models import Tier, Workload
from compute.services.access.ssh_keys import keys_query, require_known_keys
from compute.services.billing.accounts import account_query, require_funded_account
from compute.services.billing.prices import sold_at
from compute.services.placement.pool import place_in_pool
from compute.services.placement.request import PlacementRequest
from compute.services.requests.create_vm import model_of
from nodes.models import GpuUnit
from openrelay.core import shared_connection
from openrelay.core.errors import Invalid
from openrelay.core.idempotency import NO_GUARD, IdempotencyGuard
from openrelay.identity.caller import Caller

ON_DEMAND, RESERVED, INTERRUPTIBLE = "on_demand", "reserved", "interruptible"
COMPUTE_CLASSES: Final = (ON_DEMAND, RESERVED, INTERRUPTIBLE)
HTTP_PORT: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """What a customer asks for. Volume and shared memory are in GB and GiB; ids are as they came."""

    image: str
    ssh_key_ids: Sequence[str]
    name: str | None = None
    gpu_count: int = 1
    gpu_model_id: str | None = None
    compute_class: str = ON_DEMAND
    volume_gb: int = VOLUME_GB
    shm_size_gb: int | None = None
    http_port: int = HTTP_PORT
    env_vars: Mapping[str, str] = field(default_factory=dict)
    public: bool = False


def create_pod(*, caller: Caller, request: PodRequest, guard: IdempotencyGuard = NO_GUARD) -> Workload:
    """Create a pod in the caller's organization and claim GPU units of one node for it.

    It is placed in the public pool, on the node that is left with the fewest free GPUs of those whose agent
    can give it what it needs. Without a model it gets whichever is sold and fits best.

    Raises Invalid VALIDATION_ERROR, COMPUTE_CLASS_RETIRED, GPU_COUNT_NOT_ALLOCATABLE or POD_ADMISSION_FAILED
    for what can never be; Conflict ACCOUNT_RESTRICTED or INSUFFICIENT_BALANCE; Unavailable
    INSUFFICIENT_GPU_CAPACITY, INSUFFICIENT_HOST_CAPACITY or INSUFFICIENT_IP_CAPACITY for what cannot be now.
    """
    if request.compute_class == INTERRUPTIBLE:
        raise Invalid(
            "computeClass interruptible is no longer sold. Ask for on_demand, or leave it out.",
            code="COMPUTE_CLASS_RETIRED",
        )
    if why := why_not_an_image(request.image):
        raise Invalid(f"image {why}. Give a reference such as ghcr.io/acme/trainer:1.4.")
    name = request.name or f"pod-{secrets.token_hex(4)}"
    model_id = model_of(request.gpu_model_id)
    account, keys, sold = shared_connection.read(
        account_query(caller.organization_id),
        keys_query(caller.organization_id, request.ssh_key_ids),
        sold_at(Tier.COMMUNITY, model_id),
    )
    require_funded_account(account)
    placement_request = PlacementRequest(
        name=name,
        gpu_count=request.gpu_count,
        tier=Tier.COMMUNITY,
        keys=require_known_keys(request.ssh_key_ids, keys),
        sold=tuple(sold),
        model_id=model_id,
        disk_gb=request.volume_gb,
        shm_gb=request.shm_size_gb,
        alloc_class=GpuUnit.DEVICE_REQUEST,
        details={
            "compute_class": Workload.ComputeClass.ON_DEMAND,
            "image_url": request.image,
            "container_port": request.http_port,
            "env_vars": dict(request.env_vars),
            "public": request.public,
            "requested_shm_gb": request.shm_size_gb,
        },
    )
    return place_in_pool(caller, placement_request, guard)
