"""Availability: the GPUs that an organization could place on now, by model, as placement would decide.

Only nodes that are online and take new work count. Units reserved to others do not count; released ones count
as spot alone. The organization's own active reservations count as free, and are shown apart.

The part that is equal for all organizations is surveyed once and shared by all processes through PostgreSQL.
A reader surveys by itself the nodes where something is reserved to its organization, and those that changed.
"""

import json
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import compress
from operator import not_
from threading import Lock
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from compute.domain.host_shares import GpuShare
from compute.domain.selection import largest_total, reachable_totals
from compute.services.fleet.node_survey import NodeShape, Surveyed, read, survey_nodes
from compute.services.fleet.refresh import Freshness, freshness, refresh
from nodes.models import GpuModel

Shapes = Counter[str]


@dataclass(slots=True)
class Offer:
    """What a node gives, unnamed; `nodes` give exactly this. Lists as in `offers.NodeShape`."""

    shape: NodeShape
    nodes: int


@dataclass(slots=True)
class OwnNode:
    """A node with units reserved to the organization, and the sizes of the free ones."""

    node_id: UUID
    sizes: tuple[int, ...]
    released: bool
    free: int  # how many of these GPUs the host can start now


@dataclass(slots=True)
class ModelAvailability:
    """One GPU model. The masks are those of `selection.reachable_totals`."""

    model: GpuModel
    free: int = 0
    reserved_free: int = 0
    spot_free: int = 0
    total: int = 0
    placeable: int = 1
    spot_placeable: int = 1
    lattice: int = 1
    offers: list[Offer] = field(default_factory=list)
    nodes: list[OwnNode] = field(default_factory=list)
    shares: list[GpuShare] = field(default_factory=list)  # of every kind of node that could be placed on


@dataclass(slots=True)
class Availability:
    """The answer. While nothing changes, readers get the same object; `kept` caches its rendered form."""

    models: tuple[ModelAvailability, ...]
    hidden: tuple[ModelAvailability, ...] = ()  # not shown to who asked
    shared: bool = False  # with every organization that nothing is reserved to
    kept: Any = None


