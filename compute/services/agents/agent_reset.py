"""Forgetting the order of a node's reports, so that its agent is heard whatever it sends next."""

from uuid import UUID

from compute.models import AgentState
from nodes.models import InventoryState
from nodes.services.enrolment import require_operator
from nodes.services.locking import LockedNode, locked, locked_for
from nodes.services.report_order import clear_epochs
from openrelay.audit.services.record import Actor, record
from openrelay.core.errors import Invalid
from openrelay.identity.caller import Caller


def reset_agent(*, node_id: UUID, actor: Actor, reason: str) -> None:
    """Forget the node's epochs and sequences. Hardware, guests and what runs stay as they are.

    Raises NotFound when there is no such node, Invalid without a reason.
    """
    _require_reason(reason)
    with locked(node_id) as held:
        _reset(held, actor=actor, reason=reason)


def reset_agent_as_operator(*, caller: Caller, node_id: UUID, reason: str) -> None:
    """The same as `reset_agent`, for an operator.

    Raises also NotFound for who is not an operator with provider.write.
    """
    _require_reason(reason)
    with locked_for(node_id, caller) as (held, caller):
        require_operator(caller)
        _reset(held, actor=caller.actor, reason=reason)


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise Invalid("reason must not be empty: say why the node's agent is reset.")


def _reset(held: LockedNode, *, actor: Actor, reason: str) -> None:
    node = held.node
    state = AgentState.objects.filter(node=node).first()
    before = {
        "inventorySequence": node.inventory_sequence,
        "reportSequence": state.last_sequence if state else 0,
    }
    cleared = clear_epochs(node.pk)
    InventoryState.objects.filter(node=node).update(**cleared)
    AgentState.objects.filter(node=node).update(**cleared, last_sequence=0, last_content="")
    node.inventory_sequence = 0
    node.save(update_fields=["inventory_sequence"])
    record(
        actor,
        "node.agent_reset",
        target_type="node",
        target_id=node.pk,
        org_id=node.organization_id,
        before=before,
        reason=reason,
        at=held.at,
    )
