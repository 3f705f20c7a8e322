"""What a node's units are at one moment: present, healthy, held for whom, released."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from uuid import UUID

from nodes.models import GpuModel, GpuUnit, Node
from openrelay.core.rows import Question, Row, ask_all, build, columns


@dataclass(frozen=True, slots=True)
class UnitHold:
    """A unit's place in the hold whose term contains the moment."""

    hold_id: UUID
    active: bool  # false while the hold needs review: it grants nothing and withholds the unit from everyone
    released: bool
    audience: frozenset[UUID]

    def serves(self, organization_id: UUID) -> bool:
        """Whether the hold lets that organization place here as one of its audience."""
        return self.active and organization_id in self.audience


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """One unit at one moment. `failed` has the addresses of its failed GPUs."""

    unit: GpuUnit
    failed: tuple[str, ...]
    held: UnitHold | None

    @property
    def not_reservable_reason(self) -> str:
        """Why its hardware cannot be reserved or sold, as a sentence's end; empty when it can."""
        return self.unit.explain_not_reservable(self.failed)

    @property
    def sellable_gpus(self) -> int:
        """How many GPUs a buyer of this unit gets; 0 when it is not for sale, or one of them failed."""
        return 0 if self.failed else self.unit.sellable_gpus


def survey_units(node: Node, at: datetime) -> list[UnitFacts]:
    """Every unit the node has or had, by address, with its hold at `at`, in one round trip."""
    units, held = ask_all(units_question(node), unit_holds_question(node, at))
    return combine_unit_facts(units, held)


def units_question(node: Node) -> Question[list[tuple[GpuUnit, tuple[str, ...]]]]:
    """Every unit the node has or had, by address, with the addresses of its failed GPUs."""
    return Question(_units_sql(), [node.pk], _parse_units)


def unit_holds_question(node: Node, at: datetime) -> Question[dict[UUID, UnitHold]]:
    """For each unit of the node that is in a hold at `at`, its place in it."""
    return Question(
        _UNIT_HOLDS,
        [node.pk, at],
        lambda rows: {
            unit_id: UnitHold(hold_id, topology_gen == node.topology_gen, released, frozenset(audience))
            for unit_id, hold_id, topology_gen, released, audience in rows
        },
    )


def combine_unit_facts(
    units: Iterable[tuple[GpuUnit, tuple[str, ...]]], held: Mapping[UUID, UnitHold]
) -> list[UnitFacts]:
    """The facts of each unit, from what `units_question` and `unit_holds_question` answer."""
    return [UnitFacts(unit, failed, held.get(unit.pk)) for unit, failed in units]


# By hand: every placement waits for them under its lock.
_UNIT_HOLDS = """
SELECT held.unit_id, held.hold_id, hold.topology_gen, held.released,
       ARRAY(SELECT organization_id FROM nodes_holdaudience WHERE hold_id = hold.id)
FROM nodes_hold hold JOIN nodes_holdunit held ON held.hold_id = hold.id
WHERE hold.node_id = %s AND hold.term @> %s
"""


@cache
def _units_sql() -> str:
    return f"""
    SELECT {columns(GpuUnit, "unit")},
           ARRAY(SELECT address FROM nodes_gpu WHERE unit_id = unit.id AND failed_at IS NOT NULL
                 ORDER BY address),
           {columns(GpuModel, "model")}
    FROM nodes_gpuunit unit JOIN nodes_gpumodel model ON model.id = unit.gpu_model_id
    WHERE unit.node_id = %s ORDER BY unit.address
    """  # noqa: S608  (names of our own models)


def _parse_units(rows: list[Row]) -> list[tuple[GpuUnit, tuple[str, ...]]]:
    width = len(GpuUnit._meta.concrete_fields)
    found, models = [], {}
    for row in rows:
        unit = build(GpuUnit, row)
        if unit.gpu_model_id not in models:
            models[unit.gpu_model_id] = build(GpuModel, row[width + 1 :])
        unit.gpu_model = models[unit.gpu_model_id]
        found.append((unit, tuple(row[width])))
    return found
