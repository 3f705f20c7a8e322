"""InfiniBand fabrics: address pools, leases of addresses to pods, and the nodes of a fabric."""

from collections.abc import Iterable
from uuid import UUID

from django.db import transaction

from nodes.models import Fabric, FabricAddress, Node
from nodes.services.catalog import require_slug
from nodes.services.locking import LockedNode, locked
from openrelay.audit.services.record import Actor, record
from openrelay.core import canonical, clock
from openrelay.core.errors import Invalid
from openrelay.core.text import require_name

# Each address of a pool is one row.
MAX_POOL_ADDRESSES = 65_536


def set_fabric(slug: str, *, name: str, networks: Iterable[str], actor: Actor) -> Fabric:
    """Create or rename the fabric, and add the missing addresses of `networks` (CIDR) to its pool.

    Never removes an address, because a guest may use it. Raises Invalid for a malformed or too
    large network, and for a name with invisible characters.
    """
    slug = require_slug(slug, at_most=64)
    require_name("name", name, at_most=128)
    addresses: list[str] = []
    for network in networks:
        if fault := canonical.network_fault(network):
            raise Invalid(f"{network} {fault}.")
        parsed = canonical.network(network)
        assert parsed is not None  # noqa: S101 - it has no fault
        if parsed.num_addresses > MAX_POOL_ADDRESSES:
            raise Invalid(f"{network} has more than {MAX_POOL_ADDRESSES} addresses. Give a smaller network.")
        addresses += [str(address) for address in parsed.hosts()]
    with transaction.atomic():
        at = clock.read()
        fabric, is_new = Fabric.objects.get_or_create(slug=slug, defaults={"name": name, "created_at": at})
        existing_addresses = set(
            FabricAddress.objects.filter(fabric=fabric).values_list("address", flat=True)
        )
        added = [address for address in addresses if address not in existing_addresses]
        if not is_new and fabric.name == name and not added:
            return fabric
        before = None if is_new else {"name": fabric.name, "addresses": len(existing_addresses)}
        Fabric.objects.filter(pk=fabric.pk).update(name=name)
        fabric.name = name
        FabricAddress.objects.bulk_create(
            [FabricAddress(fabric=fabric, address=address) for address in dict.fromkeys(added)],
            ignore_conflicts=True,
        )
        record(
            actor,
            "fabric.set",
            target_type="fabric",
            target_id=fabric.pk,
            before=before,
            after={
                "slug": slug,
                "name": name,
                "addresses": len(existing_addresses) + len(dict.fromkeys(added)),
            },
            at=at,
        )
    return fabric


def set_node_fabric(node_id: UUID, fabric: Fabric | None, *, actor: Actor) -> Node:
    """Set the fabric of the node; None for no fabric. Raises NotFound for an unknown node."""
    with locked(node_id) as locked_node:
        node = locked_node.node
        if node.fabric_id == (fabric.pk if fabric else None):
            return node
        before = node.fabric_id
        node.fabric = fabric
        node.save(update_fields=["fabric"])
        record(
            actor,
            "node.fabric_changed",
            target_type="node",
            target_id=node.pk,
            org_id=node.organization_id,
            before={"fabric": str(before) if before else None},
            after={"fabric": str(fabric.pk) if fabric else None},
            at=locked_node.at,
        )
        return node


def lease_address(locked_node: LockedNode, holder: UUID) -> str | None:
    """Lease an address of the locked node's fabric to `holder`, or return the one it already has there.

    Returns None if the node has no fabric or the fabric has no free address. Never waits for a transaction of
    another node: SKIP LOCKED treats an address that another transaction is leasing as leased.
    """
    leased = FabricAddress.objects.filter(holder=holder).first()
    if (
        leased is not None
        and leased.node_id == locked_node.node.pk
        and leased.fabric_id == locked_node.node.fabric_id
    ):
        return str(leased.address)
    if leased is not None:
        release_addresses([holder])
    if locked_node.node.fabric_id is None:
        return None
    free = (
        FabricAddress.objects.filter(fabric=locked_node.node.fabric_id, holder=None)
        .order_by("id")
        .select_for_update(skip_locked=True)
        .first()
    )
    if free is None:
        return None
    FabricAddress.objects.filter(pk=free.pk).update(
        holder=holder, node=locked_node.node, leased_at=locked_node.at
    )
    return str(free.address)


def release_addresses(holders: Iterable[UUID]) -> None:
    """Free the addresses of `holders`. Needs the lock of their node."""
    FabricAddress.objects.filter(holder__in=list(holders)).update(holder=None, node=None, leased_at=None)
