"""An organization's own nodes as it sees them: state, hardware, and what is reserved there now."""

from collections import defaultdict
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, F, Q, Sum

from nodes.models import GpuUnit, Node
from nodes.querysets import NodeQuerySet, NodeStatus
from openrelay.core.clock import Now
from openrelay.core.errors import NotFound
from reservations.models import Reservation


@dataclass(frozen=True, slots=True)
class Gpus:
    """How many GPUs of one model a node has."""

    name: str
    vram_gb: int
    quantity: int


@dataclass(frozen=True, slots=True)
class ProviderNode:
    """One node with its status. `reservations` are those whose term it is now, with all their facts."""

    node: Node
    gpus: tuple[Gpus, ...]
    reservations: tuple[Reservation, ...]

    @property
    def released_units(self) -> int:
        """How many of its units are reserved and on the spot market."""
        return sum(len(row.released_addresses) for row in self.reservations)

    @property
    def reserved_units(self) -> int:
        """How many of its units are reserved and kept for their audience alone."""
        return sum(len(row.unit_addresses) for row in self.reservations) - self.released_units


@dataclass(frozen=True, slots=True)
class Stats:
    """How many nodes an organization has that were not removed, and how many of them are what.

    `active_tokens` are provisioning tokens by which nodes can still enrol; operators enrol nodes here.
    """

    total: int
    online: int
    offline: int
    active_tokens: int = 0


def provider_nodes(
    organization_id: UUID,
    *,
    status: str | None = None,
    node_class: str | None = None,
    include_removed: bool = False,
) -> NodeQuerySet:
    """The organization's own nodes with their status; `with_contents` reads the rest.

    Removed ones are left out, unless `include_removed` or `status` asks for them.
    """
    nodes = Node.objects.filter(organization_id=organization_id).with_status(Now())
    if status is not None:
        nodes = nodes.filter(status=status)
    elif not include_removed:
        nodes = nodes.exclude(status=NodeStatus.REMOVED)
    if node_class is not None:
        nodes = nodes.filter(node_class=node_class)
    return nodes.select_related("location")


def provider_node(organization_id: UUID, node_id: UUID) -> ProviderNode:
    """One of the organization's own nodes, removed or not. Raises NotFound."""
    nodes = Node.objects.filter(organization_id=organization_id, pk=node_id).with_status(Now())
    found = with_contents(list(nodes.select_related("location")))
    if not found:
        raise NotFound()
    return found[0]


def stats(organization_id: UUID) -> Stats:
    """The organization's nodes by status. What is draining or in maintenance counts in the total alone."""
    counted = (
        Node.objects.filter(organization_id=organization_id)
        .with_status(Now())
        .exclude(status=NodeStatus.REMOVED)
        .aggregate(
            total=Count("pk"),
            online=Count("pk", filter=Q(status=NodeStatus.ONLINE)),
            offline=Count("pk", filter=Q(status=NodeStatus.OFFLINE)),
        )
    )
    return Stats(**counted)


def with_contents(nodes: list[Node]) -> list[ProviderNode]:
    """The nodes, each with its GPUs and the reservations in term, by two queries however many there are."""
    ids = [node.pk for node in nodes]
    gpus: dict[UUID, list[Gpus]] = defaultdict(list)
    # Of a node that was removed, what it had then.
    there = Q(gone_at=None) | Q(node__removed_at__isnull=False, gone_at__gte=F("node__removed_at"))
    counted = (
        GpuUnit.objects.filter(there, node__in=ids)
        .values_list("node_id", "gpu_model__name", "gpu_model__vram_gb")
        .annotate(quantity=Sum("gpu_count"))
        .order_by("node_id", "gpu_model__name", "gpu_model__vram_gb")
    )
    for node_id, name, vram_gb, quantity in counted:
        gpus[node_id].append(Gpus(name, vram_gb, quantity))
    reserved: dict[UUID, list[Reservation]] = defaultdict(list)
    for row in Reservation.objects.with_facts(Now()).filter(hold__node__in=ids, hold__term__contains=Now()):
        reserved[row.hold.node_id].append(row)
    return [ProviderNode(node, tuple(gpus[node.pk]), tuple(reserved[node.pk])) for node in nodes]
