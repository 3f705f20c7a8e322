"""Querysets of compute's models: filters and annotations that several services use."""

from collections.abc import Iterable
from typing import Any, Self
from uuid import UUID

from django.db import models
from django.db.models import Count, F, FilteredRelation, Q

from compute.domain import states
from openrelay.identity.caller import Caller


class SshKeyQuerySet(models.QuerySet[Any]):
    """SSH keys."""

    def of(self, organization_id: UUID) -> Self:
        """Filter to the keys of that organization."""
        return self.filter(organization_id=organization_id)

    def with_use(self) -> Self:
        """Annotate `attached_vm_count`: the number of workloads, not terminated, with the key attached."""
        return self.annotate(
            attached_vm_count=Count(
                "workload_rows", filter=~Q(workload_rows__workload__status=states.TERMINATED)
            )
        )


class WorkloadQuerySet(models.QuerySet[Any]):
    """Workloads."""

    def visible_to(self, caller: Caller) -> Self:
        """Filter to the workloads of the caller's organization. This also applies to operators."""
        return self.filter(organization_id=caller.organization_id)

    def with_guest(self) -> Self:
        """Annotate `guest_observed`: the last observed state of the workload's wanted run, or None."""
        wanted = FilteredRelation("runs", condition=Q(runs__closed_at=None, runs__desired="running"))
        return self.annotate(wanted_run=wanted, guest_observed=F("wanted_run__observed"))

    def active(self) -> Self:
        """Workloads that are not terminated."""
        return self.exclude(status=states.TERMINATED)

    def vms(self) -> Self:
        """VMs."""
        return self.filter(kind="vm")

    def pods(self) -> Self:
        """Pods."""
        return self.filter(kind="pod")

    def holding(self, unit_ids: Iterable[UUID]) -> Self:
        """Filter to workloads with a claim on any of those units, each once, the oldest first."""
        holders = (
            self.model._default_manager.filter(claims__unit_id__in=list(unit_ids)).order_by().values("pk")
        )
        return self.filter(pk__in=holders).order_by("created_at", "id")


class RunQuerySet(models.QuerySet[Any]):
    """Runs."""

    def open(self) -> Self:
        """Runs that are not closed: the guest may still be there."""
        return self.filter(closed_at=None)

    def wanted(self) -> Self:
        """Open runs whose desired state is running."""
        return self.open().filter(desired="running")

    def being_torn_down(self) -> Self:
        """Open runs whose desired state is gone."""
        return self.open().filter(desired="gone")

    def starts_overdue(self) -> Self:
        """Runs whose start was reported as overdue and whose workload is still deploying."""
        return self.wanted().filter(stuck_reported_at__isnull=False, workload__status="deploying")

    def teardowns_overdue(self) -> Self:
        """Runs whose teardown was reported as overdue and that their node has not confirmed."""
        return self.being_torn_down().filter(overdue_reported_at__isnull=False)


class ClaimQuerySet(models.QuerySet[Any]):
    """Claims."""

    def on_units(self, unit_ids: Iterable[UUID]) -> Self:
        """Claims on any of those units."""
        return self.filter(unit_id__in=list(unit_ids))


class OccupancyQuerySet(models.QuerySet[Any]):
    """Occupancies."""

    def open(self) -> Self:
        """Occupancies that are not closed."""
        return self.filter(closed_at=None)


class UsageSessionQuerySet(models.QuerySet[Any]):
    """Usage sessions."""

    def open(self) -> Self:
        """Sessions that have not ended."""
        return self.filter(ended_at=None)


class VmTemplateQuerySet(models.QuerySet[Any]):
    """Templates."""

    def offered(self) -> Self:
        """Templates that new VMs may start from."""
        return self.filter(offered=True)
