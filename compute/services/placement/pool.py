"""Placing a request: on the node that it names, or on the best fit of the public pool."""

from collections.abc import Sequence

from compute.models import Workload
from compute.services.fleet import pool_scan
from compute.services.fleet.pod_levels import required_levels
from compute.services.fleet.ranking import best_fits
from compute.services.fleet.regions import regions_of
from compute.services.placement.attempts import AttemptLoop
from compute.services.placement.cpu_pool import place_cpu_in_pool, place_cpu_on_node
from compute.services.placement.largest_fit import largest_in_pool
from compute.services.placement.messages import impossible, no_room
from compute.services.placement.request import PlacementRequest, Rejection
from compute.services.placement.targets import find_target_node, unknown_node
from openrelay.core.errors import ApiError, Invalid
from openrelay.core.idempotency import NO_GUARD, IdempotencyGuard
from openrelay.identity.caller import Caller


def place_on_node(
    caller: Caller, node_id: str, request: PlacementRequest, guard: IdempotencyGuard = NO_GUARD
) -> Workload:
    """Place on the node that the caller names, waiting for its lock, or raise what `create_vm` does."""
    pk = find_target_node(caller, node_id)
    if not request.gpu_count:
        return place_cpu_on_node(caller, pk, request, guard)
    outcome = AttemptLoop(caller, guard, request, named=True).wait_for(pk)
    if isinstance(outcome, Workload):
        return outcome
    if outcome is None:
        raise unknown_node()
    hardware = pool_scan.hardware(caller.organization_id, node_id=pk)
    if (error := impossible(_of_model(hardware, request), request)) is not None:
        raise error
    sentence = f"The node you named has no room: {outcome.sentence}."
    raise no_room([outcome], request, sentence, outcome.fits)


def place_in_pool(caller: Caller, request: PlacementRequest, guard: IdempotencyGuard = NO_GUARD) -> Workload:
    """Place on the best fit of the public pool, or raise what `create_vm` does.

    First the candidates whose locks are free, then those whose locks were held; each is decided under its
    lock, in a transaction of its own.
    """
    if not request.gpu_count:
        return place_cpu_in_pool(caller, request, guard)
    regions = regions_of(request.regions)
    if request.model_id is not None and not request.sold:
        raise Invalid(f"That GPU model is not sold at tier {request.tier}. Ask for another of either.")
    attempts = AttemptLoop(caller, guard, request)
    if not request.is_pod and (made := _place_by_index(attempts, regions)) is not None:
        return made
    # Every unit is looked at before the request is refused.
    org_id = caller.organization_id
    groups = pool_scan.candidates(
        organization_id=org_id,
        tier=request.tier,
        levels=required_levels(org_id, request.sold) if request.is_pod else dict.fromkeys(request.sold, 0),
        alloc_class=request.alloc_class,
        regions=() if request.allow_fallback else regions,
    )
    tried = attempts.first_pass(pool_scan.best_first(groups, request.gpu_count, regions))
    if tried.made is None:
        tried = attempts.second_pass(tried)
    if tried.made is not None:
        return tried.made
    raise _no_room_in_pool(caller, request, tried.rejections, groups if regions else None)


def _place_by_index(attempts: AttemptLoop, regions: frozenset[str]) -> Workload | None:
    """Place a VM on one of the best fits that the fleet index knows; None when their locks are held or they
    have no room any more.

    Raises what `create_vm` does when the index or the hardware says that nothing fits.
    """
    caller, request = attempts.caller, attempts.request
    delta = request.delta
    fallback = bool(regions) and request.allow_fallback
    for among in (regions, frozenset[str]()) if fallback else (regions,):
        fits = best_fits(
            organization_id=caller.organization_id,
            tier=request.tier,
            gpu_count=request.gpu_count,
            model_ids=request.sold,
            regions=among,
            delta=delta,
        )
        if (made := attempts.first_pass(fits.candidates).made) is not None:
            return made
        delta = None
        # Others of the region may have room where its best fits are busy: the scan tries those first.
        if fits.candidates:
            break
    if fits.most is not None:
        raise _no_room_in_pool(caller, request, ())
    # An impossible request is not tried on every node.
    if (error := impossible(_pool_hardware(caller, request), request)) is not None:
        raise error
    return None


def _no_room_in_pool(
    caller: Caller,
    request: PlacementRequest,
    rejections: Sequence[Rejection],
    among: Sequence[pool_scan.NodeGroup] | None = None,
) -> ApiError:
    if (error := impossible(_pool_hardware(caller, request), request)) is not None:
        return error
    most = largest_in_pool(caller.organization_id, request, among=among)
    return no_room(rejections, request, "There is no room in the public pool now.", most)


def _pool_hardware(caller: Caller, request: PlacementRequest) -> list[pool_scan.Hardware]:
    """What nodes of the pool could ever give the caller's organization."""
    regions = () if request.allow_fallback else request.regions
    found = pool_scan.hardware(caller.organization_id, alloc_class=request.alloc_class, regions=regions)
    return _of_model(found, request)


def _of_model(hardware: list[pool_scan.Hardware], request: PlacementRequest) -> list[pool_scan.Hardware]:
    return [row for row in hardware if request.model_id in (None, row.model_id)]