@dataclass(frozen=True, slots=True)
class _Public:
    """One version of the survey, read once by each process."""

    version: UUID
    models: dict[UUID, GpuModel]
    shapes: dict[UUID, Shapes]
    answer: Availability
    changed: dict[UUID, "_Changed"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Changed:
    """A node that changed since the survey, as every organization sees it: its rows before and now.

    It holds until another transaction marks the node: the node has no hold and is online.
    """

    mark: int
    before: list[tuple[UUID, str]]
    now: list[Surveyed]


class _Memory:
    """The cache of this process: the last version, and the answers for some organizations."""

    public: _Public | None = None
    answers: OrderedDict[UUID | None, tuple[Freshness, Availability]] = OrderedDict()
    lock = Lock()


# How many organizations' answers each process caches.
_MOST_ANSWERS = 64


def availability(organization_id: UUID) -> Availability:
    """Every GPU model that nodes have VM units of, as the organization may place on them now, by name.

    Hidden models show only to whom they are reserved. One query while nothing has changed since the last
    reading, three when something has, whatever the fleet.
    """
    for _ in range(3):
        found = freshness(organization_id)
        if found is None or not found.usable:
            refresh()
            continue
        public = _public(found.version)
        if public is None:
            continue
        if not found.stale and not found.own:
            return public.answer
        # All organizations without reservations get the same answer.
        asker = organization_id if found.own else None
        kept = _Memory.answers.get(asker)
        if kept is not None and kept[0] == found:
            return kept[1]
        answer = _with(public, found, organization_id)
        if answer is not None:
            _keep(asker, found, answer)
            return answer
    # The survey keeps being replaced, or the clock jumps: survey every node.
    return _answer({}, {}, survey_nodes(organization_id, None))


def _keep(asker: UUID | None, found: Freshness, answer: Availability) -> None:
    # An answer from inside a transaction is not cached: others must not see it, and it may be rolled back.
    if connection.in_atomic_block:
        return
    with _Memory.lock:
        _Memory.answers[asker] = (found, answer)
        _Memory.answers.move_to_end(asker)
        while len(_Memory.answers) > _MOST_ANSWERS:
            _Memory.answers.popitem(last=False)


def _public(version: UUID) -> _Public | None:
    """That version of the survey, from the cache or read now; None when it was replaced."""
    known = _Memory.public
    if known is not None and known.version == version:
        return known
    with connection.cursor() as cursor:
        cursor.execute("SELECT offers FROM compute_availabilitystate WHERE version = %s", [version])
        row = cursor.fetchone()
    if row is None:
        return None
    shapes = {UUID(model): Counter(dict(counted)) for model, counted in json.loads(row[0]).items()}
    models = GpuModel.objects.in_bulk(list(shapes))
    answer = _answer(models, shapes, ())
    answer.shared = True
    public = _Public(version, models, shapes, answer)
    _Memory.public = public
    return public


def shapes_of(version: UUID) -> dict[UUID, Shapes] | None:
    """By GPU model, the shapes of that version of the survey; None when it was replaced."""
    public = _public(version)
    return None if public is None else public.shapes


def _with(public: _Public, found: Freshness, organization_id: UUID) -> Availability | None:
    """The answer for the organization: the survey, with stale nodes and those where something is reserved to
    it surveyed now. None when the survey was replaced. A node that was surveyed since its last change is not
    read again.
    """
    known = {
        node_id: public.changed[node_id]
        for node_id, mark in found.marks.items()
        if node_id in public.changed and public.changed[node_id].mark == mark
    }
    for node_id in found.own | found.other:
        known.pop(node_id, None)
    asked = list((found.stale | found.own) - known.keys())
    surveyed = survey_nodes(organization_id, asked) if asked else []
    with connection.cursor() as cursor:
        cursor.execute(_BEFORE, [asked])
        rows = cursor.fetchall()
    if not rows or rows[0][0] != public.version:
        return None
    before = [(node_id, model_id, shape) for _, node_id, model_id, shape, _ in rows if model_id is not None]
    if not connection.in_atomic_block:
        _learn(public, found, surveyed, before, {node_id for _, node_id, _, _, held in rows if held})
    gone = [(model_id, shape) for _, model_id, shape in before]
    for each in known.values():
        gone += each.before
        surveyed += each.now
    shapes = dict(public.shapes)
    for model_id in {model_id for model_id, _ in gone}:
        shapes[model_id] = shapes[model_id].copy()
    for model_id, shape in gone:
        shapes[model_id][shape] -= 1
    return _answer(public.models, shapes, surveyed)


_BEFORE = f"""
SELECT s.version, asked.id, offer.gpu_model_id, offer.shape, EXISTS (
    SELECT FROM nodes_hold hold
    WHERE hold.node_id = asked.id AND (upper_inf(hold.term) OR upper(hold.term) > {settings.CLOCK_SQL}))
FROM compute_availabilitystate s
LEFT JOIN unnest(%s::uuid[]) asked (id) ON true
LEFT JOIN compute_nodeoffer offer ON offer.node_id = asked.id
"""  # noqa: S608  (a setting)


def _learn(
    public: _Public,
    found: Freshness,
    surveyed: Iterable[Surveyed],
    before: Iterable[tuple[UUID, UUID, str]],
    held: set[UUID],
) -> None:
    """Cache the rows of changed nodes that only another change can make wrong."""
    now: dict[UUID, list[Surveyed]] = {}
    for row in surveyed:
        now.setdefault(row.node_id, []).append(row)
    had: dict[UUID, list[tuple[UUID, str]]] = {}
    for node_id, model_id, shape in before:
        had.setdefault(node_id, []).append((model_id, shape))
    for node_id, mark in found.marks.items():
        rows = now.get(node_id)
        if rows and all(row.online for row in rows) and node_id not in held | found.own | found.other:
            public.changed[node_id] = _Changed(mark, had.get(node_id, []), rows)


def _answer(
    known: dict[UUID, GpuModel], shapes: dict[UUID, Shapes], surveyed: Iterable[Surveyed]
) -> Availability:
    seen: dict[UUID, Shapes] = dict(shapes)
    own: dict[UUID, list[Surveyed]] = {}
    added: dict[UUID, Shapes] = {}
    for row in surveyed:
        added.setdefault(row.model_id, Counter())[row.shape] += 1
        if row.own:
            own.setdefault(row.model_id, []).append(row)
    for model_id, more in added.items():
        seen[model_id] = seen.get(model_id, Counter()) + more
    models = {**known, **GpuModel.objects.in_bulk(list(seen.keys() - known.keys()))} if added else known
    found = [
        _model(models[model_id], seen[model_id], own.get(model_id, []))
        for model_id in sorted(seen, key=lambda pk: (models[pk].name, pk))
        if any(count > 0 for count in seen[model_id].values())
    ]
    shown = [not row.model.hidden or bool(row.nodes) for row in found]
    return Availability(tuple(compress(found, shown)), tuple(compress(found, map(not_, shown))))


def _model(model: GpuModel, shapes: Shapes, own: list[Surveyed]) -> ModelAvailability:
    """One model's figures from the shapes of its nodes."""
    seen = ModelAvailability(model)
    for text, nodes in sorted(shapes.items()):
        if nodes < 1:
            continue
        shape = read(text)
        # A host of which every unit is reserved to others, or has a failed GPU, is not shown.
        if not shape.possible:
            continue
        seen.lattice |= reachable_totals(shape.possible)
        seen.shares.append(shape.share)
        if not shape.structural and not shape.spot_structural:
            continue
        seen.offers.append(Offer(shape, nodes))
        seen.total += shape.total * nodes
        ordinary = shape.startable(model.vram_gb, open_sizes=shape.open, own=shape.own)
        spot = shape.startable(model.vram_gb, on_market=shape.spot_sizes)
        seen.free += largest_total(ordinary) * nodes
        seen.spot_free += largest_total(spot) * nodes
        seen.placeable |= ordinary
        seen.spot_placeable |= shape.startable(
            model.vram_gb, open_sizes=shape.open, own=shape.own, on_market=shape.spot_sizes
        )
    for row in sorted(own, key=lambda row: row.node_id):
        free = largest_total(read(row.shape).startable(model.vram_gb, own=row.own_sizes))
        seen.nodes.append(OwnNode(row.node_id, row.own_sizes, row.own_released, free))
        seen.reserved_free += free
    return seen
