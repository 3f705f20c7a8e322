"""The public pool's best fits for a VM, found in memory instead of by looking at every unit there is.

Each process keeps what it read of the fleet's offers, and what it was told of every node that changed since:
a request asks one short question, what is news. So what is found is as exact as a look at the units, and
costs the same whatever the fleet and however much has changed.
"""

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from threading import Lock
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Q

from compute.models import Tier
from compute.placement import sums
from compute.services import pool
from compute.services.availability import shapes_of
from compute.services.offering import refresh
from compute.services.offers import read
from openrelay import quick
from openrelay.clock import Now

# As many as may be busy with others' requests at once, and some.
_ENOUGH = 32
# Of so many changed nodes on, the offers are surveyed anew first.
_MOST = 1000
_AT_ONCE = 64
_NONE = UUID(int=0)

_NEWS = f"""
SELECT version, usable, seen_now, own, news, trunc(extract(epoch FROM {settings.CLOCK_SQL}) * 1000000)
FROM compute_pool_news(%s::uuid, %s, %s::uuid[], %s::uuid,
    {settings.CLOCK_SQL}, interval '{settings.NODE_OFFLINE_GRACE_SECONDS} seconds', {_MOST})
"""  # noqa: S608  (constants of our own)
_OF_SHAPE = """
SELECT version, ARRAY(
    SELECT node_id FROM compute_nodeoffer
    WHERE gpu_model_id = %s AND md5(shape) = md5(%s) AND node_id > %s
    ORDER BY node_id LIMIT %s)
FROM compute_availabilitystate
"""


@dataclass(slots=True)
class _Row:
    """The nodes of one shape, by id: the first of them that have not changed, as far as they were read."""

    free: int
    model_id: UUID
    shape: str
    sizes: tuple[int, ...]
    mask: int
    nodes: list[UUID] = field(default_factory=list)
    after: UUID = _NONE
    whole: bool = False


@dataclass(slots=True)
class _Pool:
    """What one version of the offers says, and every node that changed since."""

    version: UUID
    seen: str = ""  # the snapshot up to which its changes are known
    rows: dict[str, list[_Row]] = field(default_factory=dict)  # by tier, the fewest free GPUs first
    # For each changed node with something open: by GPU model, what is open to all and what is on the market.
    open: dict[UUID, list[tuple[UUID, tuple[int, ...], tuple[int, ...]]]] = field(default_factory=dict)
    # For every changed node, until when that is so: microseconds since 1970.
    until: dict[UUID, int] = field(default_factory=dict)
    soonest: int = 2**63
    doubtful: list[UUID] = field(default_factory=list)  # to be asked after each time

    def learn(self, news: list[list[Any]]) -> None:
        """Take in nodes as they are now."""
        for node in {UUID(row[0]) for row in news}:
            self.open.pop(node, None)
        for node_text, model, sizes, on_market, until in news:
            node = UUID(node_text)
            self.until[node] = until
            self.soonest = min(self.soonest, until)
            if model is not None:
                self.open.setdefault(node, []).append((UUID(model), tuple(sizes), tuple(on_market)))

    def doubted(self, at: int) -> list[UUID]:
        """The changed nodes of which it is not known how they are at that time."""
        if at < self.soonest:
            return []
        over = [node for node, until in self.until.items() if until <= at]
        self.soonest = 0 if over else min(self.until.values(), default=2**63)
        return over


class _Replaced(Exception):
    """The offers were surveyed anew while they were read."""


_lock = Lock()
_kept: dict[str, _Pool] = {}


def best_fits(
    *, organization_id: UUID, tier: str, gpu_count: int, model_ids: Collection[UUID]
) -> list[pool.Candidate]:
    """Some nodes whose open units of one of the models add up to the count, the best fit first; none is
    better than the first.

    Empty when there is none, and when the offers keep being replaced.
    """
    # One question at a time in a process: each goes on from what the one before was told.
    with _lock:
        for _ in range(3):
            try:
                known, own = _news(organization_id if tier == Tier.SPOT else None)
                if known is not None:
                    return _fits(known, own, organization_id, tier, gpu_count, frozenset(model_ids))
                refresh()
            except _Replaced:
                continue
    return []


