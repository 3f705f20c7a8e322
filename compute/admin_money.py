"""What workloads cost and have cost, what they start from, and what was last surveyed of the fleet."""

from typing import Any

from django.contrib import admin
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.decorators import display

from compute.models import (
    AvailabilityState,
    NodeChange,
    NodeOffer,
    OrgGpuPrice,
    ResourceSize,
    Tier,
    UsageSession,
    UsageUnit,
    VmTemplate,
)
from openrelay.console.base import FactsAdmin, FactsInline, LookupFilter
from openrelay.console.filters import TimeRangeFilter


def dollars(cents: int) -> str:
    """Cents as they read."""
    return f"${cents / 100:.2f}"


class OfTier(LookupFilter):
    """Prices and sessions by tier."""

    title = "tier"
    parameter_name = "tier"
    choices_from = tuple(Tier.choices)


class OpenFilter(LookupFilter):
    """Sessions by whether they go on."""

    title = "session"
    parameter_name = "open"
    field = "ended_at__isnull"
    choices_from = (("True", "open"), ("False", "closed"))


class BillableFilter(LookupFilter):
    """Sessions by whether they cost something."""

    title = "billing"
    parameter_name = "non_billable"
    choices_from = (("False", "billed"), ("True", "not billed"))


class UsageUnitInline(FactsInline):
    """The units of a session."""

    model = UsageUnit
    fields = readonly_fields = ("unit", "gpu_count", "hold", "released", "own")


@admin.register(OrgGpuPrice)
class OrgGpuPriceAdmin(FactsAdmin):
    """What a GPU costs one organization by the hour."""

    read_action = "billing.read"
    list_display = ("organization", "gpu_model", "tier", "rate", "updated_at")
    list_filter = (
        OfTier,
        ("organization", AutocompleteSelectFilter),
        ("gpu_model", AutocompleteSelectFilter),
    )
    list_select_related = ("organization", "gpu_model")
    search_fields = ("organization__name", "gpu_model__name", "gpu_model__slug")
    ordering = ("organization__name", "gpu_model__name", "tier")
    id_fields = ("pk", "organization", "gpu_model")

    @display(description="a GPU hour", ordering="cents_per_gpu_hour")
    def rate(self, row: Any) -> str:
        return dollars(row.cents_per_gpu_hour)


@admin.register(ResourceSize)
class ResourceSizeAdmin(FactsAdmin):
    """Sizes of VMs without GPUs."""

    read_action = "catalog.read"
    list_display = ("slug", "vcpu", "ram_mb", "rate")
    search_fields = ("slug",)
    ordering = ("vcpu", "slug")

    @display(description="an hour", ordering="cents_per_hour")
    def rate(self, row: Any) -> str:
        return dollars(row.cents_per_hour)


@admin.register(VmTemplate)
class VmTemplateAdmin(FactsAdmin):
    """What VMs may start from."""

    read_action = "catalog.read"
    list_display = ("name", "slug", "filename", "manufacturer", "requires_gpu", "is_default", "offered")
    search_fields = ("name", "slug", "filename")
    ordering = ("sort_order", "slug")


@admin.register(UsageSession)
class UsageSessionAdmin(FactsAdmin):
    """From when to when workloads ran, and at which rate."""

    read_action = "usage.read"
    list_display = ("workload", "organization", "node", "tier", "rate", "billing", "started_at", "ended_at")
    list_filter = (
        OpenFilter,
        OfTier,
        BillableFilter,
        ("organization", AutocompleteSelectFilter),
        ("node", AutocompleteSelectFilter),
        ("started_at", TimeRangeFilter),
    )
    list_select_related = ("workload", "organization", "node")
    search_fields = ("workload__name", "organization__name", "node__hostname")
    id_fields = ("pk", "workload", "organization", "node")
    inlines = (UsageUnitInline,)

    @display(description="an hour", ordering="cents_per_hour")
    def rate(self, row: Any) -> str:
        return dollars(row.cents_per_hour)

    @display(description="billing", ordering="non_billable", label={"billed": "info"})
    def billing(self, row: Any) -> str:
        return "not billed" if row.non_billable else "billed"


@admin.register(UsageUnit)
class UsageUnitAdmin(FactsAdmin):
    """The units that sessions ran on."""

    read_action = "usage.read"
    list_display = ("unit", "session", "gpu_count", "hold", "released", "own")
    list_select_related = ("unit", "session", "hold")
    search_fields = ("unit__address", "session__workload__name")
    ordering = ("-id",)
    id_fields = ("session", "unit", "hold")


@admin.register(AvailabilityState)
class AvailabilityStateAdmin(FactsAdmin):
    """As of when the fleet's offers were surveyed."""

    read_action = "compute.read"
    list_display = ("surveyed_at", "checked_at", "next_term_at", "silent", "offered", "version")
    search_fields = ("version",)
    ordering = ("id",)
    id_fields = ("version",)

    @display(description="offers")
    def offered(self, row: Any) -> int:
        return NodeOffer.objects.count()


@admin.register(NodeOffer)
class NodeOfferAdmin(FactsAdmin):
    """What each node was found to give of each GPU model."""

    read_action = "compute.read"
    list_display = ("node_id", "gpu_model_id", "online", "shape")
    search_fields = ("shape",)
    ordering = ("-id",)
    id_fields = ("node_id", "gpu_model_id")


@admin.register(NodeChange)
class NodeChangeAdmin(FactsAdmin):
    """Which transaction last changed what a node has to give."""

    read_action = "compute.read"
    list_display = ("node_id", "xid")
    search_fields = ("node_id",)
    ordering = ("-xid",)
    id_fields = ("node_id",)
