"""Enrol nodes, and issue and revoke the credentials of their agents."""

from typing import Final
from uuid import UUID

from nodes.models import Location, Node, NodeCredential, NodeHeartbeat
from nodes.services import incidents
from nodes.services.locking import LockedNode, locked, locked_for
from nodes.services.owner import require_enrolled
from openrelay.audit.services.record import Actor, record
from openrelay.core import canonical
from openrelay.core.errors import Invalid, NotFound
from openrelay.identity import secrets
from openrelay.identity.caller import Caller

# How long before its removal an interruptible node announces it, unless its provisioning token sets another
# time.
DEFAULT_NOTICE_SECONDS: Final = 30
#: The action that an operator needs to decide on nodes and their agents.
OPERATORS_ACTION: Final = "provider.write"


def enrol_node(
    *,
    actor: Actor,
    organization_id: UUID,
    hostname: str,
    node_class: str = Node.Class.PERSISTENT,
    runtime: str = Node.Runtime.QEMU,
    location: Location | None = None,
    notice_seconds: int = DEFAULT_NOTICE_SECONDS,
) -> Node:
    """Create a node of the organization. Its first inventory report creates its units. Needs a transaction.

    `notice_seconds` applies to interruptible nodes: the default time between the announcement of the removal
    and the removal. Raises Invalid VALIDATION_ERROR for a malformed host name.
    """
    name = canonical.host_name(hostname)
    if name is None:
        raise Invalid(f"hostname {hostname[:60]!a} is not {canonical.HOST_NAME_FORM}.")
    node = Node.objects.create(
        organization_id=organization_id,
        hostname=name,
        node_class=node_class,
        runtime=runtime,
        location=location,
        notice_seconds=notice_seconds if node_class == Node.Class.INTERRUPTIBLE else None,
    )
    NodeHeartbeat.objects.create(node=node)
    record(
        actor,
        "node.enrolled",
        target_type="node",
        target_id=str(node.pk),
        org_id=organization_id,
        after={"hostname": name, "class": node_class, "runtime": runtime},
    )
    return node


def issue_credential(*, actor: Actor, node: Node) -> str:
    """Create a credential for the node's agent and return its secret, which is not stored.

    Earlier credentials stay valid until they are revoked.
    """
    secret, digest = secrets.make(secrets.NODE_CREDENTIAL)
    credential = NodeCredential.objects.create(node=node, digest=digest, prefix=secret[:10])
    record(
        actor,
        "node.credential_issued",
        target_type="node",
        target_id=str(node.pk),
        org_id=node.organization_id,
        after={"credential": str(credential.pk), "prefix": credential.prefix},
    )
    return secret


def revoke_credentials(*, actor: Actor, node_id: UUID, reason: str) -> int:
    """Revoke all credentials of the node's agent, and return their number.

    Raises NotFound for an unknown node, and Invalid without a reason.
    """
    _require_reason(reason)
    with locked(node_id) as locked_node:
        return revoke_node_credentials(locked_node, actor=actor, reason=reason)


def reissue_credential(*, actor: Actor, node_id: UUID, reason: str) -> str:
    """Revoke all credentials of the node's agent, and return the secret of a new one, which is not stored.

    Raises NotFound for an unknown node, Invalid without a reason, and Invalid NODE_DECOMMISSIONED for a
    removed node.
    """
    _require_reason(reason)
    with locked(node_id) as locked_node:
        require_enrolled(locked_node)
        _revoke_credentials(locked_node, actor=actor, reason=reason)
        return issue_credential(actor=actor, node=locked_node.node)


def reissue_credential_as_operator(*, caller: Caller, node_id: UUID, reason: str) -> str:
    """Do the same as `reissue_credential` for a caller.

    Raises NotFound also if the caller is not an operator with provider.write.
    """
    _require_reason(reason)
    with locked_for(node_id, caller) as (locked_node, caller):
        require_operator(caller)
        require_enrolled(locked_node)
        _revoke_credentials(locked_node, actor=caller.actor, reason=reason)
        return issue_credential(actor=caller.actor, node=locked_node.node)


def revoke_credentials_as_operator(*, caller: Caller, node_id: UUID, reason: str) -> int:
    """Do the same as `revoke_credentials` for a caller.

    Raises NotFound also if the caller is not an operator with provider.write.
    """
    _require_reason(reason)
    with locked_for(node_id, caller) as (locked_node, caller):
        require_operator(caller)
        return revoke_node_credentials(locked_node, actor=caller.actor, reason=reason)


def require_operator(caller: Caller) -> None:
    """Raise NotFound if the caller is not an operator with OPERATORS_ACTION."""
    if not caller.operates(OPERATORS_ACTION):
        raise NotFound()


def _require_reason(reason: str) -> None:
    if not reason.strip():
        raise Invalid("reason must not be empty: say why the credentials are revoked.")


def revoke_node_credentials(locked_node: LockedNode, *, actor: Actor, reason: str) -> int:
    """Revoke the unrevoked credentials of a locked node, and return their number.

    Also closes the node's incidents, because no report can close them any more.
    """
    number = _revoke_credentials(locked_node, actor=actor, reason=reason)
    incidents.close_all_incidents(locked_node, actor=actor)
    return number


def _revoke_credentials(locked_node: LockedNode, *, actor: Actor, reason: str) -> int:
    rows = NodeCredential.objects.filter(node=locked_node.node, revoked_at=None)
    prefixes = sorted(rows.values_list("prefix", flat=True))
    if not prefixes:
        return 0
    rows.update(revoked_at=locked_node.at)
    record(
        actor,
        "node.credentials_revoked",
        target_type="node",
        target_id=locked_node.node.pk,
        org_id=locked_node.node.organization_id,
        before={"prefixes": prefixes},
        reason=reason,
        at=locked_node.at,
    )
    return len(prefixes)
