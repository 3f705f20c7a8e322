"""Creating a VM without GPUs, of a size from the table: on the node it names, or where it is least in the way
of GPUs.
"""

from compute.domain.host_shares import DISK_GB, HostAllocation
from compute.models import ResourceSize, Workload
from compute.services.access.ssh_keys import keys_query, require_known_keys
from compute.services.billing.accounts import account_query, require_funded_account
from compute.services.fleet.regions import require_one_place
from compute.services.placement.pool import place_in_pool, place_on_node
from compute.services.placement.request import PlacementRequest
from compute.services.requests.templates import default_template, starts_from, template_for
from compute.services.requests.vm_images import require_image
from compute.services.requests.vm_request import VmRequest
from openrelay.core import shared_connection
from openrelay.core.errors import Invalid
from openrelay.core.idempotency import NO_GUARD, IdempotencyGuard
from openrelay.identity.caller import Caller


def create_cpu_vm(*, caller: Caller, request: VmRequest, guard: IdempotencyGuard = NO_GUARD) -> Workload:
    """Create a VM of the size that the request names, in the caller's organization. It claims no GPU.

    With `node_id` it is placed there or not at all. Without, on whichever node that takes new work it is
    least in the way of GPUs on; in `preferred_regions` only, unless `allow_fallback`.

    Raises Invalid VALIDATION_ERROR, UNKNOWN_NODE, NODE_DECOMMISSIONED or VM_SHAPE_NOT_PLACEABLE for what can
    never be; Conflict ACCOUNT_RESTRICTED or INSUFFICIENT_BALANCE; Unavailable INSUFFICIENT_HOST_CAPACITY for
    what cannot be now.
    """
    placement_request = _resolve(caller, request)
    if request.node_id is not None:
        return place_on_node(caller, request.node_id, placement_request, guard)
    return place_in_pool(caller, placement_request, guard)


def _resolve(caller: Caller, request: VmRequest) -> PlacementRequest:
    """The request with its ids looked up. Raises Invalid for what cannot be, whatever the fleet."""
    if request.resource_size is None:
        raise Invalid(f"Give gpuCount, 1 or more, or a resourceSize without GPUs: {_sizes()}.")
    if request.gpu_model_id is not None:
        raise Invalid("gpuModelId is for VMs with GPUs; gpuCount is 0. Leave one of them out.")
    if request.guest_mem_mb is not None:
        raise Invalid(
            "guestMemMb is for VMs with GPUs; without, resourceSize sets the memory. Omit it, or name a "
            f"larger size: {_sizes()}."
        )
    size = ResourceSize.objects.filter(slug=request.resource_size).first()
    if size is None:
        raise Invalid(f"resourceSize must be one of {_sizes()}.")
    require_one_place(request.node_id, request.preferred_regions, request.allow_fallback)
    require_image(request.details.get("image_url"))
    template = template_for(
        request.template_id, model_id=None, gpu_count=0, image_url=request.details.get("image_url")
    )
    account, keys, default = shared_connection.read(
        account_query(caller.organization_id),
        keys_query(caller.organization_id, request.ssh_key_ids),
        default_template(model_id=None, gpu_count=0),
    )
    if request.node_id is None:
        require_funded_account(account)
    return PlacementRequest(
        name=request.name,
        gpu_count=0,
        resource_size=size.slug,
        regions=tuple(request.preferred_regions),
        allow_fallback=request.allow_fallback,
        allocation=HostAllocation(size.ram_mb, size.vcpu, request.disk_size_gb or DISK_GB),
        tier=request.tier,
        keys=require_known_keys(request.ssh_key_ids, keys),
        details={
            **request.details,
            "template_id": starts_from(template, request.details, default),
            "preferred_regions": list(request.preferred_regions),
            "allow_fallback": request.allow_fallback,
        },
    )


def _sizes() -> str:
    """The names of the sizes there are, the smallest first."""
    return ", ".join(ResourceSize.objects.values_list("slug", flat=True)) or "there is none"
