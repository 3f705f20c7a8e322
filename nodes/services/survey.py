"""Read a node's units at one moment: presence, health, and the hold that applies."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from uuid import UUID

from nodes.models import GpuModel, GpuUnit, Node
from openrelay.core.rows import Question, Row, ask_all, build, columns


@dataclass(frozen=True, slots=True)
class UnitHold:
    """The hold of a unit whose term contains the moment."""

    hold_id: UUID
    active: bool  # false while the hold needs review: then no organization may place on the unit
    released: bool
    audience: frozenset[UUID]

    def serves(self, organization_id: UUID) -> bool:
        """Whether the organization is in the audience of the active hold, and so may place here."""
        return self.active and organization_id in self.audience


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """One unit at one moment. `failed` has the addresses of its failed GPUs. `held` is its current hold."""

    unit: GpuUnit
    failed: tuple[str, ...]
    held: UnitHold | None

    @property
    def not_reservable_reason(self) -> str:
        """Why the unit's hardware cannot be reserved or sold, as the end of a sentence; empty if it can."""
        return self.unit.explain_not_reservable(self.failed)

    @property
    def sellable_gpus(self) -> int:
        """The number of GPUs for sale in this unit; 0 if it is not for sale or one of its GPUs failed."""
        return 0 if self.failed else self.unit.sellable_gpus


def survey_units(node: Node, at: datetime) -> list[UnitFacts]:
    """Read every present and gone unit of the node, by address, with its hold at `at`, in one round trip."""
    units, held = ask_all(units_question(node), unit_holds_question(node, at))
    return combine_unit_facts(units, held)


def units_question(node: Node) -> Question[list[tuple[GpuUnit, tuple[str, ...]]]]:
    """Build the query of the node's present and gone units, by address, with their failed GPUs."""
    return Question(_units_sql(), [node.pk], _parse_units)


def unit_holds_question(node: Node, at: datetime) -> Question[dict[UUID, UnitHold]]:
    """Build the query of the holds in term at `at`, by unit id."""
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
    """Combine the results of `units_question` and `unit_holds_question`."""
    return [UnitFacts(unit, failed, held.get(unit.pk)) for unit, failed in units]


# Hand-written SQL instead of the ORM: every placement runs these queries while it holds the node's lock.
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
