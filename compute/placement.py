"""Which units a request may have, and which of them it gets. Pure: no database, no clock.

`standing` is the table of who may place where, one unit at a time; `choose` meets a GPU count exactly by
whole units of one GPU model; `fit` says how well a node of the public pool suits a count; `sums` which counts
could be met.
"""

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, Protocol
from uuid import UUID

from nodes.services.survey import UnitHold

SPOT = "spot"


class Standing(enum.Enum):
    """How a unit that a request may have stands to it. They are used up in this order."""

    OWN_FREE = 1  # reserved to the caller, nobody on it
    OWN_DRAINING = 2  # reserved to the caller, an earlier guest may still be on it
    OWN_SPOT = 3  # reserved to the caller, claimed by a spot workload that has to go
    MARKET = 4  # reserved to others and on the spot market, for a spot request; nobody on it
    OPEN = 5  # not reserved, nobody on it


# By the right of being in the audience.
OWN: Final = (Standing.OWN_FREE, Standing.OWN_DRAINING, Standing.OWN_SPOT)


@dataclass(frozen=True, slots=True)
class Use:
    """What is on a unit: an open occupancy, and the claim if there is one."""

    occupied: bool = False
    workload_id: UUID | None = None
    tier: str = ""
    since: datetime | None = None  # when that workload was created


FREE = Use()


@dataclass(frozen=True, slots=True)
class Option:
    """A unit that a request may have. `victim` is who has to go first, created at `since`.

    `hold_id` is the hold whose audience the request is of, when that is the right by which it may.
    """

    unit_id: UUID
    address: str
    model_id: UUID
    gpus: int
    standing: Standing
    victim: UUID | None = None
    since: datetime | None = None
    hold_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The units a request gets, by address, and the workloads preempted for it, the youngest first."""

    model_id: UUID
    options: tuple[Option, ...]
    victims: tuple[UUID, ...]


# How many GPUs that are open to everybody a request would take on a node, and how many are open there at all:
# the less, the better.
Fit = tuple[int, int]


class Placeable(Protocol):
    """What of a unit matters here: whether a workload could run on it at all, and the hold it is in."""

    @property
    def usable(self) -> bool: ...

    @property
    def held(self) -> UnitHold | None: ...


def standing(unit: Placeable, use: Use, *, organization_id: UUID, tier: str, named: bool) -> Standing | None:
    """How the unit stands to a request of `organization_id` at `tier`; None when it may not have it.

    `named` says that the request names the unit's node: only so does it reach what is reserved to it.
    """
    if not unit.usable:
        return None
    held = unit.held
    if held is not None and held.serves(organization_id):
        if not named:
            return None
        if use.workload_id is None:
            return Standing.OWN_DRAINING if use.occupied else Standing.OWN_FREE
        return Standing.OWN_SPOT if use.tier == SPOT else None
    if use.workload_id is not None or use.occupied:
        return None
    if held is None:
        return Standing.OPEN
    return Standing.MARKET if tier == SPOT and held.active and held.released else None


def choose(options: Iterable[Option], gpu_count: int) -> Choice | None:
    """The units that meet `gpu_count` exactly, all of one GPU model, or None.

    What is reserved to the caller is used before what is open; within it, the fewest workloads are preempted,
    of those the youngest (the oldest that goes is as young as it can be); then as little as can be of what is
    draining. Of what is open, the spot market's is used first. All in as few units as can be.
    """
    by_model: dict[UUID, list[Option]] = {}
    for option in options:
        by_model.setdefault(option.model_id, []).append(option)
    best: tuple[tuple[object, ...], Choice] | None = None
    for model_id in sorted(by_model):
        found = _choose_of_model(model_id, by_model[model_id], gpu_count)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    return best[1] if best else None


# Most nodes of a fleet are alike, and a request compares very many.
@lru_cache(maxsize=4096)
def fit(sizes: tuple[int, ...], on_market: tuple[int, ...], gpu_count: int) -> Fit | None:
    """How well a node's open units of one model suit a request for `gpu_count`; None when whole units there
    do not add up to it.

    `sizes` are those of units that are open to everybody, `on_market` those of units that are open to spot
    alone, in GPUs.
    """
    for_all, for_spot = sums(sizes), sums(on_market)
    at_least = max(0, gpu_count - sum(on_market))
    for from_open in range(at_least, min(gpu_count, sum(sizes)) + 1):
        if for_all >> from_open & 1 and for_spot >> (gpu_count - from_open) & 1:
            return from_open, sum(sizes) + sum(on_market)
    return None


def sums(sizes: Iterable[int]) -> int:
    """Every total that some of `sizes` add up to, as a bit mask: bit n is set when n can be met."""
    mask = 1
    for size in sizes:
        mask |= mask << size
    return mask


def counts(mask: int) -> list[int]:
    """The positive totals in a mask of `sums`, ascending."""
    return [n for n in range(1, mask.bit_length()) if mask >> n & 1]


def most(mask: int) -> int:
    """The largest total in a mask of `sums`."""
    return mask.bit_length() - 1


def _choose_of_model(
    model_id: UUID, options: list[Option], gpu_count: int
) -> tuple[tuple[object, ...], Choice] | None:
    own = [option for option in options if option.standing in (Standing.OWN_FREE, Standing.OWN_DRAINING)]
    taken = [option for option in options if option.standing is Standing.OWN_SPOT]
    open_units = [option for option in options if option.standing in (Standing.MARKET, Standing.OPEN)]
    open_sums = sums(option.gpus for option in open_units)
    own_sums = sums(option.gpus for option in own)
    all_sums = sums(option.gpus for option in [*own, *taken])
    for from_open in range(gpu_count + 1):
        from_own = gpu_count - from_open
        if not open_sums >> from_open & 1 or not all_sums >> from_own & 1:
            continue
        victims = _victims(own_sums, taken, from_own)
        gone = set(victims)
        picked = [
            *_pick([*own, *(option for option in taken if option.victim in gone)], from_own),
            *_pick(open_units, from_open),
        ]
        picked.sort(key=lambda option: option.address)
        ages = _ages(option for option in taken if option.victim in gone)
        key = (from_open, len(victims), ages, *_last_resort(picked), len(picked))
        return key, Choice(model_id, tuple(picked), victims)
    return None


def _victims(own_sums: int, taken: Sequence[Option], target: int) -> tuple[UUID, ...]:
    """The fewest and youngest workloads on `taken` without which `target` can be met."""
    if own_sums >> target & 1:
        return ()
    sizes: dict[UUID, list[int]] = {}
    since: dict[UUID, datetime] = {}
    for option in taken:
        if option.victim is not None and option.since is not None:
            sizes.setdefault(option.victim, []).append(option.gpus)
            since[option.victim] = option.since
    # Workloads that free the same sizes are as good as each other, but for their age: only the youngest
    # matter.
    groups: dict[tuple[int, ...], list[UUID]] = {}
    for victim in sorted(sizes, key=lambda victim: (since[victim], victim), reverse=True):
        groups.setdefault(tuple(sorted(sizes[victim])), []).append(victim)
    for number in range(1, len(sizes) + 1):
        best: tuple[list[tuple[datetime, UUID]], list[UUID]] | None = None
        for take in _splits([len(group) for group in groups.values()], number):
            mask = own_sums
            for shape, many in zip(groups, take, strict=True):
                for size in shape * many:
                    mask |= mask << size
            if not mask >> target & 1:
                continue
            gone = [
                victim for group, many in zip(groups.values(), take, strict=True) for victim in group[:many]
            ]
            age = sorted((since[victim], victim) for victim in gone)
            if best is None or age > best[0]:
                best = age, gone
        if best is not None:
            return tuple(sorted(best[1], key=lambda victim: (since[victim], victim), reverse=True))
    return ()


def _splits(limits: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Every way to take `total` things from groups of those sizes."""
    if not limits:
        if not total:
            yield ()
        return
    first, rest = limits[0], limits[1:]
    # No fewer than the others leave over: what cannot add up is not tried.
    for take in range(max(0, total - sum(rest)), min(first, total) + 1):
        for others in _splits(rest, total - take):
            yield take, *others


