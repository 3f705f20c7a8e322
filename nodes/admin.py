"""Console pages of nodes, GPU units, inventory reports and holds."""

from typing import Any

from django.contrib import admin
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import F, OuterRef, QuerySet
from django.http import HttpRequest
from django.urls import URLPattern
from unfold.contrib.filters.admin import AutocompleteSelectFilter, BooleanRadioFilter
from unfold.decorators import display

from nodes import admin_incidents as _incidents  # noqa: F401  (registers its pages)
from nodes import admin_owners as _owners  # noqa: F401  (registers its pages)
from nodes.admin_decisions import NodeDecisions
from nodes.models import (
    AgentEpoch,
    Gpu,
    GpuModel,
    GpuUnit,
    Hold,
    HoldAudience,
    HoldUnit,
    InventoryReport,
    InventoryState,
    Location,
    Node,
    NodeCredential,
    NodeHeartbeat,
    TopologyGeneration,
)
from nodes.querysets import NodeStatus, Phase
from nodes.services.enrolment import OPERATORS_ACTION
from openrelay.console.base import STATUS_COLOURS, FactsAdmin, FactsInline, LookupFilter, count_of
from openrelay.console.filters import TimeRangeFilter
from openrelay.core.clock import Now
from openrelay.identity.admin_decisions import links_to


class StatusFilter(LookupFilter):
    """Nodes by status."""

    title = "status"
    parameter_name = "status"
    choices_from = tuple((value, value) for value in NodeStatus.ALL)


class OwnerHoldFilter(LookupFilter):
    """Nodes by the owner's hold on new work."""

    title = "owner's hold"
    parameter_name = "owner_hold"
    choices_from = tuple((value, value) for value in Node.OwnerHold.values if value)


class RuntimeFilter(LookupFilter):
    """Nodes by runtime."""

    title = "runtime"
    parameter_name = "runtime"
    choices_from = tuple(Node.Runtime.choices)


class NodeClassFilter(LookupFilter):
    """Nodes by class."""

    title = "class"
    parameter_name = "node_class"
    choices_from = tuple(Node.Class.choices)


class InReviewFilter(LookupFilter):
    """Nodes with reservations that need review."""

    title = "needs review"
    parameter_name = "review"
    field = "in_review__gt"
    choices_from = (("0", "has reservations in review"),)


