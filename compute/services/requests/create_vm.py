"""Creating a VM: on the node it names, or on the one of the public pool that it fits best."""

from uuid import UUID

from compute.models import Workload
from compute.services.access.ssh_keys import keys_query, require_known_keys
from compute.services.billing.accounts import account_query, require_funded_account
from compute.services.billing.prices import sold_at
from compute.services.fleet.index import read_with_delta
from compute.services.fleet.regions import require_one_place
from compute.services.placement.pool import place_in_pool, place_on_node
from compute.services.placement.request import PlacementRequest
from compute.services.requests.create_cpu_vm import create_cpu_vm
from compute.services.requests.templates import default_template, starts_from, template_for
from compute.services.requests.vm_images import require_image
from compute.services.requests.vm_request import VmRequest
from nodes.models import GpuModel
from openrelay.core.errors import Invalid
from openrelay.core.idempotency import NO_GUARD, IdempotencyGuard
from openrelay.core.ids import parse_id
from openrelay.identity.caller import Caller


def create_vm(*, caller: Caller, request: VmRequest, guard: IdempotencyGuard = NO_GUARD) -> Workload:
    """Create a VM in the caller's organization and claim GPU units for it; without GPUs, see `create_cpu_vm`.

    With `node_id` it is placed there or not at all, and what is reserved to the organization on that node
    serves first, if need be by ending spot workloads there. Without, it is placed in the public pool, on the
    node that is left with the fewest free GPUs, a spot VM where most of it is on the spot market; in
    `preferred_regions` only, unless `allow_fallback`.

    Raises Invalid VALIDATION_ERROR, UNKNOWN_NODE, NODE_DECOMMISSIONED, GPU_COUNT_NOT_ALLOCATABLE,
    VM_SHAPE_NOT_PLACEABLE or RESOURCE_SIZE_NOT_APPLICABLE for what can never be; Conflict ACCOUNT_RESTRICTED
    or INSUFFICIENT_BALANCE; Unavailable INSUFFICIENT_GPU_CAPACITY or INSUFFICIENT_HOST_CAPACITY for what
    cannot be now.
    """
    gpu_count = 1 if request.gpu_count is None and request.gpu_model_id is not None else request.gpu_count
    if not gpu_count:
        return create_cpu_vm(caller=caller, request=request, guard=guard)
    placement_request = _resolve(caller, request, gpu_count)
    if request.node_id is not None:
        return place_on_node(caller, request.node_id, placement_request, guard)
    return place_in_pool(caller, placement_request, guard)


def _resolve(caller: Caller, request: VmRequest, gpu_count: int) -> PlacementRequest:
    """The request with its ids looked up. Raises Invalid for what cannot be, whatever the fleet."""
    if request.resource_size is not None:
        raise Invalid(
            "resourceSize is for VMs without GPUs; a VM with GPUs gets its share of the host. "
            "Omit it, and ask for memory by guestMemMb and disk by diskSizeGb.",
            code="RESOURCE_SIZE_NOT_APPLICABLE",
        )
    require_one_place(request.node_id, request.preferred_regions, request.allow_fallback)
    require_image(request.details.get("image_url"))
    model_id = model_of(request.gpu_model_id)
    template = template_for(
        request.template_id,
        model_id=model_id,
        gpu_count=gpu_count,
        image_url=request.details.get("image_url"),
    )
    org = caller.organization_id
    # The delta is read with the rest, whether or not it will be needed.
    (account, keys, sold, default), delta = read_with_delta(
        org,
        request.tier,
        account_query(org),
        keys_query(org, request.ssh_key_ids),
        sold_at(request.tier, model_id),
        default_template(model_id=model_id, gpu_count=gpu_count),
    )
    # On a node that it names it may have what it is not billed for.
    if request.node_id is None:
        require_funded_account(account)
    return PlacementRequest(
        name=request.name,
        gpu_count=gpu_count,
        tier=request.tier,
        keys=require_known_keys(request.ssh_key_ids, keys),
        sold=tuple(sold),
        delta=delta,
        model_id=model_id,
        guest_mem_mb=request.guest_mem_mb,
        regions=tuple(request.preferred_regions),
        allow_fallback=request.allow_fallback,
        disk_gb=request.disk_size_gb,
        details={
            **request.details,
            "template_id": starts_from(template, request.details, default),
            "preferred_regions": list(request.preferred_regions),
            "allow_fallback": request.allow_fallback,
        },
    )


def model_of(gpu_model_id: str | None) -> UUID | None:
    """The GPU model that a request names, None for none. Raises Invalid (VALIDATION_ERROR)."""
    if gpu_model_id is None:
        return None
    model_id = parse_id(gpu_model_id)
    if model_id is None or not GpuModel.objects.filter(pk=model_id).exists():
        raise Invalid("gpuModelId names no GPU model. GET /v1/gpu-models lists them.")
    return model_id
