"""Eligibility: which unit a request may use, and by what right. Pure: no database, no clock.

`judge_unit` is the table of who may place where, for one unit.
"""

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

SPOT = "spot"


class Eligibility(enum.Enum):
    """How a unit that a request may have stands to it. They are used up in this order."""

    OWN_FREE = 1  # reserved to the caller, nobody on it
    OWN_DRAINING = 2  # reserved to the caller, an earlier guest may still be on it
    OWN_SPOT = 3  # reserved to the caller, claimed by a spot workload that has to go
    MARKET = 4  # reserved to others and on the spot market, for a spot request; nobody on it
    OPEN = 5  # not reserved, nobody on it


# By the right of being in the audience.
OWN: Final = (Eligibility.OWN_FREE, Eligibility.OWN_DRAINING, Eligibility.OWN_SPOT)


@dataclass(frozen=True, slots=True)
class UnitUsage:
    """What is on a unit: an open occupancy, and the claim if there is one."""

    occupied: bool = False
    workload_id: UUID | None = None
    tier: str = ""
    since: datetime | None = None  # when that workload was created


UNUSED = UnitUsage()


class Hold(Protocol):
    """The hold whose term contains the moment, for one unit of it."""

    @property
    def hold_id(self) -> UUID: ...

    @property
    def active(self) -> bool: ...

    @property
    def released(self) -> bool: ...

    def serves(self, organization_id: UUID) -> bool:
        """Whether the hold is active and that organization is in its audience."""


class Placeable(Protocol):
    """What of a unit matters here: whether a workload could run on it at all, and the hold it is in."""

    @property
    def usable(self) -> bool: ...

    @property
    def held(self) -> Hold | None: ...


def judge_unit(
    unit: Placeable, use: UnitUsage, *, organization_id: UUID, tier: str, named: bool
) -> Eligibility | None:
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
            return Eligibility.OWN_DRAINING if use.occupied else Eligibility.OWN_FREE
        return Eligibility.OWN_SPOT if use.tier == SPOT else None
    if use.workload_id is not None or use.occupied:
        return None
    if held is None:
        return Eligibility.OPEN
    return Eligibility.MARKET if tier == SPOT and held.active and held.released else None