class UnitInline(FactsInline):
    """The present and gone units of a node."""

    model = GpuUnit
    fields = (
        "address",
        "alloc_class",
        "gpu_model",
        "gpu_count",
        "sellable",
        "not_sellable_reason",
        "gone_at",
    )
    ordering = ("address",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("gpu_model")


class GenerationInline(FactsInline):
    """The topology generations of a node."""

    model = TopologyGeneration
    fields = ("number", "at", "cause", "report")
    ordering = ("-number",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("report")


@admin.register(Node)
class NodeAdmin(FactsAdmin):
    """Nodes: status, units, and reservations that need review."""

    read_action = "provider.read"
    list_display = (
        "hostname",
        "organization",
        "status",
        "owner_hold_state",
        "runtime",
        "node_class",
        "location",
        "units_present",
        "generation",
        "reviews",
        "seen_at",
    )
    list_filter = (
        StatusFilter,
        OwnerHoldFilter,
        InReviewFilter,
        RuntimeFilter,
        NodeClassFilter,
        ("organization", AutocompleteSelectFilter),
        ("location", AutocompleteSelectFilter),
    )
    list_select_related = ("organization", "location")
    search_fields = ("hostname", "organization__name", "location__name")
    id_fields = ("pk", "organization")
    exclude = ("inventory_digest",)
    readonly_fields = ("decide",)
    fields_for_action = {"decide": OPERATORS_ACTION}
    inlines = (UnitInline, GenerationInline)

    def get_urls(self) -> list[URLPattern]:
        return [*NodeDecisions(self).urls(), *super().get_urls()]

    @display(description="decide")
    def decide(self, row: Any) -> str:
        return links_to(NodeDecisions.PAGES, row.pk)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.with_status(Now()).annotate(  # type: ignore[attr-defined]
            seen_at=F("heartbeat__seen_at"),
            unit_total=count_of(GpuUnit.objects.present()),
            in_review=count_of(Hold.objects.with_phase(Now()).filter(phase=Phase.NEEDS_REVIEW)),
        )

    @display(description="status", ordering="status", label=STATUS_COLOURS)
    def status(self, row: Any) -> str:
        return str(row.status)

    @display(description="owner's hold", ordering="owner_hold", label=STATUS_COLOURS)
    def owner_hold_state(self, row: Any) -> str:
        return "leaving" if row.terminate_at and not row.removed_at else str(row.owner_hold)

    @display(description="units", ordering="unit_total")
    def units_present(self, row: Any) -> int:
        return int(row.unit_total)

    @display(description="generation", ordering="topology_gen")
    def generation(self, row: Any) -> int:
        return int(row.topology_gen)

    @display(description="needs review", ordering="in_review", label={"some": "warning"})
    def reviews(self, row: Any) -> tuple[str, str] | str:
        return ("some", str(row.in_review)) if row.in_review else ""

    @display(description="last heard from", ordering="seen_at")
    def seen_at(self, row: Any) -> Any:
        return row.seen_at


@admin.register(NodeHeartbeat)
class NodeHeartbeatAdmin(FactsAdmin):
    """The last heartbeat of each node."""

    read_action = "provider.read"
    list_display = ("node", "seen_at", "agent_version", "agent_level")
    list_filter = (("seen_at", TimeRangeFilter),)
    list_select_related = ("node",)
    search_fields = ("node__hostname", "agent_version")
    ordering = ("-seen_at",)


@admin.register(NodeCredential)
class NodeCredentialAdmin(FactsAdmin):
    """Credentials of nodes' agents. Their secrets are not stored."""

    read_action = "provider.read"
    list_display = ("prefix", "node", "created_at", "revoked_at")
    list_filter = (("node", AutocompleteSelectFilter),)
    list_select_related = ("node",)
    search_fields = ("prefix", "node__hostname")
    ordering = ("-created_at", "-id")
    id_fields = ("pk", "node")


@admin.register(AgentEpoch)
class AgentEpochAdmin(FactsAdmin):
    """Starts of nodes' agents, newest first."""

    read_action = "provider.read"
    list_display = ("node", "epoch", "began_at")
    list_filter = (("node", AutocompleteSelectFilter), ("began_at", TimeRangeFilter))
    list_select_related = ("node",)
    search_fields = ("epoch", "node__hostname")
    ordering = ("-id",)
    id_fields = ("node",)


@admin.register(InventoryState)
class InventoryStateAdmin(FactsAdmin):
    """The order of nodes' inventory reports. An operator can reset it on the node's page."""

    read_action = "provider.read"
    list_display = ("node", "epoch", "last_report_at", "doubted_since", "doubted_sequence")
    list_filter = (("node", AutocompleteSelectFilter), ("doubted_since", TimeRangeFilter))
    list_select_related = ("node",)
    search_fields = ("epoch", "node__hostname")
    ordering = ("-last_report_at",)


@admin.register(Location)
class LocationAdmin(FactsAdmin):
    """Locations of nodes."""

    read_action = "catalog.read"
    list_display = ("name", "slug", "city", "country", "region", "node_count")
    search_fields = ("name", "slug", "city", "country", "region")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.annotate(node_total=count_of(Node.objects.live(), "location"))

    @display(description="nodes", ordering="node_total")
    def node_count(self, row: Any) -> int:
        return int(row.node_total)


@admin.register(GpuModel)
class GpuModelAdmin(FactsAdmin):
    """The catalog of GPU models."""

    read_action = "catalog.read"
    list_display = ("name", "slug", "manufacturer", "vram_gb", "form_factor", "unit_count", "hidden")
    list_filter = (("hidden", BooleanRadioFilter),)
    search_fields = ("name", "slug", "manufacturer", "architecture")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.annotate(unit_total=count_of(GpuUnit.objects.present(), "gpu_model"))

    @display(description="units", ordering="unit_total")
    def unit_count(self, row: Any) -> int:
        return int(row.unit_total)


class GpuInline(FactsInline):
    """The GPUs of a unit."""

    model = Gpu
    fields = ("address", "serial", "previous_serial", "card_changed_at", "failed_at", "failure")


class FailedFilter(LookupFilter):
    """Units by the health of their GPUs."""

    title = "health"
    parameter_name = "failed"
    field = "failed_total__gt"
    choices_from = (("0", "has a failed GPU"),)


@admin.register(GpuUnit)
class GpuUnitAdmin(FactsAdmin):
    """GPU units and why they cannot be reserved."""

    read_action = "provider.read"
    list_display = ("address", "node", "gpu_model", "gpu_count", "alloc_class", "state", "reason", "gone_at")
    list_filter = (
        ("node", AutocompleteSelectFilter),
        ("gpu_model", AutocompleteSelectFilter),
        ("sellable", BooleanRadioFilter),
        FailedFilter,
    )
    list_select_related = ("node", "gpu_model")
    search_fields = ("address", "node__hostname", "gpu_model__name", "alloc_class")
    ordering = ("node__hostname", "address")
    id_fields = ("pk", "node", "gpu_model")
    inlines = (GpuInline,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.annotate(failed_total=count_of(Gpu.objects.filter(failed_at__isnull=False), "unit"))

    @display(description="hardware", label={**STATUS_COLOURS, "fit": "success", "not for sale": "info"})
    def state(self, row: Any) -> str:
        if row.gone_at is not None:
            return "gone"
        if row.failed_total:
            return "failed"
        return "not for sale" if row.not_reservable_reason else "fit"

    @display(description="why not")
    def reason(self, row: Any) -> str:
        failed = f"{row.failed_total} of its GPUs failed" if row.failed_total else ""
        return row.not_reservable_reason or failed


@admin.register(Gpu)
class GpuAdmin(FactsAdmin):
    """Single GPUs and their health."""

    read_action = "provider.read"
    list_display = ("address", "unit", "node", "serial", "health", "failure", "failed_at")
    list_filter = (("unit__node", AutocompleteSelectFilter), ("failed_at", TimeRangeFilter))
    list_select_related = ("unit__node",)
    search_fields = ("address", "serial", "failure", "unit__node__hostname")
    ordering = ("unit__node__hostname", "address")
    id_fields = ("pk", "unit", "unit__node")

    @display(description="node", ordering="unit__node__hostname")
    def node(self, row: Any) -> str:
        return str(row.unit.node)

    @display(description="health", label={**STATUS_COLOURS, "healthy": "success"})
    def health(self, row: Any) -> str:
        return "failed" if row.failed_at else "healthy"


class TakenFilter(LookupFilter):
    """Reports by whether they were taken or flagged."""

    title = "taken"
    parameter_name = "taken"
    choices_from = (("no", "flagged"), ("yes", "taken"))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case "no":
                return queryset.exclude(flagged="")
            case "yes":
                return queryset.filter(flagged="")
        return queryset


@admin.register(InventoryReport)
class InventoryReportAdmin(FactsAdmin):
    """Inventory reports that changed the topology, or were flagged and changed nothing."""

    read_action = "provider.read"
    list_display = ("received_at", "node", "sequence", "state", "flagged")
    list_filter = (TakenFilter, ("node", AutocompleteSelectFilter), ("received_at", TimeRangeFilter))
    list_select_related = ("node",)
    search_fields = ("flagged", "node__hostname")
    id_fields = ("pk", "node")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        # The list does not show the content, which is long.
        is_changelist = request.resolver_match is not None and "changelist" in (
            request.resolver_match.url_name or ""
        )
        return rows.defer("content") if is_changelist else rows

    @display(description="report", label={**STATUS_COLOURS, "taken": "success"})
    def state(self, row: Any) -> str:
        return "flagged" if row.flagged else "taken"


@admin.register(TopologyGeneration)
class TopologyGenerationAdmin(FactsAdmin):
    """Topology generations of all nodes."""

    read_action = "provider.read"
    list_display = ("node", "number", "at", "cause", "report_number")
    list_filter = (("node", AutocompleteSelectFilter), ("at", TimeRangeFilter))
    list_select_related = ("node", "report")
    search_fields = ("cause", "node__hostname")
    ordering = ("-at", "-id")
    id_fields = ("pk", "node", "report")

    @display(description="report")
    def report_number(self, row: Any) -> str:
        return str(row.report.sequence) if row.report else ""


class PhaseFilter(LookupFilter):
    """Holds by phase."""

    title = "phase"
    parameter_name = "phase"
    choices_from = tuple(
        (phase, phase) for phase in (Phase.ACTIVE, Phase.PENDING, Phase.NEEDS_REVIEW, Phase.ENDED)
    )


class HoldUnitInline(FactsInline):
    """The units of a hold, with the facts pinned."""

    model = HoldUnit
    fields = ("unit", "released", "pinned_class", "pinned_model", "pinned_gpu_count")
    ordering = ("unit__address",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("unit", "pinned_model")


@admin.register(Hold)
class HoldAdmin(FactsAdmin):
    """Holds: units, audience and term."""

    read_action = "reservation.read"
    list_display = ("id", "node", "phase", "begins", "ends", "units_held", "kept_for", "topology_gen")
    list_filter = (PhaseFilter, ("node", AutocompleteSelectFilter), ("audience", AutocompleteSelectFilter))
    list_select_related = ("node",)
    search_fields = ("node__hostname", "audience_rows__organization__name")
    ordering = ("-id",)
    id_fields = ("pk", "node")
    inlines = (HoldUnitInline,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        audience = HoldAudience.objects.filter(hold=OuterRef("pk")).order_by("organization__name")
        return rows.with_phase(Now()).annotate(  # type: ignore[attr-defined]
            unit_total=count_of(HoldUnit.objects.all(), "hold"),
            audience_names=ArraySubquery(audience.values("organization__name")),
        )

    @display(description="phase", label=STATUS_COLOURS)
    def phase(self, row: Any) -> str:
        return str(row.phase)

    @display(description="begins")
    def begins(self, row: Any) -> Any:
        return row.term.lower

    @display(description="ends", empty_value="open")
    def ends(self, row: Any) -> Any:
        return row.term.upper if not row.term.isempty else "never began"

    @display(description="units", ordering="unit_total")
    def units_held(self, row: Any) -> int:
        return int(row.unit_total)

    @display(description="kept for")
    def kept_for(self, row: Any) -> str:
        return ", ".join(row.audience_names)


@admin.register(HoldUnit)
class HoldUnitAdmin(FactsAdmin):
    """Units of holds."""

    read_action = "reservation.read"
    list_display = ("unit", "node", "hold", "released", "pinned_class", "pinned_model", "pinned_gpu_count")
    list_filter = (("node", AutocompleteSelectFilter), ("released", BooleanRadioFilter))
    list_select_related = ("unit", "node", "hold", "pinned_model")
    search_fields = ("unit__address", "node__hostname")
    ordering = ("-id",)
    id_fields = ("hold", "unit", "node")


@admin.register(HoldAudience)
class HoldAudienceAdmin(FactsAdmin):
    """Organizations in the audiences of holds."""

    read_action = "reservation.read"
    list_display = ("organization", "hold", "node")
    list_filter = (("organization", AutocompleteSelectFilter),)
    list_select_related = ("organization", "hold__node")
    search_fields = ("organization__name", "hold__node__hostname")
    ordering = ("-id",)
    id_fields = ("hold", "organization", "hold__node")

    @display(description="node", ordering="hold__node__hostname")
    def node(self, row: Any) -> str:
        return str(row.hold.node)
