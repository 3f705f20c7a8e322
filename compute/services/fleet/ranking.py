"""Ranking: the best fits of the public pool for a VM, by the fleet index instead of a scan of every unit."""

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, islice
from operator import itemgetter
from uuid import UUID

from compute.domain.selection import Fit, fit, reachable_totals
from compute.models import Tier
from compute.services.fleet import pool_scan
from compute.services.fleet.availability import shapes_of
from compute.services.fleet.index import (
    FleetDelta,
    FleetIndex,
    NodeId,
    NodeIds,
    OpenUnits,
    ShapeGroup,
    Survey,
    delta_since,
    published,
    sync_index,
)
from compute.services.fleet.node_survey import read
from compute.services.fleet.refresh import refresh
from openrelay.core import shared_connection

# More candidates than other requests may be changing at once.
_ENOUGH = 16
_PAGE = 64
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

    `most` is given when no units anywhere add up to it, where all were looked at: the most GPUs of one model
    that are open on one node.
    """

    candidates: list[pool_scan.Candidate]
    most: int | None = None


# A node that fits: how well, its id, and its open units of one model.
FittingNode = tuple[Fit, NodeId, OpenUnits]


# Consecutive requests are given much the same nodes.
_uuid = lru_cache(maxsize=4096)(UUID)


class _Replaced(Exception):
    """The fleet was surveyed again while the survey was read."""


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

    A node that came to be in one of these since the survey may be left out. `delta` is what `read_with_delta`
    just read for that organization and tier. There are no candidates when the survey keeps being replaced.
    """
    models = frozenset(map(str, model_ids))
    for _ in range(3):
        try:
            index, own = sync_index(delta or delta_since(published(), organization_id, tier))
            if index is not None:
                return _fits(index, own, organization_id, tier, gpu_count, models, regions)
            refresh()
        except _Replaced:
            pass
        delta = None
    return Fits([])


def _fits(
    index: FleetIndex,
    own: frozenset[NodeId],
    organization_id: UUID,
    tier: str,
    gpu_count: int,
    model_ids: frozenset[str],
    regions: frozenset[str],
) -> Fits:
    changed: list[FittingNode] = [
        (how, node_id, units)
        for node_id, by_model in index.open_units.items()
        if node_id not in own
        for units in by_model
        if units.model_id in model_ids and (how := _fit(units, tier, gpu_count)) is not None
    ]
    if own:
        # A spot request cannot use units that its own organization released, so these nodes are scanned.
        groups = pool_scan.candidates(
            organization_id=organization_id,
            tier=tier,
            levels={UUID(model_id): 0 for model_id in model_ids},
            among=[UUID(node_id) for node_id in own],
        )
        changed += [
            (how, str(node_id), OpenUnits(str(group.model_id), group.sizes, group.on_market))
            for group in groups
            if (how := group.fit(gpu_count)) is not None
            for node_id in group.node_ids
        ]
    best: Iterator[FittingNode] = heapq.merge(
        sorted(changed, key=_order), _unchanged(index, own, tier, gpu_count, model_ids, regions), key=_order
    )
    if regions:
        best = _in_regions(best, regions)
    named = {model_id: UUID(model_id) for model_id in model_ids}
    spot = tier == Tier.SPOT
    candidates = [
        pool_scan.Candidate(
            _uuid(node_id), named[units.model_id], units.sizes, units.spot_sizes if spot else ()
        )
        for _, node_id, units in islice(best, _ENOUGH)
    ]
    unsure = candidates or own or regions
    return Fits(candidates, None if unsure else _most(index, tier, gpu_count, model_ids))


def _order(fitting: FittingNode) -> tuple[Fit, NodeId, str]:
    how, node_id, units = fitting
    return how, node_id, units.model_id


def _fit(units: OpenUnits, tier: str, gpu_count: int) -> Fit | None:
    return fit(units.sizes, units.spot_sizes if tier == Tier.SPOT else (), gpu_count)


def _most(index: FleetIndex, tier: str, gpu_count: int, model_ids: frozenset[str]) -> int | None:
    """The most GPUs that are open on one node, when nowhere they add up to the count; None when they do, and
    it is the rest of a host that is short.
    """
    open_units = [units for by_model in index.open_units.values() for units in by_model]
    # A group of which every node has changed counts no longer.
    open_units += [
        group.units
        for group in index.survey.groups[tier, None]
        if next(_nodes(index, group, frozenset()), None) is not None
    ]
    sizes = [
        units.sizes + units.spot_sizes if tier == Tier.SPOT else units.sizes
        for units in open_units
        if units.model_id in model_ids
    ]
    if any(reachable_totals(each) >> gpu_count & 1 for each in sizes):
        return None
    return max(map(sum, sizes), default=0)


