"""How an event reads: whole for operators, and for an organization what it may know of it."""

import json
from typing import Any

from openrelay.audit.actor import SYSTEM
from openrelay.audit.kinds import kind_of
from openrelay.audit.models import AuditEvent
from openrelay.core.clock import rfc3339


def event_for_operators(row: AuditEvent) -> dict[str, Any]:
    """An AuditEvent with all that is kept of it."""
    return _event(
        row, {"actor": row.actor, "targetType": row.target_type, "targetId": row.target_id}
    ) | _filled(
        {
            "before": _json(row.before),
            "after": _json(row.after),
            "sourceIp": row.source_ip,
            "requestId": row.request_id,
        }
    )


def event_for_organization(row: AuditEvent) -> dict[str, Any]:
    """An AuditEvent of an organization's log as that organization reads it.

    Other parties are `capacity-owner` or `platform`, and where they called from and how they named their
    request is not told. The facts are those that the kind of event declares.
    """
    kind = kind_of(row.event)
    target = {"targetType": row.target_type, "targetId": row.target_id}
    if kind.is_on_node:
        target = {"targetType": "node", "targetId": str((row.after or {}).get("nodeId", ""))}
    shown = _event(row, {"actor": row.shown_actor, **target}) | _filled(
        {"before": _json(kind.shown(row.before)), "after": _json(kind.shown(row.after))}
    )
    if row.shown_actor == row.actor and row.actor != SYSTEM.name:
        shown |= _filled({"sourceIp": row.source_ip, "requestId": row.request_id})
    return shown


def _event(row: AuditEvent, who_and_what: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "createdAt": rfc3339(row.created_at),
        "event": row.event,
        **who_and_what,
        **_filled(
            {"reason": row.reason, "serverRequestId": row.server_request_id and str(row.server_request_id)}
        ),
    }


def _filled(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _json(side: Any) -> str | None:
    return None if side is None else json.dumps(side, separators=(",", ":"))
