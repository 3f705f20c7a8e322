"""Write refused changes to the audit log: one home for the API's and the console's."""

import uuid
from typing import Any

from openrelay.audit.actor import Actor
from openrelay.audit.services.repeats import record_repeated

# Codes of 400 that refuse for a relation that the caller lacks to what its body names.
_BY_RELATION = frozenset({"UNKNOWN_NODE"})


def is_audited(status: int, code: object) -> bool:
    """Whether a refused change goes to the audit log: for lack of a right or a relation, or by state."""
    return status in (403, 404, 409) or (status == 400 and code in _BY_RELATION)


def record_refusal(
    actor: Actor,
    *,
    method: str | None,
    operation: str | None,
    path: str,
    status: int,
    code: str,
    permission: Any,
    denied_by: Any,
    target_type: str,
    target_id: object,
    org_id: uuid.UUID | None,
) -> None:
    """Add a `request.refused` to the log of `org_id`, or count it when an equal one was just added.

    The target is what the request named, whether or not it exists. Call it outside the transaction that was
    refused.
    """
    record_repeated(
        actor,
        "request.refused",
        same=f"{method} {operation} {path} {status} {code}",
        target_type=target_type,
        target_id=target_id,
        org_id=org_id,
        after={
            "method": method,
            "operation": operation,
            "status": status,
            "code": code,
            "permission": permission,
            "deniedBy": denied_by,
        },
    )
