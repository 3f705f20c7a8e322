"""What each process knows of the public pool, and how it keeps up: by one short question, what is news.

It keeps what it read of the fleet's offers, and what it was told of every node that changed since. So what it
knows is as exact as a look at the units, at the same cost whatever the fleet and however much has changed.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from compute.domain.selection import Fit
from compute.models import Tier
from openrelay.core import shared_connection
from openrelay.core.bounded_lock import BoundedLock
from openrelay.core.rows import Reading, array

# Ids are text here, in which many are compared and looked up quickly; their order is the same.
Id = str

# Of so many changed nodes on, the offers are surveyed anew first.
_MOST = 10_000
_NEVER = 2**63
_SQL = f"""(
    SELECT json_build_array(version, usable, seen_now, own, news,
                            trunc(extract(epoch FROM {settings.CLOCK_SQL}) * 1000000))
    FROM compute_pool_news(%s::uuid, %s::text, %s::uuid[], %s::uuid, {settings.CLOCK_SQL},
                           interval '{settings.NODE_OFFLINE_GRACE_SECONDS} seconds', {_MOST})
)"""  # noqa: S608  (constants of our own)


@dataclass(slots=True)
class Row:
    """The nodes of one shape, in a region or anywhere, by id: the first of them that have not changed, as far
    as they were read.

    `sizes` are of units open to all, `on_market` of those open to spot alone, which other tiers are not told.
    """

    model_id: Id
    shape: str
    sizes: tuple[int, ...]
    on_market: tuple[int, ...]
    mask: int  # the counts that could start there, as `selection.reachable_totals` has them
    region: str | None
    nodes: list[Id] = field(default_factory=list)
    after: Id = str(UUID(int=0))
    whole: bool = False


@dataclass(slots=True)
class FleetIndex:
    """What one version of the offers says, and every node that changed since."""

    version: Id
    seen: str = ""  # the snapshot up to which its changes are known
    rows: dict[tuple[str, str | None], list[Row]] = field(default_factory=dict)  # by tier and region
    # Of those, what suits a count and models, and how well, the best first.
    able: dict[tuple[str, str | None, int, frozenset[Id]], list[tuple[Fit, Row]]] = field(
        default_factory=dict
    )
    # For each changed node with something open: by GPU model, what is open to all and what is on the market.
    open: dict[Id, list[tuple[Id, tuple[int, ...], tuple[int, ...]]]] = field(default_factory=dict)
    # For every changed node, until when that is so: microseconds since 1970.
    until: dict[Id, int] = field(default_factory=dict)
    soonest: int = _NEVER
    doubtful: list[Id] = field(default_factory=list)  # to be asked after each time

    def learn(self, delta: list[list[Any]], at: int) -> None:
        """Take in nodes as they are now, at that time."""
        for node in {row[0] for row in delta}:
            self.open.pop(node, None)
        for node, model, sizes, on_market, until in delta:
            self.until[node] = until
            self.soonest = min(self.soonest, until)
            if model is not None:
                self.open.setdefault(node, []).append((model, tuple(sizes), tuple(on_market)))
        if at < self.soonest:
            self.doubtful = []
        else:
            self.doubtful = [node for node, until in self.until.items() if until <= at]
            self.soonest = 0 if self.doubtful else min(self.until.values(), default=_NEVER)


@dataclass(slots=True)
class FleetDelta:
    """The question for what is news, put by who knew the pool of a version; and its answer, once there."""

    organization_id: UUID
    tier: str
    version: Id | None
    again: list[Id]
    reading: Reading
    answer: list[Any] | None = None
    taken_in: bool = False


_kept: dict[str, FleetIndex] = {}
#: Held by whoever asks and takes in: what one thread of the process was told, the next does not ask again.
one_at_a_time = BoundedLock()


def read_with_delta(organization_id: UUID, tier: str, *readings: Reading) -> tuple[list[Any], FleetDelta]:
    """What the readings read, and what is news for a request of that organization at that tier, by one
    question.
    """
    with one_at_a_time:
        delta = read_delta(organization_id, tier)
        *found, delta.answer = shared_connection.read(*readings, delta.reading)
        _take_in(delta)
    return found, delta


def read_delta(organization_id: UUID, tier: str, *, again: list[Id] | None = None) -> FleetDelta:
    """The question for what is news to this process, for a request of that organization at that tier.

    Nodes in `again` are asked after though they did not change.
    """
    known = _known()
    again = (known.doubtful if known else []) if again is None else again
    params = (
        known.version if known else None,
        known.seen if known else None,
        array(again),
        # A spot request may not have what is on the market where it is reserved to its own organization.
        organization_id if tier == Tier.SPOT else None,
    )
    return FleetDelta(organization_id, tier, params[0], again, Reading(_SQL, params))


def sync_index(delta: FleetDelta) -> tuple[FleetIndex | None, frozenset[Id]]:
    """The pool as it is now, and the nodes where something is reserved to who asks; None when there are no
    offers that could be gone on from.

    To be called under `one_at_a_time`. Asks what has not been answered, and again where time has passed.
    """
    asked: set[Id] = set()
    while True:
        if delta.answer is None:
            (delta.answer,) = shared_connection.read(delta.reading)
        _, usable, _, own, *_ = delta.answer
        if not usable:
            return None, frozenset()
        # Others may have taken in more since.
        known = (_known() if delta.taken_in else None) or _take_in(delta)
        if known is None:
            # Told as to someone who knew what is known no longer.
            delta = read_delta(delta.organization_id, delta.tier)
            continue
        asked.update(delta.again)
        again = [node for node in known.doubtful if node not in asked]
        if not again or connection.in_atomic_block:
            return known, frozenset(own or ())
        delta = read_delta(delta.organization_id, delta.tier, again=again)


def _take_in(delta: FleetDelta) -> FleetIndex | None:
    """What is known once the answer is taken in; None where it cannot be."""
    if delta.answer is None:
        return None
    version, usable, seen, _, told, at = delta.answer
    if not usable:
        return None
    known = _known()
    if known is None or known.version != version:
        if version == delta.version:
            return None
        known = FleetIndex(version)
    known.seen = seen
    known.learn(told or [], at)
    _keep(known)
    delta.taken_in = True
    return known


def _known() -> FleetIndex | None:
    # What a transaction has not committed is not for others to see, nor for itself once it is rolled back.
    return None if connection.in_atomic_block else _kept.get(str(connection.settings_dict["NAME"]))


def _keep(known: FleetIndex) -> None:
    if not connection.in_atomic_block:
        _kept[str(connection.settings_dict["NAME"])] = known
