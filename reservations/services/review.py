"""What an operator looks at to decide on a reservation: its units as reserved beside what they are now."""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from compute.models import Workload
from compute.services.lifecycle.claims import claims_on, occupancies_on
from nodes.models import Gpu, GpuUnit, HoldUnit, Node, TopologyGeneration
from nodes.services.survey import survey_units
from openrelay.core import clock
from openrelay.core.errors import NotFound
from openrelay.identity.models import Organization
from reservations.models import Reservation
from reservations.querysets import Status
from reservations.services.amending import Shown


class Change(enum.Enum):
    """What became of a unit since it was pinned."""

    SAME = "same"
    CHANGED = "changed"
    GONE = "gone"
    NEW = "new"  # on the node since then, and not in the reservation
    OTHER = "other"  # was on the node already, and is not in the reservation


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a unit is topology. `model` is the GPU model's id, `model_name` how people call it."""

    alloc_class: str
    model: UUID
    model_name: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Compared:
    """One unit then and now: `pinned` is None for what the reservation lacks, `now` for what is gone."""

    address: str
    change: Change
    pinned: Shape | None
    now: Shape | None
    differences: tuple[str, ...] = ()

    @property
    def class_changed(self) -> bool:
        """Whether it is of another class than was reserved, which no re-affirming can take."""
        return bool(self.pinned and self.now and self.pinned.alloc_class != self.now.alloc_class)


@dataclass(frozen=True, slots=True)
class User:
    """A workload with a claim on some of the units, or one whose guest may still be on them (`draining`)."""

    workload: Workload
    addresses: tuple[str, ...]
    draining: bool
    in_audience: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the comparison, with what matters to a decision beside the topology."""

    compared: Compared
    reserved: bool
    released: bool
    users: tuple[User, ...]
    cards: tuple[str, ...]  # which of its GPUs are other cards than when it was pinned, in words
    unusable: str  # why nobody could run here now, as a sentence's end; empty when somebody could

    @property
    def address(self) -> str:
        """The unit's PCI address."""
        return self.compared.address

    @property
    def present(self) -> bool:
        """Whether the node has the unit now."""
        return self.compared.now is not None

    @property
    def free(self) -> bool:
        """Whether somebody with the right to it could start there this moment."""
        return self.present and not self.unusable and not self.users