def _news(asker: UUID | None) -> tuple[_Pool | None, frozenset[UUID]]:
    """The pool as it is now, and the nodes where something is reserved to the asker; None when there are no
    offers that could be gone on from.
    """
    name = str(connection.settings_dict["NAME"])
    # What a transaction has not committed is not for others to see, nor for itself once it is rolled back.
    known = None if connection.in_atomic_block else _kept.get(name)
    asked: set[UUID] = set()
    again = known.doubtful if known else []
    while True:
        params = [known.version, known.seen] if known else [None, None]
        row = quick.fetchone(_NEWS, [*params, again, asker])
        if row is None or not row[1]:
            return None, frozenset()
        version, _, seen, own, news, at = row
        if known is None or known.version != version:
            known = _Pool(version)
        known.seen = seen
        known.learn(news or [])
        known.doubtful = known.doubted(int(at))
        asked.update(again)
        again = [node for node in known.doubtful if node not in asked]
        if not again:
            break
    if not connection.in_atomic_block:
        _kept[name] = known
    return known, frozenset(own or ())


def _fits(
    known: _Pool,
    own: frozenset[UUID],
    organization_id: UUID,
    tier: str,
    gpu_count: int,
    model_ids: frozenset[UUID],
) -> list[pool.Candidate]:
    found = [
        (sum(sizes), node, model_id, sizes)
        for node, models in known.open.items()
        if node not in own
        for model_id, anywhere, on_market in models
        if model_id in model_ids
        and sums(sizes := anywhere + on_market if tier == Tier.SPOT else anywhere) >> gpu_count & 1
    ]
    found += islice(_unchanged(known, own, tier, gpu_count, model_ids), _ENOUGH)
    if own:
        # What is on the market is not for the organization that it is reserved to.
        here = pool.candidates(
            organization_id=organization_id,
            tier=tier,
            at=Now(),
            models=list(model_ids),
            also=Q(node_id__in=own),
        )
        found += [(row.free, row.node_id, row.model_id, row.sizes) for row in here if row.fits(gpu_count)]
    return [
        pool.Candidate(node, model_id, None, sizes)
        for _, node, model_id, sizes in heapq.nsmallest(_ENOUGH, found, key=lambda fit: fit[:2])
    ]


def _unchanged(
    known: _Pool, own: frozenset[UUID], tier: str, gpu_count: int, model_ids: frozenset[UUID]
) -> Iterator[tuple[int, UUID, UUID, tuple[int, ...]]]:
    """Nodes that did not change since they were surveyed and that fit, the best fit first."""
    if tier not in known.rows:
        known.rows[tier] = _rows(known.version, tier)
    able = [row for row in known.rows[tier] if row.model_id in model_ids and row.mask >> gpu_count & 1]
    for free, alike in groupby(able, key=lambda row: row.free):
        streams = [((node, row) for node in _nodes(known, row) if node not in own) for row in alike]
        for node, row in heapq.merge(*streams, key=lambda pair: pair[0]):
            yield free, node, row.model_id, row.sizes


def _rows(version: UUID, tier: str) -> list[_Row]:
    shapes = shapes_of(version)
    if shapes is None:
        raise _Replaced
    rows = []
    for model_id, counted in shapes.items():
        for text in counted:
            shape = read(text)
            sizes = (*shape.sizes, *shape.spot_sizes) if tier == Tier.SPOT else shape.sizes
            if sizes:
                # By its CPUs at least: GPUs that VMs without any took those of are refused time and again.
                rows.append(_Row(sum(sizes), model_id, text, sizes, shape.startable(sizes, 0)))
    return sorted(rows, key=lambda row: (row.free, row.model_id, row.shape))


def _nodes(known: _Pool, row: _Row) -> Iterator[UUID]:
    """The row's nodes by id, but for those that changed; read some at a time, and kept."""
    # What has changed stays so as long as the version.
    while row.nodes and row.nodes[0] in known.until:
        row.nodes.pop(0)
    place = 0
    while True:
        while place < len(row.nodes):
            if row.nodes[place] not in known.until:
                yield row.nodes[place]
            place += 1
        if row.whole:
            return
        found = quick.fetchone(_OF_SHAPE, [row.model_id, row.shape, row.after, _AT_ONCE])
        if found is None or found[0] != known.version:
            raise _Replaced
        row.nodes += found[1]
        row.whole = len(found[1]) < _AT_ONCE
        row.after = row.nodes[-1] if found[1] else row.after
