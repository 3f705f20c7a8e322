"""Store and read what nodes report about the inside of guests: console, SSH server, disk."""

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from django.db.models import Sum

from compute.domain import states
from compute.models import GuestState, Run, Workload
from nodes.models import Node
from openrelay.core.clock import Now

# How many characters of the end of each run's console are stored.
CONSOLE_AT_MOST = 65_536


class GuestTelemetry(Protocol):
    """The part of a report about one guest. None means that the report does not say."""

    @property
    def run_id(self) -> UUID: ...
    @property
    def ssh_ready(self) -> bool | None: ...
    @property
    def console(self) -> str | None: ...
    @property
    def disk_total_bytes(self) -> int | None: ...
    @property
    def disk_used_bytes(self) -> int | None: ...


_FIELDS = ("ssh_ready", "console", "disk_total_bytes", "disk_used_bytes")


def store_guest_telemetry(guests: Sequence[GuestTelemetry]) -> None:
    """Store the changed values in the reports about guests of one node. Unreported values stay.

    At most two queries, and none when no value was reported.
    """
    told: dict[UUID, dict[str, Any]] = {}
    for guest in guests:
        values = {name: getattr(guest, name) for name in _FIELDS if getattr(guest, name) is not None}
        if values:
            told[guest.run_id] = values
    if not told:
        return
    known = GuestState.objects.in_bulk(list(told))
    changed = []
    # Sorted, so that two concurrent reports of a node do not deadlock.
    for run_id, values in sorted(told.items()):
        state = known.get(run_id) or GuestState(run_id=run_id)
        if run_id in known and all(getattr(state, name) == value for name, value in values.items()):
            continue
        if values.get("console", state.console) != state.console:
            state.console_at = Now()
        for name, value in values.items():
            setattr(state, name, value)
        state.said_at = Now()
        changed.append(state)
    GuestState.objects.bulk_create(
        changed,
        update_conflicts=True,
        unique_fields=["run"],
        update_fields=[*_FIELDS, "console_at", "said_at"],
    )


def disks_to_delete(node: Node, workload_ids: Sequence[UUID]) -> list[UUID]:
    """Find which of the disks that the node reports it must delete.

    These are the disks of workloads that were terminated or deployed on another node. A disk of an unknown
    workload is kept.
    """
    if not workload_ids:
        return []
    rows = Workload.objects.filter(pk__in=workload_ids).values_list("pk", "status", "node_id")
    over = [pk for pk, status, node_id in rows if status == states.TERMINATED or node_id != node.pk]
    # A guest that may still be there may still use its disk.
    used = set(
        Run.objects.open().filter(node=node, workload_id__in=over).values_list("workload_id", flat=True)
    )
    return sorted(pk for pk in over if pk not in used)


def console_of(workload: Workload) -> str | None:
    """The stored console of the workload's latest run that has one, or None."""
    state: GuestState | None = (
        GuestState.objects.filter(run__workload=workload).exclude(console="").order_by("-run__number").first()
    )
    return state.console if state else None


def disk_used_gb(run_ids: Sequence[UUID]) -> int:
    """The GB that the guests of those runs use on disk, as far as reported. At most one query."""
    if not run_ids:
        return 0
    told = GuestState.objects.filter(run_id__in=run_ids).aggregate(used=Sum("disk_used_bytes"))
    return (told["used"] or 0) // 10**9
