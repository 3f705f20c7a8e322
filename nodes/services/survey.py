"""What a node's units are at one moment: present, healthy, held for whom, released."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef

from nodes.models import Gpu, GpuUnit, HoldAudience, HoldUnit, Node


@dataclass(frozen=True, slots=True)
class Held:
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
    held: Held | None

    @property
    def usable(self) -> bool:
        """Whether a workload could run here at all: present, for sale, of a known class, and healthy."""
        return not self.not_reservable_reason

    @property
    def not_reservable_reason(self) -> str:
        """Why its hardware cannot be reserved or sold, as a sentence's end; empty when it can."""
        return self.unit.why_not_reservable(self.failed)

    @property
    def sellable_gpus(self) -> int:
        """How many GPUs a buyer of this unit gets; 0 when it is not for sale, or one of them failed."""
        return 0 if self.failed else self.unit.sellable_gpus


def survey(node: Node, at: datetime) -> list[UnitFacts]:
    """Every unit the node has or had, by address, with its hold at `at`, in two queries."""
    held = {
        row.unit_id: Held(
            row.hold_id, row.hold.topology_gen == node.topology_gen, row.released, frozenset(row.audience)
        )
        for row in HoldUnit.objects.in_term(at)
        .filter(node=node)
        .select_related("hold")
        .annotate(
            audience=ArraySubquery(
                HoldAudience.objects.filter(hold=OuterRef("hold")).values("organization_id")
            )
        )
    }
    units = (
        GpuUnit.objects.filter(node=node)
        .select_related("gpu_model")
        .annotate(
            failed=ArraySubquery(
                Gpu.objects.filter(unit=OuterRef("pk"), failed_at__isnull=False)
                .order_by("address")
                .values("address")
            )
        )
        .order_by("address")
    )
    return [UnitFacts(unit, tuple(unit.failed), held.get(unit.pk)) for unit in units]
