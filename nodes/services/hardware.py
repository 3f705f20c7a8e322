"""Read the hardware of a node's units for a reservation.

Hand-written SQL that returns one JSON value: the statement runs together with the lock of the node.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from nodes.models.gpu_unit import explain_not_reservable
from openrelay.core.rows import Reading

_UNITS = """(
    SELECT json_agg(json_build_array(
        unit.id, unit.address, unit.alloc_class, unit.sellable, unit.not_sellable_reason,
        unit.gone_at IS NOT NULL,
        ARRAY(SELECT gpu.address FROM nodes_gpu gpu
              WHERE gpu.unit_id = unit.id AND gpu.failed_at IS NOT NULL ORDER BY gpu.address)
    ) ORDER BY unit.address)::text
    FROM nodes_gpuunit unit WHERE unit.node_id = %s
)"""


class UnitHardware(NamedTuple):
    """One present or gone unit of a node. `failed` has the addresses of its failed GPUs."""

    id: str
    address: str
    alloc_class: str
    sellable: bool
    not_sellable_reason: str
    gone: bool
    failed: list[str]

    @property
    def not_reservable_reason(self) -> str:
        """Why the unit cannot be reserved, as the end of a sentence; empty if it can."""
        return explain_not_reservable(
            gone=self.gone,
            alloc_class=self.alloc_class,
            sellable=self.sellable,
            not_sellable_reason=self.not_sellable_reason,
            failed=self.failed,
        )


def mixed_classes_reason(sold_classes: Iterable[str]) -> str:
    """Return why no unit of a node that sells units of `sold_classes` can be reserved, as the end of a
    sentence.

    Empty for at most one class.
    """
    classes = sorted(set(sold_classes))
    if len(classes) < 2:
        return ""
    return f"its node sells units of more than one class ({', '.join(classes)})"


def unit_hardware_reading(node_id: UUID) -> Reading:
    """Build the reading of every present and gone unit of the node, for `parse_unit_hardware`."""
    return Reading(_UNITS, (node_id,))


def parse_unit_hardware(read: str | None) -> dict[str, UnitHardware]:
    """Parse the result of `unit_hardware_reading` into units by address, ordered by address."""
    return {row[1]: UnitHardware(*row) for row in json.loads(read or "[]")}
