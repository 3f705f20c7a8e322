"""The least that can be done for a VM: the rows that creating one leaves, written by one statement."""

import functools
import json
from typing import Any
from uuid import UUID

from django.db import connection, models
from rest_framework import serializers
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from openrelay.audit.actor import Actor
from openrelay.core.ids import new_id
from openrelay.identity.caller import Caller


def _literal(field: models.Field, value: Any) -> str:
    """A value as PostgreSQL reads it in a statement."""
    with connection.cursor() as cursor:
        prepared = field.get_db_prep_save(value, connection)
        text: str = cursor.mogrify("%s", [prepared])
    kind = field.db_type(connection)
    return f"{text.replace('%', '%%')}::{kind}" if kind and "serial" not in kind else text


def _insert(row: models.Model, changed: dict[str, str]) -> str:
    """INSERT of a row like this one, with other values for some columns."""
    fields = [field for field in row._meta.concrete_fields if not isinstance(field, models.BigAutoField)]
    values = [
        changed[field.attname] if field.attname in changed else _literal(field, getattr(row, field.attname))
        for field in fields
    ]
    columns = ", ".join(f'"{field.column}"' for field in fields)
    return f"INSERT INTO {row._meta.db_table} ({columns}) VALUES ({', '.join(values)})"


@functools.cache
def statement(workload_id: str) -> str:
    """One statement with the rows of that VM anew, on `%(unit)s` of `%(node)s`."""
    from compute.models import Claim, Occupancy, Run, Workload, WorkloadSshKey
    from openrelay.audit.models import AuditEvent

    vm, run, event, unit, node = (
        f"%({name})s::uuid" for name in ("workload", "run", "event", "unit", "node")
    )
    made = Workload.objects.get(pk=workload_id)
    rows = [
        (made, {"id": vm, "node_id": node}),
        (WorkloadSshKey.objects.get(workload=made), {"workload_id": vm}),
        (Run.objects.get(workload=made), {"id": run, "workload_id": vm, "node_id": node}),
        (
            Claim.objects.get(workload=made),
            {"workload_id": vm, "run_id": run, "node_id": node, "unit_id": unit},
        ),
        (
            Occupancy.objects.get(run__workload=made),
            {"run_id": run, "node_id": node, "unit_id": unit},
        ),
    ]
    noted = AuditEvent.objects.get(target_id=workload_id, event="vm.created")
    inserts = [_insert(row, changed) for row, changed in rows]
    parts = ", ".join(f"row{number} AS ({insert})" for number, insert in enumerate(inserts))
    return f"WITH {parts} {_insert(noted, {'id': event, 'target_id': f'({vm})::text'})}"


class BareBody(serializers.Serializer):
    """The body, as a view of Django REST framework has it checked."""

    name = serializers.CharField(max_length=128)
    sshKeyIds = serializers.ListField(child=serializers.UUIDField(), min_length=1)
    gpuCount = serializers.IntegerField(min_value=1)
    diskSizeGb = serializers.IntegerField(min_value=10)
    nodeId = serializers.UUIDField()
    unitId = serializers.UUIDField()


class BareVm(APIView):
    """The same inserts for a body of the same size, and nothing that makes them right."""

    authentication_classes: list[Any] = []
    parser_classes = [JSONParser]
    template = ""

    def post(self, request: Request) -> Response:
        """Insert; answer as much as a VM is."""
        from compute.models import Workload

        read = BareBody(data=request.data)
        read.is_valid(raise_exception=True)
        body = read.validated_data
        if not BareVm.template:
            BareVm.template = str(Workload.objects.latest("created_at").pk)
        made = str(new_id())
        self.write(
            {
                "workload": made,
                "run": str(new_id()),
                "event": str(new_id()),
                "unit": str(body["unitId"]),
                "node": str(body["nodeId"]),
            }
        )
        return Response(
            {
                "id": made,
                "name": body["name"],
                "organizationId": made,
                "status": "deploying",
                "provisioningStage": "scheduled",
                "tier": "community",
                "createdAt": "2026-11-02T10:05:00.5Z",
                "diskSizeGb": body["diskSizeGb"],
                "gpuCount": body["gpuCount"],
                "gpuModelId": made,
                "gpuModelName": "Bench GPU",
                "gpuManufacturer": "NVIDIA",
                "pricePerHourCents": 200,
                "public": False,
                "keys": json.dumps(body["sshKeyIds"], default=str),
            }
        )

    def write(self, row: dict[str, Any]) -> None:
        """Insert the rows, and nothing else."""
        with connection.cursor() as cursor:
            cursor.execute(statement(self.template), row)


class LockingVm(BareVm):
    """The same in a transaction that first locks the node and reads what placing there goes by: the SQL that
    a VM on one node takes, and nothing that is decided.
    """

    key: Any = None

    def write(self, row: dict[str, Any]) -> None:
        """Lock and read, as the platform does; insert."""
        from compute.services.placement.snapshot import snapshot_reading
        from nodes.services.locking import locked_for
        from openrelay.identity.models import ApiKey

        LockingVm.key = key = LockingVm.key or ApiKey.objects.select_related("organization").get(
            name="create"
        )
        caller = Caller(
            kind="api_key",
            organization_id=key.organization_id,
            organization_name=key.organization.name,
            is_operator=False,
            actions=frozenset(),
            actor=Actor(f"key:{key.pk}"),
            key_id=key.pk,
        )
        with locked_for(
            UUID(row["node"]), caller, reading=snapshot_reading(key.organization_id, "community")
        ):
            super().write(row)
