"""Creating a VM: on the node it names, or on the one of the public pool that it fits best."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from compute.domain.host_shares import largest_guest_mb
from compute.domain.selection import list_totals, reachable_totals
from compute.models import Tier, Workload
from compute.services.access.ssh_keys import keys_of, named_keys
from compute.services.billing.accounts import account_of, require_means
from compute.services.billing.prices import sold_at
from compute.services.fleet import pool_scan
from compute.services.fleet.delta import read_with_delta
from compute.services.fleet.ranking import best_fits
from compute.services.placement.attempts import AttemptLoop, TargetNode, find_target_node
from compute.services.placement.commit import place, unknown_node
from compute.services.placement.decide import PlacementRequest, Rejection, shape_for
from compute.services.placement.largest_fit import largest_in_pool
from compute.services.placement.pod_admission import granting
from compute.services.placement.snapshot import reading
from compute.services.requests.create_cpu_vm import create_cpu_vm
from compute.services.requests.regions import regions_of, require_one_place
from compute.services.requests.templates import default_template, starts_from, template_for
from compute.services.requests.vm_images import require_image
from nodes.models import GpuModel
from openrelay.core.errors import ApiError, Invalid, Unavailable
from openrelay.core.idempotency import NO_GUARD, IdempotencyGuard
from openrelay.core.ids import parse_id
from openrelay.core.rows import Reading
from openrelay.identity.caller import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class VmRequest:
    """What a customer asks for. Sizes are MiB and GB; ids are as they came.

    `details` has what is handed on to the node as it is: image, cloud-init, environment and the like.
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
    wanted = _resolve(caller, request, gpu_count)
    if request.node_id is not None:
        return _on_named_node(caller, request.node_id, wanted, guard)
    return in_the_pool(caller, request, wanted, guard)


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
    # What is news of the pool comes with the rest, whether or not it will be needed.
    (account, keys, sold, default), delta = read_with_delta(
        org,
        request.tier,
        account_of(org),
        keys_of(org, request.ssh_key_ids),
        sold_at(request.tier, model_id),
        default_template(model_id=model_id, gpu_count=gpu_count),
    )
    # On a node that it names it may have what it is not billed for.
    if request.node_id is None:
        require_means(account)
    return PlacementRequest(
        name=request.name,
        gpu_count=gpu_count,
        tier=request.tier,
        keys=named_keys(request.ssh_key_ids, keys),
        sold=tuple(sold),
        delta=delta,
        model_id=model_id,
        guest_mem_mb=request.guest_mem_mb,
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


def _on_named_node(
    caller: Caller, node_id: str, wanted: PlacementRequest, guard: IdempotencyGuard
) -> Workload:
    """Place on that node, waiting for its lock, or raise."""
    named = find_target_node(caller, node_id)
    trial: AttemptLoop[TargetNode] = AttemptLoop(
        caller,
        guard,
        _action(wanted),
        lambda held, now, _: place(held, now, wanted, named=True),
        _facts_for(caller, wanted),
    )
    outcome = trial.wait_for(named)
    if isinstance(outcome, Workload):
        return outcome
    if outcome is None:
        raise unknown_node()
    there = pool_scan.hardware(caller.organization_id, node_id=named.node_id)
    if (never := _never(_of_model(there, wanted), wanted)) is not None:
        raise never
    sentence = f"The node you named has no room: {outcome.sentence}."
    raise _refused([outcome], wanted, sentence, outcome.fits)


def in_the_pool(
    caller: Caller, request: VmRequest, wanted: PlacementRequest, guard: IdempotencyGuard = NO_GUARD
) -> Workload:
    """Place on the best fit of the public pool, or raise what `create_vm` does.

    First every candidate that nobody is changing just now, then those that were; each decided under its lock,
    in a transaction of its own.
    """
    regions = regions_of(request.preferred_regions)
    if wanted.model_id is not None and not wanted.sold:
        raise Invalid(f"That GPU model is not sold at tier {wanted.tier}. Ask for another of either.")
    trial: AttemptLoop[pool_scan.Candidate] = AttemptLoop(
        caller,
        guard,
        _action(wanted),
        lambda held, now, candidate: place(held, now, _at(wanted, candidate), named=False),
        _facts_for(caller, wanted),
    )
    if not wanted.pod:
        delta = wanted.delta
        for where in (regions, frozenset[str]()) if regions and request.allow_fallback else (regions,):
            fits = best_fits(
                organization_id=caller.organization_id,
                tier=wanted.tier,
                gpu_count=wanted.gpu_count,
                model_ids=wanted.sold,
                regions=where,
                delta=delta,
            )
            if (made := trial.first_pass(fits.candidates).made) is not None:
                return made
            delta = None
            # Others of the region may have room where its best fits are busy: those below, before elsewhere.
            if fits.candidates:
                break
        if fits.most is not None:
            raise _no_room(caller, request, wanted, ())
        # What could never be is not tried on every node.
        if (never := _never(_hardware(caller, request, wanted), wanted)) is not None:
            raise never
    # Before anyone is refused, every unit is looked at.
    open_nodes = pool_scan.candidates(
        organization_id=caller.organization_id,
        tier=wanted.tier,
        levels=granting(caller.organization_id, wanted.sold) if wanted.pod else dict.fromkeys(wanted.sold, 0),
        alloc_class=wanted.alloc_class,
        regions=() if request.allow_fallback else regions,
    )
    tried = trial.first_pass(pool_scan.best_first(open_nodes, wanted.gpu_count, regions))
    if tried.made is None:
        tried = trial.second_pass(tried)
    if tried.made is not None:
        return tried.made
    raise _no_room(caller, request, wanted, tried.refusals, open_nodes if regions else None)


def _no_room(
    caller: Caller,
    request: VmRequest,
    wanted: PlacementRequest,
    refusals: Sequence[Rejection],
    among: Sequence[pool_scan.NodeGroup] | None = None,
) -> ApiError:
    if (never := _never(_hardware(caller, request, wanted), wanted)) is not None:
        return never
    most = largest_in_pool(caller.organization_id, wanted, among=among)
    return _refused(refusals, wanted, "There is no room in the public pool now.", most)


def _hardware(caller: Caller, request: VmRequest, wanted: PlacementRequest) -> list[pool_scan.Hardware]:
    """What nodes of the pool could ever give the caller's organization."""
    regions = () if request.allow_fallback else request.preferred_regions
    found = pool_scan.hardware(caller.organization_id, alloc_class=wanted.alloc_class, regions=regions)
    return _of_model(found, wanted)


def _facts_for(caller: Caller, wanted: PlacementRequest) -> Reading:
    """What to read with the lock of a node: all that placing there goes by."""
    excluding_workload = wanted.again.pk if wanted.again else None
    return reading(caller.organization_id, wanted.tier, excluding_workload=excluding_workload)


def _action(wanted: PlacementRequest) -> str:
    return "compute.operate" if wanted.again else "compute.create"


def _at(wanted: PlacementRequest, candidate: pool_scan.Candidate) -> PlacementRequest:
    """The same VM, of the candidate's GPU model: another on that node may not be for sale."""
    return dataclasses.replace(wanted, model_id=candidate.model_id)


def _of_model(hardware: list[pool_scan.Hardware], wanted: PlacementRequest) -> list[pool_scan.Hardware]:
    return [row for row in hardware if wanted.model_id in (None, row.model_id)]


def _refused(refusals: Sequence[Rejection], wanted: PlacementRequest, sentence: str, most: int) -> ApiError:
    """What to answer when no node took the VM, though one could: what is short now. `most` would fit."""
    what = _what(wanted)
    are = "are" if wanted.gpu_count > 1 else "is"
    fits = f"At most {most} would fit now." if most else "None would fit now."
    if any(refusal.host or refusal.shape for refusal in refusals):
        return Unavailable(
            f"{what} {are} free, but not with that much memory and disk now. {fits} Ask for less, or try "
            "later.",
            code="INSUFFICIENT_HOST_CAPACITY",
        )
    if any(refusal.addresses for refusal in refusals):
        return Unavailable(
            f"{what} {are} free, but the InfiniBand fabric there has no free address. Try again later.",
            code="INSUFFICIENT_IP_CAPACITY",
        )
    another = "fewer" if most < wanted.gpu_count else "another number of"
    return Unavailable(f"{sentence} {fits} Try again later{f', or with {another} GPUs' if most else ''}.")


def _never(hardware: Sequence[pool_scan.Hardware], wanted: PlacementRequest) -> Invalid | None:
    """Why that hardware could never give it; None when it could."""
    able = [row for row in hardware if reachable_totals(row.sizes) >> wanted.gpu_count & 1]
    what = _what(wanted)
    if not able:
        possible = sorted({count for row in hardware for count in list_totals(reachable_totals(row.sizes))})
        # All of it is reserved to others or has failed. What is there is not told, and may come back.
        if hardware and not possible:
            return None
        offered = f"Possible are {', '.join(map(str, possible))}." if possible else "None is possible there."
        return Invalid(
            f"No node can give a {'pod' if wanted.pod else 'VM'} {what} of one model. {offered}",
            code="GPU_COUNT_NOT_ALLOCATABLE",
        )
    if not any(shape_for(wanted, row.share, vram_gb=row.vram_gb, node_gpus=row.node_gpus) for row in able):
        if wanted.pod:
            return _pod_too_large(able, wanted, what)
        return Invalid(_too_large(able, wanted, what), code="VM_SHAPE_NOT_PLACEABLE")
    return None


def _what(wanted: PlacementRequest) -> str:
    return f"{wanted.gpu_count} GPU{'s' if wanted.gpu_count > 1 else ''}"


def _too_large(able: Sequence[pool_scan.Hardware], wanted: PlacementRequest, what: str) -> str:
    """What of a VM is above what its GPUs come with on any node: what it asks for, or what all have."""
    least = dataclasses.replace(wanted, guest_mem_mb=None, disk_gb=None)
    if wanted.again is None and not any(
        shape_for(least, row.share, vram_gb=row.vram_gb, node_gpus=row.node_gpus) for row in able
    ):
        return (
            f"The memory that goes with {what} is below what a guest with them has to have, on any node. Ask "
            "for another number of GPUs, or another model."
        )
    return f"guestMemMb or diskSizeGb is above what {what} come with on any node. Ask for less."


def _pod_too_large(able: Sequence[pool_scan.Hardware], wanted: PlacementRequest, what: str) -> Invalid:
    """What of a pod is above what its GPUs come with on any node."""
    excluding_workload = dataclasses.replace(wanted, shm_gb=None)
    if any(
        shape_for(excluding_workload, row.share, vram_gb=row.vram_gb, node_gpus=row.node_gpus) for row in able
    ):
        memory = max(
            largest_guest_mb(row.share.ram_budget_mb * wanted.gpu_count)
            for row in able
            if row.share.ram_budget_mb is not None
        )
        sentence = f"shmSizeGb is above {memory // 2048}, half of the memory that {what} come with at most."
    else:
        sentence = f"volumeGb is above what {what} come with on any node."
    return Invalid(f"{sentence} Ask for less.", code="POD_ADMISSION_FAILED")