@dataclass(frozen=True, slots=True)
class Review:
    """A reservation, its node, and everything that a decision weighs, at the moment `at`."""

    reservation: Reservation
    node: Node
    at: datetime
    online: bool
    audience: tuple[Organization, ...]
    managers: tuple[Organization, ...]
    rows: tuple[Row, ...]
    users: tuple[User, ...]  # of the reserved units
    history: tuple[TopologyGeneration, ...]

    @property
    def shown(self) -> Shown:
        """What a decision that is made on this is checked against."""
        return Shown(generation=self.node.topology_gen, updated_at=self.reservation.updated_at)

    @property
    def reserved(self) -> tuple[Row, ...]:
        """The reservation's own units."""
        return tuple(row for row in self.rows if row.reserved)

    @property
    def concerned(self) -> tuple[Row, ...]:
        """The reservation's own units, and those that are new on the node."""
        return tuple(row for row in self.rows if row.compared.change is not Change.OTHER)

    @property
    def others(self) -> tuple[Row, ...]:
        """Units that the node had before, and that are not the reservation's."""
        return tuple(row for row in self.rows if row.compared.change is Change.OTHER)

    @property
    def begun(self) -> bool:
        """Whether the term has begun, so that the units are withheld from others now."""
        return bool(self.reservation.starts_at <= self.at)

    @property
    def ended(self) -> bool:
        """Whether nothing is left to decide."""
        return self.reservation.status in Status.ENDED

    @property
    def in_review(self) -> bool:
        """Whether the node changed since the reservation was pinned."""
        return bool(self.reservation.status == Status.NEEDS_REVIEW)

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why it cannot be re-affirmed as the node is now, a phrase a unit; empty when it can."""
        found = []
        for row in self.reserved:
            if row.compared.now is None:
                found.append(f"{row.address} is gone")
            elif row.compared.class_changed and row.compared.pinned is not None:
                now, pinned = row.compared.now, row.compared.pinned
                found.append(f"{row.address} is now of class {now.alloc_class}, not {pinned.alloc_class}")
        return tuple(found)


def compare(
    pinned: Mapping[str, Shape], now: Mapping[str, Shape], then: Collection[str] = ()
) -> list[Compared]:
    """Each unit of either side by address: the same, changed and how, gone, or not reserved.

    `then` has the addresses that the node had when the reservation was pinned; what is neither reserved nor
    among them is new.
    """
    compared = []
    for address in sorted(pinned.keys() | now.keys()):
        was, present = pinned.get(address), now.get(address)
        if was is None:
            compared.append(Compared(address, Change.OTHER if address in then else Change.NEW, None, present))
        elif present is None:
            compared.append(Compared(address, Change.GONE, was, None))
        else:
            differences = _differences(was, present)
            change = Change.CHANGED if differences else Change.SAME
            compared.append(Compared(address, change, was, present, differences))
    return compared


def review(reservation_id: UUID) -> Review:
    """Everything an operator weighs about one reservation, now, in as many queries whatever the node's size.

    Takes no lock, so what it says may be overtaken; a decision on it is checked against `Review.shown`.
    Raises NotFound.
    """
    at = clock.read()
    reservation = Reservation.objects.with_facts(at).filter(pk=reservation_id).first()
    if reservation is None:
        raise NotFound()
    # The generation is read before the units: should the node change in between, the units shown are newer
    # than the generation, and a decision is refused. The other way round it would pass.
    node = Node.objects.select_related("organization", "location").get(pk=reservation.hold.node_id)
    held = {
        row.unit.address: row
        for row in HoldUnit.objects.filter(hold_id=reservation.pk).select_related("unit", "pinned_model")
    }
    facts = {found.unit.address: found for found in survey_units(node, at)}
    named = Organization.objects.in_bulk({*reservation.audience_ids, *reservation.manager_ids})
    users = _users(node, set(reservation.audience_ids))
    history = TopologyGeneration.objects.filter(node=node, number__gt=reservation.hold.topology_gen)

    cards: dict[str, tuple[str, ...]] = {}
    for gpu in Gpu.objects.filter(unit__node=node, card_changed_at__gt=reservation.pinned_at).select_related(
        "unit"
    ):
        words = f"card changed at {gpu.address}: serial {gpu.previous_serial} → {gpu.serial}"
        cards[gpu.unit.address] = (*cards.get(gpu.unit.address, ()), words)

    compared = compare(
        {address: _pinned(row) for address, row in held.items()},
        {address: _shape(found.unit) for address, found in facts.items() if found.unit.gone_at is None},
        _addresses_at(node, reservation.hold.topology_gen),
    )
    rows = []
    for unit in compared:
        row, found = held.get(unit.address), facts[unit.address]
        unusable = found.unit.not_reservable_reason
        if not unusable and found.failed:
            unusable = f"GPU {', '.join(found.failed)} failed"
        rows.append(
            Row(
                compared=unit,
                reserved=row is not None,
                released=row is not None and row.released,
                users=tuple(user for user in users if unit.address in user.addresses),
                cards=cards.get(unit.address, ()),
                unusable=unusable,
            )
        )
    return Review(
        reservation=reservation,
        node=node,
        at=at,
        online=Node.objects.online(at).filter(pk=node.pk).exists(),
        audience=_by_name(named, reservation.audience_ids),
        managers=_by_name(named, reservation.manager_ids),
        rows=tuple(rows),
        users=tuple(user for user in users if held.keys() & set(user.addresses)),
        history=tuple(history.select_related("report").defer("report__content", "units").order_by("number")),
    )


def _addresses_at(node: Node, generation: int) -> frozenset[str]:
    """The units the node had at a generation."""
    kept = (
        TopologyGeneration.objects.filter(node=node, number=generation)
        .values_list("units", flat=True)
        .first()
    )
    return frozenset(unit["address"] for unit in kept or ())


def _pinned(row: HoldUnit) -> Shape:
    return Shape(row.pinned_class, row.pinned_model_id, row.pinned_model.name, row.pinned_gpu_count)


def _shape(unit: GpuUnit) -> Shape:
    return Shape(unit.alloc_class, unit.gpu_model_id, unit.gpu_model.name, unit.gpu_count)


def _differences(then: Shape, now: Shape) -> tuple[str, ...]:
    found = []
    if then.alloc_class != now.alloc_class:
        found.append(f"class {then.alloc_class} → {now.alloc_class}")
    if then.model != now.model:
        found.append(f"model {then.model_name} → {now.model_name}")
    if then.gpus != now.gpus:
        found.append(f"{then.gpus} → {now.gpus} GPUs")
    return tuple(found)


def _by_name(named: Mapping[UUID, Organization], ids: list[UUID]) -> tuple[Organization, ...]:
    return tuple(sorted((named[pk] for pk in ids), key=lambda org: (org.is_platform_ops, org.name, org.pk)))


def _users(node: Node, audience: set[UUID]) -> list[User]:
    """The workloads with claims on the node's units, then those whose guests may still be there."""
    claimed: dict[UUID, list[str]] = {}
    for claim in claims_on(node):
        claimed.setdefault(claim.workload_id, []).append(claim.address)
    addresses = dict(GpuUnit.objects.filter(node=node).values_list("pk", "address"))
    draining: dict[UUID, list[str]] = {}
    for occupancy in occupancies_on(node):
        if not occupancy.claimed:
            draining.setdefault(occupancy.workload_id, []).append(addresses[occupancy.unit_id])
    workloads = Workload.objects.select_related("organization").in_bulk({*claimed, *draining})
    return [
        User(
            workload=workloads[pk],
            addresses=tuple(sorted(set(units))),
            draining=is_draining,
            in_audience=workloads[pk].organization_id in audience,
        )
        for found, is_draining in ((claimed, False), (draining, True))
        for pk, units in sorted(found.items())
    ]
