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
from openrelay.rows import array

# As many as may be busy with others' requests at once, and some.
_ENOUGH = 16
# Of so many changed nodes on, the offers are surveyed anew first.
_MOST = 1000
_AT_ONCE = 64

_NEWS = f"""
SELECT version::text, usable, seen_now, own::text[], news,
       trunc(extract(epoch FROM {settings.CLOCK_SQL}) * 1000000)
FROM compute_pool_news(%s::uuid, %s, %s::uuid[], %s::uuid,
    {settings.CLOCK_SQL}, interval '{settings.NODE_OFFLINE_GRACE_SECONDS} seconds', {_MOST})
"""  # noqa: S608  (constants of our own)
_OF_SHAPE = """
SELECT version::text, ARRAY(
    SELECT node_id::text FROM compute_nodeoffer
    WHERE gpu_model_id = %s::uuid AND md5(shape) = md5(%s) AND node_id > %s::uuid
    ORDER BY node_id LIMIT %s)
FROM compute_availabilitystate
"""

# Ids are text here, in which many are compared and looked up quickly; their order is the same.
Id = str
# A node that fits: how many GPUs are free there, its id, the model, the sizes of its units.
Fit = tuple[int, Id, Id, tuple[int, ...]]


@dataclass(slots=True)
class _Row:
    """The nodes of one shape, by id: the first of them that have not changed, as far as they were read."""

    free: int
    model_id: Id
    shape: str
    sizes: tuple[int, ...]
    mask: int
    nodes: list[Id] = field(default_factory=list)
    after: Id = "00000000-0000-0000-0000-000000000000"
    whole: bool = False


@dataclass(slots=True)
class _Pool:
    """What one version of the offers says, and every node that changed since."""

    version: Id
    seen: str = ""  # the snapshot up to which its changes are known
    rows: dict[str, list[_Row]] = field(default_factory=dict)  # by tier, the fewest free GPUs first
    # For each changed node with something open: by GPU model, what is open to all and what is on the market.
    open: dict[Id, list[tuple[Id, tuple[int, ...], tuple[int, ...]]]] = field(default_factory=dict)
    # For every changed node, until when that is so: microseconds since 1970.
    until: dict[Id, int] = field(default_factory=dict)
    soonest: int = 2**63
    doubtful: list[Id] = field(default_factory=list)  # to be asked after each time

    def learn(self, news: list[list[Any]]) -> None:
        """Take in nodes as they are now."""
        for node in {row[0] for row in news}:
            self.open.pop(node, None)
        for node, model, sizes, on_market, until in news:
            self.until[node] = until
            self.soonest = min(self.soonest, until)
            if model is not None:
                self.open.setdefault(node, []).append((model, tuple(sizes), tuple(on_market)))

    def doubted(self, at: int) -> list[Id]:
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
                    models = frozenset(map(str, model_ids))
                    return _fits(known, own, organization_id, tier, gpu_count, models)
                refresh()
            except _Replaced:
                continue
    return []


def _news(asker: UUID | None) -> tuple[_Pool | None, frozenset[Id]]:
    """The pool as it is now, and the nodes where something is reserved to the asker; None when there are no
    offers that could be gone on from.
    """
    name = str(connection.settings_dict["NAME"])
    # What a transaction has not committed is not for others to see, nor for itself once it is rolled back.
    known = None if connection.in_atomic_block else _kept.get(name)
    asked: set[Id] = set()
    again = known.doubtful if known else []
    while True:
        params = [known.version, known.seen] if known else [None, None]
        row = quick.fetchone(_NEWS, [*params, array(again), asker])
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
    own: frozenset[Id],
    organization_id: UUID,
    tier: str,
    gpu_count: int,
    model_ids: frozenset[Id],
) -> list[pool.Candidate]:
    changed: list[Fit] = [
        (sum(sizes), node, model_id, sizes)
        for node, models in known.open.items()
        if node not in own
        for model_id, anywhere, on_market in models
        if model_id in model_ids
        and sums(sizes := anywhere + on_market if tier == Tier.SPOT else anywhere) >> gpu_count & 1
    ]
    if own:
        # What is on the market is not for the organization that it is reserved to.
        here = pool.candidates(
            organization_id=organization_id,
            tier=tier,
            at=Now(),
            models=[UUID(model_id) for model_id in model_ids],
            also=Q(node_id__in=own),
        )
        changed += [
            (row.free, str(row.node_id), str(row.model_id), row.sizes) for row in here if row.fits(gpu_count)
        ]
    best = heapq.merge(sorted(changed), _unchanged(known, own, tier, gpu_count, model_ids))
    named = {model_id: UUID(model_id) for model_id in model_ids}
    return [
        pool.Candidate(UUID(node), named[model_id], None, sizes)
        for _, node, model_id, sizes in islice(best, _ENOUGH)
    ]


def _unchanged(
    known: _Pool, own: frozenset[Id], tier: str, gpu_count: int, model_ids: frozenset[Id]
) -> Iterator[Fit]:
    """Nodes that did not change since they were surveyed and that fit, the best fit first."""
    if tier not in known.rows:
        known.rows[tier] = _rows(known.version, tier)
    able = [row for row in known.rows[tier] if row.mask >> gpu_count & 1 and row.model_id in model_ids]
    for _, alike in groupby(able, key=lambda row: row.free):
        yield from heapq.merge(*(_nodes(known, row, own) for row in alike))


def _rows(version: Id, tier: str) -> list[_Row]:
    shapes = shapes_of(UUID(version))
    if shapes is None:
        raise _Replaced
    rows = []
    for model_id, counted in shapes.items():
        for text in counted:
            shape = read(text)
            sizes = (*shape.sizes, *shape.spot_sizes) if tier == Tier.SPOT else shape.sizes
            if sizes:
                # By its CPUs at least: GPUs that VMs without any took those of are refused time and again.
                rows.append(_Row(sum(sizes), str(model_id), text, sizes, shape.startable(sizes, 0)))
    return sorted(rows, key=lambda row: (row.free, row.model_id, row.shape))


def _nodes(known: _Pool, row: _Row, own: frozenset[Id]) -> Iterator[Fit]:
    """The row's nodes by id, but for those that changed or are in `own`; read some at a time, and kept."""
    # What has changed stays so as long as the version.
    while row.nodes and row.nodes[0] in known.until:
        row.nodes.pop(0)
    place = 0
    while True:
        while place < len(row.nodes):
            node = row.nodes[place]
            if node not in known.until and node not in own:
                yield row.free, node, row.model_id, row.sizes
            place += 1
        if row.whole:
            return
        found = quick.fetchone(_OF_SHAPE, [row.model_id, row.shape, row.after, _AT_ONCE])
        if found is None or found[0] != known.version:
            raise _Replaced
        row.nodes += found[1]
        row.whole = len(found[1]) < _AT_ONCE
        row.after = row.nodes[-1] if found[1] else row.after
