"""Loading a fleet file by the same services that agents and the API use: checked whole, then node by node."""

from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from compute.services.prices import set_price
from nodes.inventory import digest
from nodes.models import GpuModel, Location, Node
from nodes.services import catalog, enrolment, inventory
from openrelay.audit.services.record import Actor
from openrelay.clock import Now
from openrelay.identity.models import Organization
from openrelay.identity.services.organizations import create_organization
from reservations import fleet as fleet_file


class FleetFaults(Exception):
    """A fleet file that cannot be loaded; `faults` has a sentence each, with its place in the file."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(slots=True)
class Loaded:
    """What loading did. `nodes` has every node of the file, in its order."""

    nodes: list[Node] = field(default_factory=list)
    enrolled: int = 0
    updated: int = 0


def load(data: Any, *, actor: Actor, update: bool = True) -> Loaded:
    """Load the fleet in `data` (parsed JSON): what the nodes name in one transaction, then each node in
    one of its own, for a change holds the lock of one node.

    What already stands is left as it is, so loading a file again changes nothing, and one whose loading was
    cut short is loaded to its end by loading it again. A node that exists has its hardware brought to the
    file's with `update`; without it, its agent's word stands.

    Raises FleetFaults, having changed nothing; Invalid NODE_DECOMMISSIONED for a node to update that ended
    while others were loaded.
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
    loaded = Loaded()
    with transaction.atomic():
        _load_catalog(fleet, actor)
    organizations = {org.slug: org for org in Organization.objects.all()}
    locations = {place.slug: place for place in Location.objects.all()}
    for entry in fleet["nodes"]:
        owner = organizations[entry["organization"]]
        with transaction.atomic():
            node = Node.objects.live().filter(organization=owner, hostname=entry["hostname"]).first()
            if node is None:
                node = enrolment.enrol(
                    actor=actor,
                    organization_id=owner.pk,
                    hostname=entry["hostname"],
                    node_class=entry["node_class"],
                    runtime=entry["inventory"].get("runtime", Node.Runtime.QEMU),
                    location=locations.get(entry.get("location")),
                )
                loaded.enrolled += 1
                _take(node, entry["inventory"], actor)
            elif update and _take(node, entry["inventory"], actor):
                loaded.updated += 1
        loaded.nodes.append(node)
    return loaded


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


def _load_catalog(fleet: dict[str, Any], actor: Actor) -> None:
    for org in fleet["organizations"]:
        if not Organization.objects.filter(slug=org["slug"]).exists():
            create_organization(actor=actor, name=org["name"], slug=org["slug"], is_provider=True)
    for place in fleet["locations"]:
        catalog.set_location(place["slug"], _without(place, "slug"), actor=actor)
    for model in fleet["gpu_models"]:
        row = catalog.set_gpu_model(
            model["slug"], {**_without(model, "slug", "prices"), "hidden": False}, actor=actor
        )
        for tier, cents in model.get("prices", {}).items():
            set_price(actor=actor, gpu_model=row, tier=tier, cents_per_gpu_hour=cents)


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _take(node: Node, reported: dict[str, Any], actor: Actor) -> bool:
    """Take the file's inventory as the node's next report; returns whether it changed anything."""
    if digest(reported) == node.inventory_digest:
        return False
    report = {**reported, "sequence": reported.get("sequence", node.inventory_sequence + 1)}
    return inventory.take(node.pk, report, actor=actor).changed
