"""What the audit log's operation takes and answers, for the OpenAPI schema."""

from openrelay.api.schema.book import Body, Description, Operation
from openrelay.api.schema.examples import ADA, EVENT, RESERVATION
from openrelay.api.schema.shapes import an_id, page, ref, shape, text, time
from openrelay.audit.api.serializers import AuditQuery

SHAPES = {
    "AuditEvent": shape(
        "One change of one thing: who, what, when, from where.",
        {
            "id": an_id("The event's id."),
            "createdAt": time("When it happened."),
            "actor": text(
                "Who did it: `user:<id>`, `key:<id>`, `node:<id>` or `system`. Other parties read "
                "`capacity-owner`, for the organization whose capacity it was about, or `platform`. "
                "Operators read every actor by name; `operator` is a person at the server."
            ),
            "event": text("What was done, such as `reservation.created`."),
            "targetType": text("The kind of thing it was done to."),
            "targetId": text("Its id."),
        },
        {
            "before": text("What the thing was, as a JSON string."),
            "after": text("What it became, as a JSON string."),
            "reason": text("Why, in the words of whoever did it."),
            "requestId": text("The request, as the organization's own caller named it (`X-Request-Id`)."),
            "serverRequestId": an_id(
                "The request, by the server's own id; what one request changes shares it."
            ),
            "sourceIp": text("Where the request of the organization's own caller came from."),
        },
    ),
    "AuditEventPage": page("AuditEvent", "One page of the audit log."),
}

DESCRIPTION = Description(
    operations={
        "list_audit_events": Operation(
            tag="audit_events",
            summary="Read the audit log",
            description="Lists what was done in the caller's organization, newest first. Operators see every "
            "organization's. Refused attempts at a change are in it too. With `after`, lists the whole log "
            "oldest first, in the order in which events were committed, and always answers a `nextCursor`: "
            "send it as the next `after`, also when nothing was new. No event ever appears before a cursor.",
            query=AuditQuery,
            answer=ref("AuditEventPage"),
            example={
                "items": [
                    {
                        "id": EVENT,
                        "createdAt": "2026-11-02T10:00:00.123456Z",
                        "actor": f"user:{ADA}",
                        "event": "reservation.created",
                        "targetType": "reservation",
                        "targetId": RESERVATION,
                        "after": '{"startsAt":"2026-11-02T10:00:00.123456Z"}',
                        "requestId": "6f0c2b1a-58b3-4d0e-9a8e-3f5c7d9b1e20",
                        "sourceIp": "192.0.2.10",
                    }
                ],
                "nextCursor": "WyJhdWRpdC5hdWRpdGV2ZW50Il0",
            },
        )
    },
    shapes=SHAPES,
    bodies={
        AuditQuery: Body(
            "AuditQuery",
            "What to list.",
            {
                "limit": "How many to list at most.",
                "cursor": "`nextCursor` of the page before.",
                "actor": "Only what this one did, exactly as `actor` reads.",
                "event": "Only events of this name.",
                "targetId": "Only what was done to the thing of this id.",
                "since": "Only events at or after this time.",
                "until": "Only events before this time.",
                "after": "Follow the log: `start` or nothing for its beginning, then each page's "
                "`nextCursor`. Goes with `limit` alone.",
            },
        )
    },
    tags={"audit_events": "What was done, by whom."},
)
