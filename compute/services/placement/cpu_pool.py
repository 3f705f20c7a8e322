"""Placing a VM without GPUs: on the node that it names, or where it is least in the way of GPUs."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from compute.domain.cpu_shares import Host, host_remaining, tightness
from compute.domain.host_shares import HostAllocation
from compute.models import Workload
from compute.services.fleet.regions import regions_of
from compute.services.placement.attempts import AttemptLoop, AttemptResult
from compute.services.placement.cpu_hosts import could_ever, pages
from compute.services.placement.messages import cpu_vm_too_large, no_room_for_cpu_vm
from compute.services.placement.request import PlacementRequest
from compute.services.placement.targets import unknown_node
from openrelay.core.errors import Unavailable
from openrelay.core.idempotency import IdempotencyGuard
from openrelay.identity.caller import Caller


def place_cpu_on_node(
    caller: Caller, node_id: UUID, request: PlacementRequest, guard: IdempotencyGuard
) -> Workload:
    """Place on that node, waiting for its lock, or raise what `create_cpu_vm` does."""
    outcome = AttemptLoop(caller, guard, request, named=True).wait_for(node_id)
    if isinstance(outcome, Workload):
        return outcome
    if outcome is None:
        raise unknown_node()
    if not could_ever(_share(request), node_id=node_id):
        raise cpu_vm_too_large(request, "the node you named")
    raise Unavailable(
        f"The node you named has no room: {outcome.sentence}. Try again later, or name no node.",
        code="INSUFFICIENT_HOST_CAPACITY",
    )


def place_cpu_in_pool(caller: Caller, request: PlacementRequest, guard: IdempotencyGuard) -> Workload:
    """Place on a node of the public pool, or raise what `create_cpu_vm` does.

    First the fitting nodes whose locks are free, then those whose locks were held.
    """
    regions = sorted(regions_of(request.regions))
    attempts = AttemptLoop(caller, guard, request)
    busy: list[Host] = []
    for page in _fitting(caller, request, regions):
        tried = attempts.first_pass(page)
        if tried.made is not None:
            return tried.made
        busy += tried.busy
    tried = attempts.second_pass(AttemptResult(None, [], busy))
    if tried.made is not None:
        return tried.made
    if not could_ever(_share(request), regions=() if request.allow_fallback else regions):
        raise cpu_vm_too_large(request, "any node there is for it")
    raise no_room_for_cpu_vm(request)


def _fitting(caller: Caller, request: PlacementRequest, regions: Sequence[str]) -> Iterator[list[Host]]:
    """Hosts of the pool with room for it, page by page, the best of each first; preferred regions before
    others.
    """
    allocation = _share(request)
    for elsewhere in (False, True) if regions and request.allow_fallback else (False,):
        for page in pages(caller.organization_id, allocation, regions=regions, elsewhere=elsewhere):
            fitting = [host for host in page if not host_remaining(host).lacks(allocation)]
            fitting.sort(key=lambda host: tightness(host, allocation))
            yield fitting


def _share(request: PlacementRequest) -> HostAllocation:
    if request.allocation is None:
        raise ValueError("a request without GPUs needs its share of the host")
    return request.allocation
