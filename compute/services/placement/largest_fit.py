"""The largest GPU count at which a rejected request would fit now; its error names it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from compute.domain.host_usage import CPU, HostRemaining
from compute.models import Tier
from compute.services.fleet import pool_scan
from compute.services.fleet.availability import availability
from compute.services.fleet.node_survey import Figures, NodeShape, read, survey_nodes
from compute.services.fleet.pod_counts import most_gpus
from compute.services.placement.decide import allocation_for
from compute.services.placement.request import PlacementRequest
from nodes.models import GpuModel

# Of a region with more nodes than this, those with the most open GPUs are read.
_AT_MOST = 1000


def largest_in_pool(
    organization_id: UUID, request: PlacementRequest, *, among: Sequence[pool_scan.NodeGroup] | None = None
) -> int:
    """The largest GPU count at which that organization's request, else as it is, would fit in the public pool
    now; 0 for none. On nodes `among` those only, where they are given.
    """
    if request.is_pod:
        return most_gpus(organization_id, request.sold, volume_gb=request.disk_gb or 0)
    offers = _everywhere(organization_id) if among is None else _there(organization_id, among)
    found = 0
    for model, shape in offers:
        if model.pk in request.sold:
            found = max(found, _most(model, shape, request, found))
    return found


def _everywhere(organization_id: UUID) -> Iterator[tuple[GpuModel, NodeShape]]:
    seen = availability(organization_id)
    for row in (*seen.models, *seen.hidden):
        yield from ((row.model, offer.shape) for offer in row.offers)


def _there(
    organization_id: UUID, among: Iterable[pool_scan.NodeGroup]
) -> Iterator[tuple[GpuModel, NodeShape]]:
    ids: list[UUID] = []
    for alike in sorted(among, key=lambda alike: alike.free, reverse=True):
        ids += alike.node_ids[: _AT_MOST - len(ids)]
    surveyed = survey_nodes(organization_id, ids)
    models = GpuModel.objects.in_bulk({row.model_id for row in surveyed})
    yield from ((models[row.model_id], read(row.shape)) for row in surveyed)


def _most(model: GpuModel, shape: NodeShape, request: PlacementRequest, known: int) -> int:
    """The largest count, above what is `known` to fit, that the node could start so; 0 for none."""
    on_market = shape.spot_sizes if request.tier == Tier.SPOT else ()
    if sum(shape.open) + sum(on_market) <= known:
        return 0
    for count, left in _unreserved(shape).tilings(open_sizes=shape.open, on_market=on_market):
        if count <= known:
            break
        other = replace(request, gpu_count=count)
        allocation = allocation_for(other, shape.share, vram_gb=model.vram_gb, node_gpus=sum(shape.possible))
        if allocation is None:
            continue
        lacks = HostRemaining(left.ram_mb, left.vcpu, left.disk_gb, shape.disk_free_gb).lacks(allocation)
        if not lacks or (lacks == (CPU,) and shape.shared_cpus):
            return count
    return 0


def _unreserved(shape: NodeShape) -> NodeShape:
    """The node as it is for a request that does not name it: what is reserved to its own is kept too."""
    own = sum(shape.own)
    if not own:
        return shape
    kept, each = shape.kept, shape.share
    return replace(
        shape,
        own=(),
        kept=Figures(
            None if kept.ram_mb is None else kept.ram_mb + own * (each.ram_budget_mb or 0),
            None if kept.vcpu is None else kept.vcpu + own * (each.vcpu or 0),
            None if kept.disk_gb is None else kept.disk_gb + own * (each.disk_gb or 0),
        ),
    )
