"""The fleet index: what a process knows of the public pool, kept current by deltas.

An index is immutable. Each request reads the delta since the published index, makes the next index from both
and publishes it by swapping the reference. No lock is held across a query: requests that run at once each
read a delta of their own. So an index is as exact as a scan of the units, and costs the same whatever the
size of the fleet.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from compute.domain.selection import Fit
from compute.models import Tier
from openrelay.core import shared_connection
from openrelay.core.rows import Reading, array

# Ids are text here: text compares and hashes faster than UUID, and its order is the same.
NodeId = str

# With more changed nodes than this, the fleet is surveyed again first.
_MOST_CHANGED = 10_000
_NEVER = 2**63
_SQL = f"""(
    SELECT json_build_array(version, usable, seen_now, own, news,
                            trunc(extract(epoch FROM {settings.CLOCK_SQL}) * 1000000))
    FROM compute_fleet_delta(%s::uuid, %s::text, %s::uuid[], %s::uuid, {settings.CLOCK_SQL},
                           interval '{settings.NODE_OFFLINE_GRACE_SECONDS} seconds', {_MOST_CHANGED})
)"""  # noqa: S608  (constants of our own)


@dataclass(frozen=True, slots=True)
class OpenUnits:
    """The free units of one GPU model on a node, as sizes in GPUs: `sizes` are open to every tier,
    `spot_sizes` to spot alone.
    """

    model_id: str
    sizes: tuple[int, ...]
    spot_sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeIds:
    """Ids of nodes in ascending order, as far as they were read; `first` skips those that have changed."""

    ids: tuple[NodeId, ...] = ()
    first: int = 0
    is_complete: bool = False

    @property
    def last(self) -> NodeId:
        """The id after which to read on."""
        return self.ids[-1] if self.ids else str(UUID(int=0))


@dataclass(slots=True)
class ShapeGroup:
    """The surveyed nodes of one shape, in a region or anywhere. `units` are what is open on each of them.

    `node_ids` is read as far as it is needed and replaced as a whole. Threads that read it at once read the
    same, because a survey does not change.
    """

    shape: str
    units: OpenUnits
    totals: int  # the GPU counts that could start there, a mask of `reachable_totals`
    region: str | None
    node_ids: NodeIds = NodeIds()


@dataclass(slots=True)
class Survey:
    """What was read of one version of the node survey. It does not change, so threads may share it."""

    version: str
    groups: dict[tuple[str, str | None], list[ShapeGroup]] = field(default_factory=dict)  # by tier, region
    # The groups that suit a tier, region, GPU count and models, the best fit first.
    ranked: dict[tuple[str, str | None, int, frozenset[str]], list[tuple[Fit, ShapeGroup]]] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class FleetIndex:
    """A survey of the fleet, and every node that changed since, up to the database snapshot `seen`."""

    survey: Survey
    seen: str = ""
    # For each changed node with free units, these units by GPU model.
    open_units: Mapping[NodeId, tuple[OpenUnits, ...]] = field(default_factory=dict)
    # For each changed node, until when that holds, in microseconds since 1970; `soonest` is the least.
    valid_until: Mapping[NodeId, int] = field(default_factory=dict)
    soonest: int = _NEVER
    # The nodes whose time has passed: they are read again.
    stale: tuple[NodeId, ...] = ()

    def updated(self, rows: Iterable[list[Any]], seen: str, at: int) -> "FleetIndex":
        """The next index: with nodes as `rows` say that they are at `at`, in microseconds since 1970."""
        open_units, valid_until, soonest = self.open_units, self.valid_until, self.soonest
        if rows:
            fresh: dict[NodeId, tuple[OpenUnits, ...]] = {}
            until_of: dict[NodeId, int] = {}
            for node_id, model_id, sizes, spot_sizes, until in rows:
                units = () if model_id is None else (OpenUnits(model_id, tuple(sizes), tuple(spot_sizes)),)
                fresh[node_id] = fresh.get(node_id, ()) + units
                until_of[node_id] = until
                soonest = min(soonest, until)
            open_units = {**open_units, **fresh}
            for node_id, each in fresh.items():
                if not each:
                    del open_units[node_id]
            valid_until = {**valid_until, **until_of}
        stale: tuple[NodeId, ...] = ()
        if at >= soonest:
            stale = tuple(node_id for node_id, until in valid_until.items() if until <= at)
            soonest = 0 if stale else min(valid_until.values(), default=_NEVER)
        return FleetIndex(self.survey, seen, open_units, valid_until, soonest, stale)


@dataclass(slots=True)
class FleetDelta:
    """What changed in the fleet since `base`: to be read, or read with something else, for a request of that
    organization at that tier. `stale` are nodes that are read again though they did not change.
    """

    organization_id: UUID
    tier: str
    base: FleetIndex | None
    stale: tuple[NodeId, ...]
    reading: Reading
    answer: list[Any] | None = None


# By the name of the database.
_published: dict[str, FleetIndex] = {}


def read_with_delta(organization_id: UUID, tier: str, *readings: Reading) -> tuple[list[Any], FleetDelta]:
    """What the readings read, and the delta for a request of that organization at that tier. One query."""
    delta = delta_since(published(), organization_id, tier)
    *found, delta.answer = shared_connection.read(*readings, delta.reading)
    return found, delta


def delta_since(
    base: FleetIndex | None, organization_id: UUID, tier: str, *, stale: tuple[NodeId, ...] | None = None
) -> FleetDelta:
    """The delta since `base`, not read yet. `stale` nodes are read again; absent, those that `base` names."""
    if stale is None:
        stale = base.stale if base is not None else ()
    params = (
        base.survey.version if base is not None else None,
        base.seen if base is not None else None,
        array(stale),
        # A spot request may not use what its own organization has reserved and released.
        organization_id if tier == Tier.SPOT else None,
    )
    return FleetDelta(organization_id, tier, base, stale, Reading(_SQL, params))


def sync_index(delta: FleetDelta) -> tuple[FleetIndex | None, frozenset[NodeId]]:
    """The index as of the delta, which is published, and the nodes where something is reserved to the
    request's organization. None when there is no survey to start from.

    Reads a delta that was not read yet, and stale nodes again.
    """
    checked: set[NodeId] = set()
    while True:
        if delta.answer is None:
            (delta.answer,) = shared_connection.read(delta.reading)
        version, usable, seen, reserved_to, rows, at = delta.answer
        if not usable:
            return None, frozenset()
        base = delta.base
        if base is None or base.survey.version != version:
            base = FleetIndex(Survey(version))
        index = base.updated(rows or (), seen, at)
        _publish(index)
        checked.update(delta.stale)
        stale = tuple(node_id for node_id in index.stale if node_id not in checked)
        if not stale or connection.in_atomic_block:
            return index, frozenset(reserved_to or ())
        delta = delta_since(index, delta.organization_id, delta.tier, stale=stale)


def published() -> FleetIndex | None:
    """The index of this process; None inside a transaction, which sees what others do not."""
    return None if connection.in_atomic_block else _published.get(str(connection.settings_dict["NAME"]))


def _publish(index: FleetIndex) -> None:
    """Publish an index, unless a later one is. An index from inside a transaction is not published."""
    if connection.in_atomic_block:
        return
    name = str(connection.settings_dict["NAME"])
    other = _published.get(name)
    if other is None or other.survey.version != index.survey.version or _xmax(index) >= _xmax(other):
        _published[name] = index


def _xmax(index: FleetIndex) -> int:
    """The first transaction id that the index's snapshot does not see. Its text is xmin:xmax:running."""
    return int(index.seen.split(":")[1])
