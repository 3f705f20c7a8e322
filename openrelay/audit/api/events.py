"""The audit log."""

import json
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from openrelay.api.pagination import paginate
from openrelay.api.views import OperationView
from openrelay.audit.api.serializers import AuditQuery
from openrelay.audit.models import AuditEvent
from openrelay.clock import rfc3339


class AuditEventsView(OperationView):
    """`/v1/audit-events`"""

    operations = {"GET": "list_audit_events"}

    def get(self, request: Request) -> Response:
        """List what was done in the caller's organization, newest first; operators see every one's."""
        query = self.read_query(AuditQuery)
        caller = self.caller
        events = AuditEvent.objects.all()
        if not caller.operates("audit.read"):
            events = events.of_organization(caller.organization_id)
        for name in ("actor", "event", "target_id"):
            if name in query:
                events = events.filter(**{name: query[name]})
        if "since" in query:
            events = events.filter(created_at__gte=query["since"])
        if "until" in query:
            events = events.filter(created_at__lt=query["until"])
        rows, cursor = paginate(events, limit=query["limit"], cursor=query["cursor"])
        answer: dict[str, Any] = {"items": [_event(row) for row in rows]}
        if cursor is not None:
            answer["nextCursor"] = cursor
        return Response(answer)


def _event(row: AuditEvent) -> dict[str, Any]:
    shown = {
        "id": str(row.id),
        "createdAt": rfc3339(row.created_at),
        "actor": row.actor,
        "event": row.event,
        "targetType": row.target_type,
        "targetId": row.target_id,
    }
    for name, side in (("before", row.before), ("after", row.after)):
        if side is not None:
            shown[name] = json.dumps(side, separators=(",", ":"))
    if row.source_ip:
        shown["sourceIp"] = row.source_ip
    if row.request_id:
        shown["requestId"] = row.request_id
    return shown
