"""Workloads, to look at, with their rights and facts on units."""

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Case, Exists, OuterRef, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.decorators import display

from compute import admin_guests as _guests  # noqa: F401  (registers its own)
from compute import admin_money as _money  # noqa: F401  (registers its own)
from compute.admin_agents import PAGES, AgentDecisions
from compute.domain import states
from compute.models import (
    AgentState,
    Claim,
    FlaggedReport,
    GpuPrice,
    Occupancy,
    Run,
    SshKey,
    Tier,
    Workload,
    WorkloadSshKey,
)
from compute.services.lifecycle.overdue_teardowns import close_occupancy_by_override
from nodes.services.enrolment import OPERATORS_ACTION
from openrelay.console.base import STATUS_COLOURS, FactsAdmin, FactsInline, LookupFilter, link, titled
from openrelay.console.caller import decider
from openrelay.console.filters import TimeRangeFilter
from openrelay.console.forms import ReasonForm
from openrelay.core.errors import ApiError
from openrelay.identity.admin_decisions import links_to

#: What an operator needs to close the occupancies of a run whose agent does not report.
OVERRIDE_ACTION = "compute.operate"


class StatusFilter(LookupFilter):
    """Workloads by status."""

    title = "status"
    parameter_name = "status"
    choices_from = tuple((status, status) for status in states.ALL)


class TierFilter(LookupFilter):
    """Workloads and prices by tier."""

    title = "tier"
    parameter_name = "tier"
    choices_from = tuple(Tier.choices)


class KindFilter(LookupFilter):
    """Workloads by kind."""

    title = "kind"
    parameter_name = "kind"
    choices_from = tuple(Workload.Kind.choices)


