"""Open and close incidents of a node's agent: refused reports, and two hosts that share a credential."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction

from nodes.models import InventoryReport, Node, NodeIncident, TopologyGeneration
from nodes.services.locking import LockedNode
from nodes.services.report_order import PAST_EPOCH
from openrelay.audit.services.record import Actor, record
from openrelay.audit.services.repeats import record_repeated
from openrelay.core import clock

_HOUR: Final = timedelta(hours=1)
# With so many reports of a past epoch within an hour, a delayed report is ruled out. At most one a minute is
# kept.
_MIN_PAST_EPOCH_REPORTS: Final = 3
_PAST_EPOCH_PREFIX = PAST_EPOCH.partition("{")[0]
_MAX_DETAIL_LENGTH: Final = 500


def record_refused_report(
    node: Node, kind: str, *, operation: str, status: int, error: str, actor: Actor
) -> None:
    """Record that the server refused a report of the node's agent: an audit event and an open incident.

    Writes at most once a minute. `error` is the error sentence of the answer, which names the field.
    """
    with transaction.atomic():
        is_noted = record_repeated(
            actor,
            "node.report_refused",
            same=f"{operation}:{status}",
            target_type="node",
            target_id=node.pk,
            org_id=node.organization_id,
            after={"operation": operation, "status": status, "error": error[:_MAX_DETAIL_LENGTH]},
        )
        if is_noted:
            _open_incident(node, kind, error)


def close_refused_incident(node: Node, kind: str, *, actor: Actor) -> None:
    """Close the incident of refused reports, because the server took a report of that kind again."""
    _close_incidents(node, [kind], actor)


def detect_two_hosts(node: Node, at: datetime, *, actor: Actor) -> None:
    """Open an incident if two hosts seem to report with the node's credential. Call it under the node's lock.

    There are two signs: the node's units alternate between two sets within an hour, or reports of a past
    epoch keep coming although the server takes reports of a later one. Writes the audit event only when it
    opens the incident.
    """
    has_alternating_units = _has_alternating_units(node.pk, at)
    if not has_alternating_units and not _has_reports_of_past_epoch(node.pk, at):
        return
    if not _open_incident(node, NodeIncident.Kind.TWO_HOSTS, _DETAILS[has_alternating_units]):
        return
    record(
        actor,
        "node.two_hosts_suspected",
        target_type="node",
        target_id=node.pk,
        org_id=node.organization_id,
        after={"detail": _DETAILS[has_alternating_units]},
        at=at,
    )


def close_two_hosts_incident(node: Node, *, actor: Actor) -> None:
    """Close the incident of two hosts if there was no sign of them for an hour."""
    at = clock.read()
    if not _has_alternating_units(node.pk, at) and not _has_reports_of_past_epoch(node.pk, at):
        _close_incidents(node, [NodeIncident.Kind.TWO_HOSTS], actor)


def close_all_incidents(locked_node: LockedNode, *, actor: Actor) -> None:
    """Close all open incidents of a locked node whose agent can no longer report."""
    _close_incidents(locked_node.node, NodeIncident.Kind.values, actor)


_DETAILS: Final = {
    True: "Its units alternated between two sets within an hour. Check whether another host has a copy of "
    "its credential, or whether a device comes and goes; issue the credential anew.",
    False: "Reports of an earlier start of its agent keep coming. Check whether another host has a copy of "
    "its credential; issue the credential anew.",
}


def _has_alternating_units(node_id: UUID, at: datetime) -> bool:
    generations = TopologyGeneration.objects.filter(node=node_id, at__gt=at - _HOUR).order_by("-number")
    sets = list(generations.values_list("units", flat=True)[:4])
    return len(sets) == 4 and sets[0] == sets[2] and sets[1] == sets[3]


def _has_reports_of_past_epoch(node_id: UUID, at: datetime) -> bool:
    flagged = InventoryReport.objects.filter(
        node=node_id, received_at__gt=at - _HOUR, flagged__startswith=_PAST_EPOCH_PREFIX
    )
    return flagged.count() >= _MIN_PAST_EPOCH_REPORTS


def _open_incident(node: Node, kind: str, detail: str) -> bool:
    """Open the incident, or update the one that is open. Returns whether it is new."""
    at = clock.read()
    is_open = NodeIncident.objects.filter(node=node, kind=kind, ended_at=None).update(
        detail=detail[:_MAX_DETAIL_LENGTH], last_at=at
    )
    if is_open:
        return False
    NodeIncident.objects.bulk_create(
        [NodeIncident(node=node, kind=kind, detail=detail[:_MAX_DETAIL_LENGTH], began_at=at, last_at=at)],
        ignore_conflicts=True,
    )
    return True


def _close_incidents(node: Node, kinds: Collection[str], actor: Actor) -> None:
    with transaction.atomic():
        rows = NodeIncident.objects.select_for_update().filter(node=node, kind__in=kinds, ended_at=None)
        for incident in rows.order_by("pk"):
            incident.ended_at = clock.read()
            incident.save(update_fields=["ended_at"])
            record(
                actor,
                "node.incident_over",
                target_type="node",
                target_id=node.pk,
                org_id=node.organization_id,
                after={"incident": incident.kind},
            )
