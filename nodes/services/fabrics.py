"""InfiniBand fabrics: their pools of addresses, and who has which."""

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

# A pool is written out, an address a row.
MAX_POOL_ADDRESSES = 65_536


def set_fabric(slug: str, *, name: str, networks: Iterable[str], actor: Actor) -> Fabric:
    """Make the fabric, or name it anew, and add what is missing of `networks` (CIDR) to its pool.

    Addresses are never taken away, for a guest may have them. Raises Invalid for what is no network, or too
    large a one, and for a name with characters that cannot be seen.
    """
    slug = require_slug(slug, at_most=64)
    require_name("name", name, at_most=128)
    wanted: list[str] = []
    for network in networks:
        if fault := canonical.network_fault(network):
            raise Invalid(f"{network} {fault}.")
        parsed = canonical.network(network)
        assert parsed is not None  # noqa: S101 - it has no fault
        if parsed.num_addresses > MAX_POOL_ADDRESSES:
            raise Invalid(f"{network} has more than {MAX_POOL_ADDRESSES} addresses. Give a smaller network.")
        wanted += [str(address) for address in parsed.hosts()]
    with transaction.atomic():
        at = clock.read()
        fabric, new = Fabric.objects.get_or_create(slug=slug, defaults={"name": name, "created_at": at})
        existing_addresses = set(
            FabricAddress.objects.filter(fabric=fabric).values_list("address", flat=True)
        )
        added = [address for address in wanted if address not in existing_addresses]
        if not new and fabric.name == name and not added:
            return fabric
        before = None if new else {"name": fabric.name, "addresses": len(existing_addresses)}
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
    """Note that the node is on that fabric, or on none. Raises NotFound when there is no such node."""
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
    """An address of the locked node's fabric for `holder`: the one it has already, or a free one.

    None when the node is on no fabric, or its fabric has no free address. Nodes share a fabric's pool, and
    none ever waits for another: an address that another transaction is taking just now counts as taken.
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
    """Let the addresses of those holders be had by others, under the lock of their node."""
    FabricAddress.objects.filter(holder__in=list(holders)).update(holder=None, node=None, leased_at=None)
