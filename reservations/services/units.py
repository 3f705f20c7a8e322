"""The units of a node as those see them who may reserve, own or manage there."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from compute.services.claims import claims_on, occupancies_on
from nodes.models import Node
from nodes.services.survey import UnitFacts, survey


@dataclass(frozen=True, slots=True)
class UnitState:
    """One unit, with the workload whose claim it is or, after that, whose guest may still be on it."""

    facts: UnitFacts
    workload_id: UUID | None


def unit_states(node: Node, at: datetime) -> list[UnitState]:
    """Every unit the node has, by address, and those gone ones that a reservation in term still holds.

    Four queries, whatever the node's size.
    """
    # A guest that is being torn down keeps its unit from everybody: draining reads as claimed.
    users = {occupancy.unit_id: occupancy.workload_id for occupancy in reversed(occupancies_on(node))}
    users |= {claim.unit_id: claim.workload_id for claim in claims_on(node)}
    return [
        UnitState(facts, users.get(facts.unit.pk))
        for facts in survey(node, at)
        if facts.unit.gone_at is None or facts.held is not None
    ]