def _unchanged(
    index: FleetIndex,
    own: frozenset[NodeId],
    tier: str,
    gpu_count: int,
    model_ids: frozenset[str],
    regions: frozenset[str],
) -> Iterator[FittingNode]:
    """Nodes that did not change since they were surveyed and that fit, the best fit first."""
    ranked = [
        _ranked(index.survey, tier, region, gpu_count, model_ids) for region in sorted(regions) or (None,)
    ]
    for how, alike in groupby(heapq.merge(*ranked, key=itemgetter(0)), key=itemgetter(0)):
        yield from heapq.merge(*(_fitting(index, group, how, own) for _, group in alike), key=_order)


def _fitting(index: FleetIndex, group: ShapeGroup, how: Fit, own: frozenset[NodeId]) -> Iterator[FittingNode]:
    for node_id in _nodes(index, group, own):
        yield how, node_id, group.units


def _in_regions(fitting: Iterator[FittingNode], regions: frozenset[str]) -> Iterator[FittingNode]:
    """Those of the nodes that are in one of the regions now, in their order."""
    while page := list(islice(fitting, _PAGE)):
        found = shared_connection.fetchone(
            _OF_REGIONS, [[node_id for _, node_id, _ in page], sorted(regions)]
        )
        there = set(found[0]) if found is not None else set()
        yield from (each for each in page if each[1] in there)


def _ranked(
    survey: Survey, tier: str, region: str | None, gpu_count: int, model_ids: frozenset[str]
) -> list[tuple[Fit, ShapeGroup]]:
    """The groups whose nodes fit, and how well, the best first: the same for every such request."""
    key = (tier, region, gpu_count, model_ids)
    if key in survey.ranked:
        return survey.ranked[key]
    # Of two threads that read the groups at once, both keep the same.
    groups = survey.groups.get((tier, region))
    if groups is None:
        groups = survey.groups.setdefault((tier, region), _groups(survey.version, tier, region))
    ranked = [
        (how, group)
        for group in groups
        if group.totals >> gpu_count & 1 and group.units.model_id in model_ids
        if (how := _fit(group.units, tier, gpu_count)) is not None
    ]
    ranked.sort(key=itemgetter(0))
    # Misses are not cached: the number of possible counts is unbounded.
    if ranked:
        survey.ranked[key] = ranked
    return ranked


def _groups(version: str, tier: str, region: str | None) -> list[ShapeGroup]:
    shapes = shapes_of(UUID(version))
    if shapes is None:
        raise _Replaced
    groups = []
    for model_id, counted in shapes.items():
        for text in counted:
            shape = read(text)
            spot_sizes = shape.spot_sizes if tier == Tier.SPOT else ()
            if shape.sizes or spot_sizes:
                # A GPU whose CPUs a VM without GPUs has taken would be rejected each time.
                totals = shape.startable(0, open_sizes=shape.sizes, on_market=spot_sizes)
                units = OpenUnits(str(model_id), shape.sizes, spot_sizes)
                groups.append(ShapeGroup(text, units, totals, region))
    return groups


def _nodes(index: FleetIndex, group: ShapeGroup, own: frozenset[NodeId]) -> Iterator[NodeId]:
    """The group's nodes in the order of their ids, but for those that changed or are in `own`. They are read
    in pages and kept.
    """
    known = group.node_ids
    first = known.first
    # A node that has changed stays so for as long as there is this survey.
    while first < len(known.ids) and known.ids[first] in index.valid_until:
        first += 1
    if first != known.first:
        known = group.node_ids = replace(known, first=first)
    place = first
    while True:
        while place < len(known.ids):
            node_id = known.ids[place]
            if node_id not in index.valid_until and node_id not in own:
                yield node_id
            place += 1
        if known.is_complete:
            return
        page = _read_page(index.survey.version, group, after=known.last)
        known = NodeIds(known.ids + tuple(page), known.first, len(page) < _PAGE)
        if len(known.ids) > len(group.node_ids.ids) or known.is_complete:
            group.node_ids = known


def _read_page(version: str, group: ShapeGroup, *, after: NodeId) -> list[NodeId]:
    params = [group.units.model_id, group.shape, after, _PAGE]
    if group.region is None:
        found = shared_connection.fetchone(_ANYWHERE, params)
    else:
        found = shared_connection.fetchone(_IN_REGION, [group.region, *params])
    if found is None or found[0] != version:
        raise _Replaced
    page: list[NodeId] = found[1]
    return page
