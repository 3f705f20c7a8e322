"""The public pool's best fits for a VM, found in memory instead of by looking at every unit there is."""

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice
from operator import itemgetter
from uuid import UUID

from compute.domain.selection import Fit, fit, reachable_totals
from compute.models import Tier
from compute.services.fleet import pool_scan
from compute.services.fleet.availability import shapes_of
from compute.services.fleet.delta import (
    FleetDelta,
    FleetIndex,
    Id,
    Row,
    one_at_a_time,
    read_delta,
    sync_index,
)
from compute.services.fleet.node_survey import read
from compute.services.fleet.refresh import refresh
from openrelay.core import shared_connection

# As many as may be busy with others' requests at once, and some.
_ENOUGH = 16
_AT_ONCE = 64
_OF_SHAPE = """
SELECT version::text, ARRAY(
    SELECT offer.node_id::text FROM compute_nodeoffer offer {more}
    WHERE offer.gpu_model_id = %s::uuid AND md5(offer.shape) = md5(%s) AND offer.node_id > %s::uuid
    ORDER BY offer.node_id LIMIT %s)
FROM compute_availabilitystate
"""
_ANYWHERE = _OF_SHAPE.format(more="")
_IN_REGION = _OF_SHAPE.format(
    more="""JOIN nodes_node node ON node.id = offer.node_id
    JOIN nodes_location place ON place.id = node.location_id AND place.region = %s"""
)
_OF_REGIONS = """
SELECT ARRAY(
    SELECT node.id::text FROM nodes_node node JOIN nodes_location place ON place.id = node.location_id
    WHERE node.id = ANY(%s::uuid[]) AND place.region = ANY(%s))
"""


@dataclass(frozen=True, slots=True)
class Fits:
    """Some nodes whose open units of one model add up to the count, the best fit first; none is better than
    the first.

    `most` is told when no units anywhere add up to it, where all were asked after: the most GPUs of one model
    that are open on one node.
    """

    candidates: list[pool_scan.Candidate]
    most: int | None = None


# A node that fits: how well, its id, the model, the sizes of its units that are open to all, and of others on
# the market.
FittingNode = tuple[Fit, Id, Id, tuple[int, ...], tuple[int, ...]]


# One request after the other is told much the same nodes.
_uuid = lru_cache(maxsize=4096)(UUID)


class _Replaced(Exception):
    """The offers were surveyed anew while they were read."""


def best_fits(
    *,
    organization_id: UUID,
    tier: str,
    gpu_count: int,
    model_ids: Collection[UUID],
    regions: frozenset[str] = frozenset(),
    delta: FleetDelta | None = None,
) -> Fits:
    """The best fits for so many GPUs of one of the models; in `regions` only, where any are named.

    A node that came to be in one of these since the offers were surveyed may be left out. `delta` is what
    `read_with_delta` just read for that organization and tier. Nothing is told when the offers keep being
    replaced.
    """
    models = frozenset(map(str, model_ids))
    with one_at_a_time:
        for _ in range(3):
            try:
                known, own = sync_index(delta or read_delta(organization_id, tier))
                if known is not None:
                    return _fits(known, own, organization_id, tier, gpu_count, models, regions)
                refresh()
            except _Replaced:
                pass
            delta = None
    return Fits([])


def _fits(
    known: FleetIndex,
    own: frozenset[Id],
    organization_id: UUID,
    tier: str,
    gpu_count: int,
    model_ids: frozenset[Id],
    regions: frozenset[str],
) -> Fits:
    spot = tier == Tier.SPOT
    changed: list[FittingNode] = [
        (how, node, model_id, sizes, on_market if spot else ())
        for node, models in known.open.items()
        if node not in own
        for model_id, sizes, on_market in models
        if model_id in model_ids and (how := fit(sizes, on_market if spot else (), gpu_count)) is not None
    ]
    if own:
        # What is on the market is not for the organization that it is reserved to.
        here = pool_scan.candidates(
            organization_id=organization_id,
            tier=tier,
            levels={UUID(model_id): 0 for model_id in model_ids},
            among=[UUID(node) for node in own],
        )
        changed += [
            (how, str(node), str(alike.model_id), alike.sizes, alike.on_market)
            for alike in here
            if (how := alike.fit(gpu_count)) is not None
            for node in alike.node_ids
        ]
    best: Iterator[FittingNode] = heapq.merge(
        sorted(changed), _unchanged(known, own, tier, gpu_count, model_ids, regions)
    )
    if regions:
        best = _in_regions(best, regions)
    named = {model_id: UUID(model_id) for model_id in model_ids}
    candidates = [
        pool_scan.Candidate(_uuid(node), named[model_id], sizes, on_market)
        for _, node, model_id, sizes, on_market in islice(best, _ENOUGH)
    ]
    told = candidates or own or regions
    return Fits(candidates, None if told else _most(known, tier, gpu_count, model_ids))


