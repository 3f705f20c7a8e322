"""What loading a fleet file would do: each node's difference, and the reservations it sends to review."""

from dataclasses import dataclass, field
from typing import Any

from nodes.inventory import content_digest
from nodes.models import GpuModel, Location, Node
from nodes.querysets import Moment
from nodes.services import inventory
from nodes.services.inventory import InventoryDiff
from openrelay.core.clock import Now
from openrelay.core.errors import Invalid
from openrelay.identity.models import Organization
from reservations import fleet as fleet_file
from reservations.models import Reservation
from reservations.querysets import Status


class FleetFaults(Exception):
    """A fleet file that cannot be loaded; `faults` has a sentence each, with its place in the file."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What would become of one node of the file. `node` is None for one that is to be enrolled."""

    number: int
    entry: dict[str, Any]
    node: Node | None
    difference: InventoryDiff = field(default_factory=InventoryDiff)
    reviews: tuple[Reservation, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether the node is to be enrolled."""
        return self.node is None

    @property
    def is_updated(self) -> bool:
        """Whether anything of a node that exists would change."""
        return self.node is not None and (bool(self.difference.topology) or self.difference.has_other_changes)


@dataclass(slots=True)
class Plan:
    """What loading would do. `nodes` has every node of the file, in its order."""

    fleet: dict[str, Any]
    nodes: list[NodePlan] = field(default_factory=list)
    new: dict[str, list[str]] = field(default_factory=dict)

    @property
    def reviews(self) -> list[tuple[NodePlan, Reservation]]:
        """Every reservation that loading would send to review, with its node."""
        return [(node, reservation) for node in self.nodes for reservation in node.reviews]


def make_plan(data: Any, *, update: bool = True) -> Plan:
    """The plan for the fleet in `data` (parsed JSON), for which nothing is written. Without `update` nodes
    that exist stay as they are.

    Raises FleetFaults for a file that cannot be loaded, also where a node would not take its inventory.
    """
    known = {
        "organizations": set(Organization.objects.values_list("slug", flat=True)),
        "locations": set(Location.objects.values_list("slug", flat=True)),
        "gpu_models": set(GpuModel.objects.values_list("slug", flat=True)),
    }
    fleet, faults = fleet_file.parse(data, known=known)
    if not faults:
        faults = _deleted(fleet) + (_ended(fleet) if update else [])
    if faults:
        raise FleetFaults(faults)
    plan = Plan(fleet)
    plan.new = {
        kind: [row["slug"] for row in fleet[kind] if row["slug"] not in slugs]
        for kind, slugs in known.items()
    }
    at = Now()
    there = _existing(fleet)
    for number, entry in enumerate(fleet["nodes"]):
        node = there.get((entry["organization"], entry["hostname"]))
        if node is None or not update:
            plan.nodes.append(NodePlan(number, entry, node))
            continue
        try:
            difference = node_difference(node, entry["inventory"])
        except Invalid as error:
            faults.append(f"nodes[{number}].inventory.{error.message.rstrip('.')}")
            continue
        if difference.flagged:
            faults.append(refused(number, entry, difference.flagged))
            continue
        reviews = sent_to_review(node, difference, at)
        plan.nodes.append(NodePlan(number, entry, node, difference, tuple(reviews)))
    if faults:
        raise FleetFaults(faults)
    return plan


def node_difference(node: Node, inventory_of_file: dict[str, Any]) -> InventoryDiff:
    """What the file's inventory changes of the node; nothing when it is what the node reported last."""
    if content_digest(inventory_of_file) == node.inventory_digest:
        return InventoryDiff()
    return inventory.preview_inventory(node, inventory_of_file)


def sent_to_review(node: Node, difference: InventoryDiff, at: Moment) -> list[Reservation]:
    """The reservations that would need review because of a change of topology, which do not yet."""
    if not difference.topology:
        return []
    rows = Reservation.objects.with_status(at).filter(hold__node=node)
    return list(rows.filter(status__in=(Status.ACTIVE, Status.PENDING)).order_by("created_at", "pk"))


def refused(number: int, entry: dict[str, Any], flagged: str) -> str:
    """The fault of a node that does not take its inventory."""
    place = f"nodes[{number}].inventory" + (".sequence" if "sequence" in entry["inventory"] else "")
    return f"{place} is refused by {entry['hostname']}: {flagged}"


def _existing(fleet: dict[str, Any]) -> dict[tuple[str, str], Node]:
    """The file's nodes that exist, by organization and host name."""
    names = {entry["hostname"] for entry in fleet["nodes"]}
    rows = Node.objects.live().filter(hostname__in=names).select_related("organization")
    return {(node.organization.slug, node.hostname): node for node in rows}


def _deleted(fleet: dict[str, Any]) -> list[str]:
    """The fault of each node whose organization was deleted."""
    slugs = {entry["organization"] for entry in fleet["nodes"]}
    rows = Organization.objects.filter(slug__in=slugs, deleted_at__isnull=False)
    deleted = set(rows.values_list("slug", flat=True))
    return [
        f"nodes[{number}].organization: {entry['organization']} was deleted. Name another organization"
        for number, entry in enumerate(fleet["nodes"])
        if entry["organization"] in deleted
    ]


def _ended(fleet: dict[str, Any]) -> list[str]:
    """The fault of each node that cannot be brought to the file any more: its announced end has come."""
    rows = Node.objects.leaving(Now()).filter(hostname__in=[entry["hostname"] for entry in fleet["nodes"]])
    ended = set(rows.values_list("organization__slug", "hostname"))
    return [
        f"nodes[{number}].hostname: {entry['hostname']} has come to its end. Load it once it is removed"
        for number, entry in enumerate(fleet["nodes"])
        if (entry["organization"], entry["hostname"]) in ended
    ]
