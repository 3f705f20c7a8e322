"""Creating a VM without GPUs, of a size from the table: on the node it names, or where it is least in the
way.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from compute.domain.cpu_shares import Host, spare, tightness
from compute.domain.host_shares import DISK_GB, Shape
from compute.models import ResourceSize, Workload
from compute.services.access.ssh_keys import keys_of, named_keys
from compute.services.billing.accounts import account_of, require_means
from compute.services.placement.attempts import AttemptLoop, AttemptResult, TargetNode, find_target_node
from compute.services.placement.commit import unknown_node
from compute.services.placement.cpu_commit import place_cpu
from compute.services.placement.cpu_decide import CpuPlacementRequest
from compute.services.placement.cpu_hosts import could_ever, pages
from compute.services.requests.regions import regions_of, require_one_place
from compute.services.requests.templates import default_template, starts_from, template_for
from compute.services.requests.vm_images import require_image
from openrelay.core import shared_connection
from openrelay.core.errors import ApiError, Invalid, Unavailable
from openrelay.core.idempotency import NO_GUARD, IdempotencyGuard
from openrelay.identity.caller import Caller

if TYPE_CHECKING:
    from compute.services.requests.create_vm import VmRequest


def create_cpu_vm(*, caller: Caller, request: "VmRequest", guard: IdempotencyGuard = NO_GUARD) -> Workload:
    """Create a VM of the size that the request names, in the caller's organization. It claims no GPU.

    With `node_id` it is placed there or not at all. Without, on whichever node that takes new work it is
    least in the way of GPUs on; in `preferred_regions` only, unless `allow_fallback`.

    Raises Invalid VALIDATION_ERROR, UNKNOWN_NODE, NODE_DECOMMISSIONED or VM_SHAPE_NOT_PLACEABLE for what can
    never be; Conflict ACCOUNT_RESTRICTED or INSUFFICIENT_BALANCE; Unavailable INSUFFICIENT_HOST_CAPACITY for
    what cannot be now.
    """
    wanted = _resolve(caller, request)
    if request.node_id is not None:
        return _on_named_node(caller, request.node_id, wanted, guard)
    return cpu_in_the_pool(
        caller, wanted, guard, regions=request.preferred_regions, fallback=request.allow_fallback
    )


def _resolve(caller: Caller, request: "VmRequest") -> CpuPlacementRequest:
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
        account_of(caller.organization_id),
        keys_of(caller.organization_id, request.ssh_key_ids),
        default_template(model_id=None, gpu_count=0),
    )
    if request.node_id is None:
        require_means(account)
    return CpuPlacementRequest(
        name=request.name,
        size=size.slug,
        given=Shape(size.ram_mb, size.vcpu, request.disk_size_gb or DISK_GB),
        tier=request.tier,
        keys=named_keys(request.ssh_key_ids, keys),
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


def _on_named_node(
    caller: Caller, node_id: str, wanted: CpuPlacementRequest, guard: IdempotencyGuard
) -> Workload:
    """Place on that node, waiting for its lock, or raise."""
    named = find_target_node(caller, node_id)
    trial: AttemptLoop[TargetNode] = AttemptLoop(
        caller, guard, _action(wanted), lambda held, now, _: place_cpu(held, now, wanted, named=True)
    )
    outcome = trial.wait_for(named)
    if isinstance(outcome, Workload):
        return outcome
    if outcome is None:
        raise unknown_node()
    if not could_ever(wanted.given, node_id=named.node_id):
        raise _too_large(wanted, "the node you named")
    raise Unavailable(
        f"The node you named has no room: {outcome.sentence}. Try again later, or name no node.",
        code="INSUFFICIENT_HOST_CAPACITY",
    )


def cpu_in_the_pool(
    caller: Caller,
    wanted: CpuPlacementRequest,
    guard: IdempotencyGuard = NO_GUARD,
    *,
    regions: Sequence[str] = (),
    fallback: bool = False,
) -> Workload:
    """Place on a node of the public pool, or raise what `create_cpu_vm` does.

    First every fitting node that nobody is changing just now, then those that were; each decided under its
    lock, in a transaction of its own.
    """
    preferred = sorted(regions_of(regions))
    trial: AttemptLoop[Host] = AttemptLoop(
        caller, guard, _action(wanted), lambda held, now, _: place_cpu(held, now, wanted, named=False)
    )
    busy: list[Host] = []
    for page in _fitting(caller, wanted, preferred, fallback=fallback):
        tried = trial.first_pass(page)
        if tried.made is not None:
            return tried.made
        busy += tried.busy
    tried = trial.second_pass(AttemptResult(None, [], busy))
    if tried.made is not None:
        return tried.made
    if not could_ever(wanted.given, regions=() if fallback else preferred):
        raise _too_large(wanted, "any node there is for it")
    raise Unavailable(
        f"No node has room for a VM of size {wanted.size} with a disk of {wanted.given.disk_gb} GB now. Try "
        "again later, or ask for less.",
        code="INSUFFICIENT_HOST_CAPACITY",
    )


def _fitting(
    caller: Caller, wanted: CpuPlacementRequest, preferred: Sequence[str], *, fallback: bool
) -> Iterator[list[Host]]:
    """Hosts of the pool with room for it, page by page, the best of each first; preferred regions before
    others.
    """
    for elsewhere in (False, True) if preferred and fallback else (False,):
        for page in pages(caller.organization_id, wanted.given, regions=preferred, elsewhere=elsewhere):
            fitting = [host for host in page if not spare(host).lacks(wanted.given)]
            fitting.sort(key=lambda host: tightness(host, wanted.given))
            yield fitting


def _action(wanted: CpuPlacementRequest) -> str:
    return "compute.operate" if wanted.again else "compute.create"


def _too_large(wanted: CpuPlacementRequest, where: str) -> ApiError:
    return Invalid(
        f"A VM of size {wanted.size} with a disk of {wanted.given.disk_gb} GB is larger than {where}. Ask "
        "for less.",
        code="VM_SHAPE_NOT_PLACEABLE",
    )
