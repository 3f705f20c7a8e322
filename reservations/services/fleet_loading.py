"""Loading a fleet file by the same services that agents and the API use: checked whole, then node by node."""

from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from compute.services.billing.prices import set_price
from nodes.models import Location, Node
from nodes.services import catalog, enrolment, inventory
from nodes.services.locking import locked
from openrelay.audit.services.record import Actor
from openrelay.core.errors import ApiError
from openrelay.identity.models import Organization
from openrelay.identity.services.organizations import create_organization
from reservations.models import Reservation
from reservations.services.fleet_planning import (
    FleetFaults,
    NodePlan,
    Plan,
    make_plan,
    node_difference,
    refused,
    sent_to_review,
)

__all__ = ["FleetFaults", "Loaded", "SendsToReview", "load"]


class SendsToReview(Exception):
    """A load that would send reservations to review, which was not asked for. `plan` names them."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(f"{len(plan.reviews)} reservations would need review")
        self.plan = plan


@dataclass(slots=True)
class Loaded:
    """What loading did. `nodes` has every node of the file that was not refused, in its order; `failed` has
    a sentence for each that was.
    """

    nodes: list[Node] = field(default_factory=list)
    enrolled: int = 0
    updated: int = 0
    failed: list[str] = field(default_factory=list)


def load(data: Any, *, actor: Actor, update: bool = True, review: bool = True) -> Loaded:
    """Load the fleet in `data` (parsed JSON): what the nodes name in one transaction, then each node in
    one of its own, for a change holds the lock of one node.

    What already stands is left as it is, so loading a file again changes nothing, and one whose loading was
    cut short is loaded to its end by loading it again. A node that exists has its hardware brought to the
    file's with `update`; without it, its agent's word stands. Without `review` no change of topology is made
    on a node with a reservation that it would send to review.

    Raises, having changed nothing, FleetFaults, and SendsToReview when `review` is missing. What is decided
    otherwise under a node's lock, because the node changed meanwhile, is in `failed`.
    """
    plan = make_plan(data, update=update)
    if plan.reviews and not review:
        raise SendsToReview(plan)
    loaded = Loaded()
    with transaction.atomic():
        _load_catalog(plan.fleet, actor)
    organizations = {org.slug: org for org in Organization.objects.all()}
    locations = {place.slug: place for place in Location.objects.all()}
    for planned in plan.nodes:
        owner = organizations[planned.entry["organization"]]
        place = locations.get(planned.entry.get("location", ""))
        try:
            with transaction.atomic():
                _load_node(planned, owner, place, loaded, actor=actor, update=update, review=review)
        except ApiError as error:
            loaded.failed.append(f"nodes[{planned.number}].inventory: {error.message}")
    return loaded


def _load_node(
    planned: NodePlan,
    owner: Organization,
    location: Location | None,
    loaded: Loaded,
    *,
    actor: Actor,
    update: bool,
    review: bool,
) -> None:
    """Load one node, in the transaction that is open, and add to `loaded` what became of it. A refused
    inventory is kept for operators to see.
    """
    entry = planned.entry
    node = Node.objects.live().filter(organization=owner, hostname=entry["hostname"]).first()
    enrolled = node is None
    if node is None:
        node = enrolment.enrol_node(
            actor=actor,
            organization_id=owner.pk,
            hostname=entry["hostname"],
            node_class=entry["node_class"],
            runtime=entry["inventory"].get("runtime", Node.Runtime.QEMU),
            location=location,
        )
    changed = False
    if enrolled or update:
        with locked(node.pk) as held:
            difference = node_difference(held.node, entry["inventory"])
            stopped = [] if review else sent_to_review(held.node, difference, held.at)
            if stopped:
                loaded.failed.append(f"nodes[{planned.number}].inventory {needs_consent(stopped)}")
                return
            if difference.flagged or difference.has_other_changes:
                taken = inventory.apply_inventory(node.pk, entry["inventory"], actor=actor)
                if taken.flagged:
                    loaded.failed.append(refused(planned.number, entry, taken.flagged))
                    return
                changed = taken.changed
    loaded.nodes.append(node)
    loaded.enrolled += enrolled
    loaded.updated += changed and not enrolled


def needs_consent(reservations: list[Reservation]) -> str:
    """What a load does without being asked to, as the end of a sentence that begins with its place."""
    names = ", ".join(str(found.pk) for found in reservations)
    return f"would send to review: reservation {names}"


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
