"""The audit log."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from openrelay.api.pagination import paginate, paginate_forward
from openrelay.api.views import OperationView
from openrelay.audit.api.presenters import event_for_operators, event_for_organization
from openrelay.audit.api.serializers import FILTERS, AuditQuery
from openrelay.audit.models import AuditEvent
from openrelay.audit.querysets import AuditEventQuerySet
from openrelay.core.errors import Invalid

_START = ("", "start")


class AuditEventsView(OperationView):
    """`/v1/audit-events`"""

    operations = {"GET": "list_audit_events"}

    def get(self, request: Request) -> Response:
        """List what was done in the caller's organization, newest first, or what is new after a cursor;
        operators see every one's.
        """
        query = self.read_query(AuditQuery)
        caller = self.caller
        operates = caller.operates("audit.read")
        events: AuditEventQuerySet = AuditEvent.objects.all()
        cursor: str | None
        if not operates:
            events = events.of_organization(caller.organization_id)
        if "after" in query:
            rows, cursor = _following(events, query)
        else:
            events = events.matching(query, for_operators=operates)
            rows, cursor = paginate(events, limit=query["limit"], cursor=query["cursor"])
        present = event_for_operators if operates else event_for_organization
        answer: dict[str, Any] = {"items": [present(row) for row in rows]}
        if cursor is not None:
            answer["nextCursor"] = cursor
        return Response(answer)


def _following(events: AuditEventQuerySet, query: dict[str, Any]) -> tuple[list[AuditEvent], str]:
    """The events after a cursor in the order of their commits, and the cursor to go on with."""
    besides = [name for name in ("cursor", *FILTERS) if query.get(name) is not None]
    if besides:
        raise Invalid(
            f"after does not go with {FILTERS.get(besides[0], besides[0])}. It lists every event of the log: "
            "leave the other out, and choose among what you read."
        )
    after = None if query["after"] in _START else query["after"]
    return paginate_forward(
        events.settled(),
        limit=query["limit"],
        after=after,
        order=("position", "id"),
    )
