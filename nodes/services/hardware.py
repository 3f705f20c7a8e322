"""What reserving asks of a node's units: read by hand, as one value, since everybody waits for it."""

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
    """One unit of a node, present or gone. `failed` has the addresses of its failed GPUs."""

    id: str
    address: str
    alloc_class: str
    sellable: bool
    not_sellable_reason: str
    gone: bool
    failed: list[str]

    @property
    def not_reservable_reason(self) -> str:
        """Why it cannot be reserved, as a sentence's end; empty when it can."""
        return explain_not_reservable(
            gone=self.gone,
            alloc_class=self.alloc_class,
            sellable=self.sellable,
            not_sellable_reason=self.not_sellable_reason,
            failed=self.failed,
        )


def mixed_classes_reason(sold_classes: Iterable[str]) -> str:
    """Why no unit of a node can be reserved that sells units of those classes, as a sentence's end; empty for
    one class.
    """
    classes = sorted(set(sold_classes))
    if len(classes) < 2:
        return ""
    return f"its node sells units of more than one class ({', '.join(classes)})"


def unit_hardware_reading(node_id: UUID) -> Reading:
    """Reads every unit that the node has or had, for `parse_unit_hardware`."""
    return Reading(_UNITS, (node_id,))


def parse_unit_hardware(read: str | None) -> dict[str, UnitHardware]:
    """The units that `unit_hardware_reading` read, by address and in its order."""
    return {row[1]: UnitHardware(*row) for row in json.loads(read or "[]")}
