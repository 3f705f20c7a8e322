"""What OpenRelay is compared with: the least that Django REST framework can do behind the same server."""

import json
from typing import Any

from django.db import connection
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from openrelay.api.views import OperationView
from openrelay.core.ids import new_id

# One reservation of four units: its hold, its audience of two and its audit event, in one statement.
INSERT = """
WITH hold AS (
    INSERT INTO nodes_hold (id, node_id, term, topology_gen)
    VALUES ({id}::uuid, {node}::uuid, tstzrange({start}::timestamptz, {end}::timestamptz), 1)
    RETURNING id, node_id, term
), audience AS (
    INSERT INTO nodes_holdaudience (hold_id, organization_id)
    SELECT hold.id, org FROM hold, unnest({orgs}::uuid[]) AS org
), held AS (
    INSERT INTO nodes_holdunit (hold_id, node_id, unit_id, term, released, pinned_class, pinned_model_id,
                                pinned_gpu_count)
    SELECT hold.id, hold.node_id, unit, hold.term, false, 'vfio-group', {model}::uuid, 1
    FROM hold, unnest({units}::uuid[]) AS unit
), contract AS (
    INSERT INTO reservations_reservation (hold_id, starts_at, ends_at, contract_ref, reason, created_by,
                                          created_at, updated_at, pinned_at)
    SELECT hold.id, {start}::timestamptz, {end}::timestamptz, '', 'bench', 'bench', now(), now(), now()
    FROM hold
)
INSERT INTO audit_auditevent (id, created_at, actor, shown_actor, organization_id, event, target_type,
                              target_id, after, reason, source_ip, request_id)
SELECT {event}::uuid, now(), 'bench', 'bench', {owner}::uuid, 'reservation.created', 'reservation',
       hold.id::text, {after}::jsonb, 'bench', '127.0.0.1', 'bench' FROM hold
"""
_PARAMETERS = ("id", "node", "start", "end", "orgs", "model", "units", "event", "owner", "after")
_STATEMENT = INSERT.format(**{name: f"%({name})s" for name in _PARAMETERS})


class BareReservation(APIView):
    """The same inserts for a body of the same size, and nothing that makes them right."""

    authentication_classes: list[Any] = []
    parser_classes = [JSONParser]

    def post(self, request: Request) -> Response:
        """Insert; answer as much as a reservation is."""
        body = request.data
        made = str(new_id())
        after = {"units": body["unitIds"], "audience": body["orgIds"], "startsAt": body["startsAt"]}
        with connection.cursor() as cursor:
            cursor.execute(
                _STATEMENT,
                {
                    "id": made,
                    "node": body["nodeId"],
                    "start": body["startsAt"],
                    "end": body["endsAt"],
                    "orgs": body["orgIds"],
                    "model": body["modelId"],
                    "units": body["unitIds"],
                    "event": str(new_id()),
                    "owner": body["ownerId"],
                    "after": json.dumps(after),
                },
            )
        return Response(
            {
                "id": made,
                "nodeId": body["nodeId"],
                "status": "pending",
                "reservedUnitIds": body["unitIds"],
                "releasedUnitIds": [],
                "allowedOrgIds": body["orgIds"],
                "managingOrgIds": [],
                "startsAt": body["startsAt"],
                "endsAt": body["endsAt"],
                "topologyGen": 1,
                "createdAt": body["startsAt"],
                "updatedAt": body["startsAt"],
            }
        )


class Anonymous(APIView):
    """A constant, for anybody."""

    authentication_classes: list[Any] = []

    def get(self, request: Request) -> Response:
        """Answer the constant."""
        return Response({"answer": 42})


class Authenticated(OperationView):
    """The same constant, for a caller with a key."""

    operations = {"GET": "whoami"}

    def get(self, request: Request) -> Response:
        """Answer the constant."""
        return Response({"answer": 42})
