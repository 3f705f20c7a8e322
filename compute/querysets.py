"""Questions to the workloads: whose they are, what they hold, what still runs."""

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
        """Keys of that organization."""
        return self.filter(organization_id=organization_id)

    def with_use(self) -> Self:
        """Annotate `attached_vm_count`: how many workloads that are not terminated each key opens."""
        return self.annotate(
            attached_vm_count=Count(
                "workload_rows", filter=~Q(workload_rows__workload__status=states.TERMINATED)
            )
        )


class WorkloadQuerySet(models.QuerySet[Any]):
    """Workloads."""

    def visible_to(self, caller: Caller) -> Self:
        """Workloads of the organization that `caller` acts in. Nobody sees another's, operators included."""
        return self.filter(organization_id=caller.organization_id)

    def with_guest(self) -> Self:
        """Annotate `guest_observed`: what was last heard of the guest that each is to run; None for none."""
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
        """Workloads with a claim on any of those units, each once, the oldest first."""
        holders = (
            self.model._default_manager.filter(claims__unit_id__in=list(unit_ids)).order_by().values("pk")
        )
        return self.filter(pk__in=holders).order_by("created_at", "id")


class RunQuerySet(models.QuerySet[Any]):
    """Runs."""

    def open(self) -> Self:
        """Runs whose guest may still be there."""
        return self.filter(closed_at=None)

    def wanted(self) -> Self:
        """Open runs that the platform wants to run."""
        return self.open().filter(desired="running")

    def being_torn_down(self) -> Self:
        """Open runs that the platform wants gone."""
        return self.open().filter(desired="gone")

    def starts_overdue(self) -> Self:
        """Runs reported as not coming up, whose workload still deploys."""
        return self.wanted().filter(stuck_reported_at__isnull=False, workload__status="deploying")

    def teardowns_overdue(self) -> Self:
        """Runs reported as not ended, that their node still does not say ended."""
        return self.being_torn_down().filter(overdue_reported_at__isnull=False)


class ClaimQuerySet(models.QuerySet[Any]):
    """Claims."""

    def on_units(self, unit_ids: Iterable[UUID]) -> Self:
        """Claims on any of those units."""
        return self.filter(unit_id__in=list(unit_ids))


class OccupancyQuerySet(models.QuerySet[Any]):
    """Occupancies."""

    def open(self) -> Self:
        """Occupancies that nobody has closed."""
        return self.filter(closed_at=None)


class UsageSessionQuerySet(models.QuerySet[Any]):
    """Usage sessions."""

    def open(self) -> Self:
        """Sessions of workloads that run now."""
        return self.filter(ended_at=None)


class VmTemplateQuerySet(models.QuerySet[Any]):
    """Templates."""

    def offered(self) -> Self:
        """Templates that new VMs may start from."""
        return self.filter(offered=True)