def _pick(options: Sequence[Option], target: int) -> list[Option]:
    """The options that add up to `target`: as little as can be of what is a last resort, in few units."""
    if not target:
        return []
    ordered = sorted(options, key=lambda option: option.address)
    best: dict[int, tuple[tuple[int, int], tuple[int, ...]]] = {0: ((0, 0), ())}
    for index, option in enumerate(ordered):
        dear = sum(_last_resort([option]))
        for total, (cost, chosen) in sorted(best.items(), reverse=True):
            reached = total + option.gpus
            if reached > target:
                continue
            found = ((cost[0] + dear, cost[1] + 1), (*chosen, index))
            if reached not in best or found < best[reached]:
                best[reached] = found
    return [ordered[index] for index in best[target][1]]


def _last_resort(options: Iterable[Option]) -> tuple[int, int]:
    """How many GPUs are draining, and how many are open to everybody rather than to spot alone."""
    draining = ordinary = 0
    for option in options:
        draining += option.gpus if option.standing is Standing.OWN_DRAINING else 0
        ordinary += option.gpus if option.standing is Standing.OPEN else 0
    return draining, ordinary


def _ages(options: Iterable[Option]) -> list[float]:
    since = {option.victim: option.since.timestamp() for option in options if option.since is not None}
    return sorted((-moment for moment in since.values()), reverse=True)