class RunInline(FactsInline):
    """The runs of a workload."""

    model = Run
    fields = ("number", "node", "desired", "observed", "message", "created_at", "closed_at")
    ordering = ("-number",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("node")


@admin.register(Workload)
class WorkloadAdmin(FactsAdmin):
    """VMs and pods. What a tenant put into a guest is not shown."""

    read_action = "compute.read"
    list_display = (
        "name",
        "kind",
        "organization",
        "state",
        "status_reason",
        "tier",
        "node",
        "claimed_units",
        "gpu_model",
        "gpu_count",
        "resource_size",
        "created_at",
    )
    list_filter = (
        StatusFilter,
        TierFilter,
        KindFilter,
        ("organization", AutocompleteSelectFilter),
        ("node", AutocompleteSelectFilter),
        ("gpu_model", AutocompleteSelectFilter),
    )
    list_select_related = ("organization", "node", "gpu_model")
    search_fields = ("name", "organization__name", "node__hostname", "status_reason")
    id_fields = ("pk", "organization", "node")
    exclude = ("env_vars", "cloud_init", "container_command")
    inlines = (RunInline,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        claims = Claim.objects.filter(workload=OuterRef("pk")).order_by("unit__address")
        return rows.defer("env_vars", "cloud_init", "container_command").annotate(
            claimed=ArraySubquery(claims.values("unit__address"))
        )

    @display(description="status", ordering="status", label={**STATUS_COLOURS, "terminated": "default"})
    def state(self, row: Any) -> str:
        return str(row.status)

    @display(description="units")
    def claimed_units(self, row: Any) -> str:
        return ", ".join(row.claimed)


class OpenFilter(LookupFilter):
    """Runs and occupancies by whether they are closed."""

    title = "open"
    parameter_name = "open"
    field = "closed_at__isnull"
    choices_from = (("True", "open"), ("False", "closed"))


class OverdueFilter(LookupFilter):
    """Runs by what was reported as taking too long, and still does."""

    title = "overdue"
    parameter_name = "overdue"
    choices_from = (("start", "its start"), ("teardown", "its teardown"))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case "start":
                return queryset.filter(pk__in=Run.objects.starts_overdue())
            case "teardown":
                return queryset.filter(pk__in=Run.objects.teardowns_overdue())
        return queryset


class OccupancyInline(FactsInline):
    """The units that a run may be on."""

    model = Occupancy
    fields = ("unit", "opened_at", "closed_at", "closed_by", "override_reason")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("unit")


@admin.register(Run)
class RunAdmin(FactsAdmin):
    """Guests: what is wanted of each, and what its node says."""

    read_action = "compute.read"
    inlines = (OccupancyInline,)
    readonly_fields = ("override",)
    fields_for_action = {"override": OVERRIDE_ACTION}

    list_display = (
        "workload_link",
        "number",
        "node",
        "desired",
        "heard",
        "message",
        "created_at",
        "closed_at",
    )
    list_display_links = ("number",)
    list_filter = (
        OpenFilter,
        OverdueFilter,
        ("node", AutocompleteSelectFilter),
        ("overdue_reported_at", TimeRangeFilter),
        ("stuck_reported_at", TimeRangeFilter),
    )
    list_select_related = ("workload", "node")
    search_fields = ("workload__name", "node__hostname", "message")
    ordering = ("-created_at", "-id")
    id_fields = ("pk", "workload", "node")

    def get_urls(self) -> list[URLPattern]:
        page = self.page(self.override_view, action=OVERRIDE_ACTION)
        return [path("<uuid:pk>/override/", page, name="compute_run_override"), *super().get_urls()]

    def override_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """GET: what taking an operator's word for the agent's would do. POST: take it."""
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        run = Run.objects.select_related("workload__organization", "node").filter(pk=pk).first()
        if run is None:
            messages.error(request, "There is no such run.")
            return HttpResponseRedirect(reverse("admin:compute_run_changelist"))
        reason = ReasonForm(request.POST if request.method == "POST" else None)
        error: ApiError | None = None
        if request.method == "POST" and reason.is_valid():
            try:
                with decider(request, OVERRIDE_ACTION, target_type="run", target_id=pk) as caller:
                    close_occupancy_by_override(
                        caller=caller, run_id=pk, reason=reason.cleaned_data["reason"]
                    )
            except ApiError as refusal:
                error = refusal
                run.refresh_from_db()
            else:
                messages.success(request, "Noted: the guest is gone, and its units are free.")
                return HttpResponseRedirect(reverse("admin:compute_run_change", args=[pk]))
        context = {
            **self.admin_site.each_context(request),
            "opts": titled(self.opts, "Override"),
            "title": "Override",
            "run": run,
            "units": [row.unit.address for row in run.occupancies.open().select_related("unit")],
            "open": run.closed_at is None and run.desired == Run.Desired.GONE,
            "reason": reason,
            "error": error,
            "back_url": reverse("admin:compute_run_change", args=[pk]),
        }
        status = error.status if error else 400 if reason.errors else 200
        return TemplateResponse(request, "compute/override.html", context, status=status)

    @display(description="override")
    def override(self, row: Any) -> str:
        if row.closed_at is not None or row.desired != Run.Desired.GONE:
            return "not needed"
        url = reverse("admin:compute_run_override", args=[row.pk])
        return format_html('<a class="text-link" href="{}">Say that the guest is gone</a>', url)

    @display(description="workload", ordering="workload__name")
    def workload_link(self, row: Any) -> str:
        return link("compute_workload", row.workload_id, row.workload.name)

    @display(description="observed", ordering="observed", label=STATUS_COLOURS)
    def heard(self, row: Any) -> str:
        return row.observed or "not heard of"


@admin.register(Claim)
class ClaimAdmin(FactsAdmin):
    """Rights to units, held now."""

    read_action = "compute.read"
    list_display = ("unit", "node", "workload", "organization", "tier", "created_at")
    list_filter = (
        ("node", AutocompleteSelectFilter),
        ("workload__organization", AutocompleteSelectFilter),
    )
    list_select_related = ("unit", "node", "workload__organization")
    search_fields = ("unit__address", "node__hostname", "workload__name", "workload__organization__name")
    ordering = ("-created_at", "-id")
    id_fields = ("unit", "node", "workload", "run", "workload__organization")

    @display(description="organization", ordering="workload__organization__name")
    def organization(self, row: Any) -> str:
        return str(row.workload.organization)

    @display(description="tier", ordering="workload__tier")
    def tier(self, row: Any) -> str:
        return str(row.workload.tier)


class OccupancyStateFilter(LookupFilter):
    """Occupancies by state."""

    title = "state"
    parameter_name = "state"
    choices_from = (("claimed", "claimed"), ("draining", "draining"), ("closed", "closed"))


@admin.register(Occupancy)
class OccupancyAdmin(FactsAdmin):
    """Units that a run may be on: draining while the right is given up and the guest not confirmed gone."""

    read_action = "compute.read"
    list_display = (
        "unit",
        "node",
        "workload",
        "state",
        "opened_at",
        "closed_at",
        "closed_by",
        "override_reason",
    )
    list_filter = (
        OccupancyStateFilter,
        ("node", AutocompleteSelectFilter),
        ("opened_at", TimeRangeFilter),
    )
    list_select_related = ("unit", "node", "run__workload")
    search_fields = ("unit__address", "node__hostname", "run__workload__name", "closed_by", "override_reason")
    ordering = ("-opened_at", "-id")
    id_fields = ("run", "unit", "node", "run__workload")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        claim = Claim.objects.filter(unit=OuterRef("unit"), run=OuterRef("run"))
        return rows.annotate(
            state=Case(
                When(closed_at__isnull=False, then=Value("closed")),
                When(Exists(claim), then=Value("claimed")),
                default=Value("draining"),
            )
        )

    @display(description="workload", ordering="run__workload__name")
    def workload(self, row: Any) -> str:
        return str(row.run.workload)

    @display(description="state", ordering="state", label={**STATUS_COLOURS, "claimed": "info"})
    def state(self, row: Any) -> str:
        return str(row.state)


@admin.register(GpuPrice)
class GpuPriceAdmin(FactsAdmin):
    """What a GPU costs by the hour."""

    read_action = "catalog.read"
    list_display = ("gpu_model", "tier", "rate", "updated_at")
    list_filter = (TierFilter, ("gpu_model", AutocompleteSelectFilter))
    list_select_related = ("gpu_model",)
    search_fields = ("gpu_model__name", "gpu_model__slug")
    ordering = ("gpu_model__name", "tier")
    id_fields = ("pk", "gpu_model")

    @display(description="a GPU hour", ordering="cents_per_gpu_hour")
    def rate(self, row: Any) -> str:
        return f"${row.cents_per_gpu_hour / 100:.2f}"


@admin.register(SshKey)
class SshKeyAdmin(FactsAdmin):
    """Public keys of organizations."""

    read_action = "sshkey.read"
    list_display = ("name", "organization", "fingerprint", "created_by", "created_at")
    list_filter = (("organization", AutocompleteSelectFilter),)
    list_select_related = ("organization",)
    search_fields = ("name", "fingerprint", "organization__name")
    id_fields = ("pk", "organization")


@admin.register(WorkloadSshKey)
class WorkloadSshKeyAdmin(FactsAdmin):
    """Which keys open which workloads."""

    read_action = "sshkey.read"
    list_display = ("workload", "ssh_key", "organization")
    list_filter = (("workload__organization", AutocompleteSelectFilter),)
    list_select_related = ("workload__organization", "ssh_key")
    search_fields = ("workload__name", "ssh_key__name")
    ordering = ("-id",)
    id_fields = ("workload", "ssh_key")

    @display(description="organization", ordering="workload__organization__name")
    def organization(self, row: Any) -> str:
        return str(row.workload.organization)


class FlagFilter(LookupFilter):
    """Agents by whether what they say is odd."""

    title = "flag"
    parameter_name = "flagged"
    field = "flagged_at__isnull"
    choices_from = (("False", "flagged"), ("True", "as expected"))


@admin.register(AgentState)
class AgentStateAdmin(FactsAdmin):
    """What nodes' agents last said of their workloads."""

    read_action = "compute.read"
    list_display = ("node", "last_report_at", "last_sequence", "state", "flag", "flagged_at")
    list_filter = (FlagFilter, ("node", AutocompleteSelectFilter))
    list_select_related = ("node",)
    search_fields = ("node__hostname", "flag")
    ordering = ("-last_report_at",)
    readonly_fields = ("decide",)
    fields_for_action = {"decide": OPERATORS_ACTION}

    def get_urls(self) -> list[URLPattern]:
        return [*AgentDecisions(self).urls(), *super().get_urls()]

    @display(description="decide")
    def decide(self, row: Any) -> str:
        return links_to(PAGES, row.pk)

    @display(description="reports", label={**STATUS_COLOURS, "as expected": "success"})
    def state(self, row: Any) -> str:
        return "flagged" if row.flag else "as expected"


@admin.register(FlaggedReport)
class FlaggedReportAdmin(FactsAdmin):
    """Agents' reports of workloads that could not be taken as they were."""

    read_action = "compute.read"
    list_display = ("received_at", "node", "sequence", "flag")
    list_filter = (("node", AutocompleteSelectFilter), ("received_at", TimeRangeFilter))
    list_select_related = ("node",)
    search_fields = ("node__hostname", "flag")
    id_fields = ("pk", "node")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        listing = request.resolver_match is not None and "changelist" in (
            request.resolver_match.url_name or ""
        )
        return rows.defer("content") if listing else rows
