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
    """By what right a request may use a unit. Placement uses units in this order."""

    RESERVED_FREE = 1  # reserved to the caller, free
    RESERVED_DRAINING = 2  # reserved to the caller, draining: an earlier guest may still run
    RESERVED_SPOT = 3  # reserved to the caller, claimed by a spot workload, which is preempted
    RELEASED = 4  # reserved to others and released, free; for spot requests
    UNRESERVED = 5  # not reserved, free


# The request is of the hold's audience.
BY_RESERVATION: Final = (Eligibility.RESERVED_FREE, Eligibility.RESERVED_DRAINING, Eligibility.RESERVED_SPOT)


@dataclass(frozen=True, slots=True)
class UnitUsage:
    """How a unit is used: whether an occupancy is open, and the claim if there is one."""

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
    """The facts of a unit that decide: whether a workload could run on it at all, and its hold."""

    @property
    def usable(self) -> bool: ...

    @property
    def held(self) -> Hold | None: ...


def judge_unit(
    unit: Placeable, use: UnitUsage, *, organization_id: UUID, tier: str, named: bool
) -> Eligibility | None:
    """By what right a request of `organization_id` at `tier` may use the unit; None when it may not.

    `named` says that the request names the unit's node. Only such a request may use what is reserved to it.
    """
    if not unit.usable:
        return None
    held = unit.held
    if held is not None and held.serves(organization_id):
        if not named:
            return None
        if use.workload_id is None:
            return Eligibility.RESERVED_DRAINING if use.occupied else Eligibility.RESERVED_FREE
        return Eligibility.RESERVED_SPOT if use.tier == SPOT else None
    if use.workload_id is not None or use.occupied:
        return None
    if held is None:
        return Eligibility.UNRESERVED
    return Eligibility.RELEASED if tier == SPOT and held.active and held.released else None