def _most(known: FleetIndex, tier: str, gpu_count: int, model_ids: frozenset[Id]) -> int | None:
    """The most GPUs that are open on one node, when nowhere they add up to the count; None when they do, and
    it is the rest of a host that is short.
    """
    sizes = [
        anywhere + on_market if tier == Tier.SPOT else anywhere
        for models in known.open.values()
        for model_id, anywhere, on_market in models
        if model_id in model_ids
    ]
    # Of nodes that have all changed since, as much is open as they say now.
    sizes += [
        row.sizes + row.on_market
        for row in known.rows[tier, None]
        if row.model_id in model_ids and next(_nodes(known, row, frozenset()), None) is not None
    ]
    if any(reachable_totals(each) >> gpu_count & 1 for each in sizes):
        return None
    return max(map(sum, sizes), default=0)


def _unchanged(
    known: FleetIndex,
    own: frozenset[Id],
    tier: str,
    gpu_count: int,
    model_ids: frozenset[Id],
    regions: frozenset[str],
) -> Iterator[FittingNode]:
    """Nodes that did not change since they were surveyed and that fit, the best fit first."""
    able = [_able(known, tier, region, gpu_count, model_ids) for region in sorted(regions) or (None,)]
    for how, alike in groupby(heapq.merge(*able, key=itemgetter(0)), key=itemgetter(0)):
        yield from heapq.merge(*(_as_fits(known, row, how, own) for _, row in alike))


def _as_fits(known: FleetIndex, row: Row, how: Fit, own: frozenset[Id]) -> Iterator[FittingNode]:
    for node in _nodes(known, row, own):
        yield how, node, row.model_id, row.sizes, row.on_market


def _in_regions(fitting: Iterator[FittingNode], regions: frozenset[str]) -> Iterator[FittingNode]:
    """Those of the nodes that are in one of the regions now, in their order."""
    while some := list(islice(fitting, _AT_ONCE)):
        found = shared_connection.fetchone(_OF_REGIONS, [[node for _, node, *_ in some], sorted(regions)])
        there = set(found[0]) if found is not None else set()
        yield from (each for each in some if each[1] in there)


def _able(
    known: FleetIndex, tier: str, region: str | None, gpu_count: int, model_ids: frozenset[Id]
) -> list[tuple[Fit, Row]]:
    """The rows whose nodes fit, and how well, the best first: the same for every such request."""
    asked = (tier, region, gpu_count, model_ids)
    if asked in known.able:
        return known.able[asked]
    if (tier, region) not in known.rows:
        known.rows[tier, region] = _rows(known.version, tier, region)
    able = [
        (how, row)
        for row in known.rows[tier, region]
        if row.mask >> gpu_count & 1 and row.model_id in model_ids
        if (how := fit(row.sizes, row.on_market, gpu_count)) is not None
    ]
    able.sort(key=itemgetter(0))
    # There is no end of counts that nothing fits.
    if able:
        known.able[asked] = able
    return able


def _rows(version: Id, tier: str, region: str | None) -> list[Row]:
    shapes = shapes_of(UUID(version))
    if shapes is None:
        raise _Replaced
    rows = []
    for model_id, counted in shapes.items():
        for text in counted:
            shape = read(text)
            on_market = shape.spot_sizes if tier == Tier.SPOT else ()
            if shape.sizes or on_market:
                # By its CPUs at least: GPUs that VMs without any took those of are refused time and again.
                mask = shape.startable(0, open_sizes=shape.sizes, on_market=on_market)
                rows.append(Row(str(model_id), text, shape.sizes, on_market, mask, region))
    return rows


def _nodes(known: FleetIndex, row: Row, own: frozenset[Id]) -> Iterator[Id]:
    """The row's nodes by id, but for those that changed or are in `own`; read some at a time, and kept."""
    # What has changed stays so as long as the version.
    while row.nodes and row.nodes[0] in known.until:
        row.nodes.pop(0)
    place = 0
    while True:
        while place < len(row.nodes):
            node = row.nodes[place]
            if node not in known.until and node not in own:
                yield node
            place += 1
        if row.whole:
            return
        which = [row.model_id, row.shape, row.after, _AT_ONCE]
        if row.region is None:
            found = shared_connection.fetchone(_ANYWHERE, which)
        else:
            found = shared_connection.fetchone(_IN_REGION, [row.region, *which])
        if found is None or found[0] != known.version:
            raise _Replaced
        row.nodes += found[1]
        row.whole = len(found[1]) < _AT_ONCE
        row.after = row.nodes[-1] if found[1] else row.after
