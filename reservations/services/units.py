"""The units of a node as those see them who may reserve, own or manage there."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from compute.services.lifecycle.claims import claims_of, occupancies_of
from nodes.models import Node
from nodes.services.hardware import mixed_classes_reason
from nodes.services.survey import UnitFacts, combine_unit_facts, unit_holds_question, units_question
from openrelay.core.rows import ask_all


@dataclass(frozen=True, slots=True)
class UnitState:
    """One unit, with the workload whose claim it is or, after that, whose guest may still be on it."""

    facts: UnitFacts
    workload_id: UUID | None
    not_reservable_reason: str  # as a sentence's end; empty when it can be reserved


def unit_states(node: Node, at: datetime) -> list[UnitState]:
    """Every unit the node has, by address, and those gone ones that a reservation in term still holds.

    One round trip, whatever the node's size.
    """
    claimed, occupied, units, held = ask_all(
        claims_of(node), occupancies_of(node), units_question(node), unit_holds_question(node, at)
    )
    # A guest that is being torn down keeps its unit from everybody: draining reads as claimed.
    users = {occupancy.unit_id: occupancy.workload_id for occupancy in reversed(occupied)}
    users |= {claim.unit_id: claim.workload_id for claim in claimed}
    mixed = mixed_classes_reason(
        unit.alloc_class for unit, _ in units if unit.sellable and unit.gone_at is None
    )
    return [
        UnitState(facts, users.get(facts.unit.pk), facts.not_reservable_reason or mixed)
        for facts in combine_unit_facts(units, held)
        if facts.unit.gone_at is None or facts.held is not None
    ]
