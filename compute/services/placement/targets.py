"""The node that a request names: who may name it, and when nothing is placed on it."""

from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from compute.services.placement.request import Rejection
from nodes.models import HoldAudience, Node
from nodes.querysets import Moment
from nodes.services.locking import LockedNode
from openrelay.core.clock import Now
from openrelay.core.errors import Invalid
from openrelay.core.ids import parse_id
from openrelay.identity.caller import Caller


def may_target_node(caller: Caller, at: Moment) -> Q:
    """The nodes that the caller may name: as owner, operator, or audience of a hold in term there."""
    if caller.is_operator:
        return Q()
    audience = HoldAudience.objects.filter(
        organization_id=caller.organization_id, hold__node=OuterRef("pk"), hold__term__contains=at
    )
    return Q(organization_id=caller.organization_id) | Q(Exists(audience))


def find_target_node(caller: Caller, node_id: str) -> UUID:
    """The id of the node that the caller names. It is read without the lock, so that nobody without rights
    there can queue for it. One query, whether or not the node exists. Raises Invalid UNKNOWN_NODE.
    """
    pk = parse_id(node_id)
    if pk is None or not Node.objects.filter(may_target_node(caller, Now()), pk=pk).exists():
        raise unknown_node()
    return pk


def unknown_node() -> Invalid:
    """The same error for a node that does not exist and for one that the caller may not name."""
    return Invalid(
        "nodeId does not name a node that you can place on. Omit it to use the public pool.",
        code="UNKNOWN_NODE",
    )


def reject_target(held: LockedNode, caller: Caller) -> Rejection | None:
    """Why nothing is placed now on the locked node that the caller names; None when it may be.

    Raises Invalid UNKNOWN_NODE where the caller has no rights, NODE_DECOMMISSIONED when the node was removed.
    """
    node = held.node
    owns_or_operates = caller.is_operator or node.organization_id == caller.organization_id
    generations = [] if owns_or_operates else hold_generations(held, caller)
    if not generations and not owns_or_operates:
        raise unknown_node()
    if node.removed_at is not None:
        raise Invalid("The node was removed. Name another, or none.", code="NODE_DECOMMISSIONED")
    if generations and node.topology_gen not in generations:
        return Rejection("the reservation that lets you name it needs review")
    return None


def hold_generations(held: LockedNode, caller: Caller) -> list[int]:
    """The topology generations of the holds in term on the locked node whose audience the caller is in."""
    audience = HoldAudience.objects.filter(
        organization_id=caller.organization_id, hold__node=held.node, hold__term__contains=held.at
    )
    return list(audience.values_list("hold__topology_gen", flat=True))
