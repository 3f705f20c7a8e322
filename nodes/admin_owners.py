"""Console pages of fabrics, their addresses, and provider applications."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.decorators import display

from nodes.models import Fabric, FabricAddress, Node, ProviderApplication
from openrelay.console.base import STATUS_COLOURS, FactsAdmin, LookupFilter, count_of


class TakenAddressFilter(LookupFilter):
    """Addresses by whether they are leased."""

    title = "use"
    parameter_name = "free"
    field = "holder__isnull"
    choices_from = (("True", "free"), ("False", "taken"))


@admin.register(Fabric)
class FabricAdmin(FactsAdmin):
    """InfiniBand fabrics and the use of their address pools."""

    read_action = "provider.read"
    list_display = ("name", "slug", "node_count", "address_count", "free_count")
    search_fields = ("name", "slug")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.annotate(
            node_total=count_of(Node.objects.live(), "fabric"),
            address_total=count_of(FabricAddress.objects.all(), "fabric"),
            free_total=count_of(FabricAddress.objects.filter(holder=None), "fabric"),
        )

    @display(description="nodes", ordering="node_total")
    def node_count(self, row: Any) -> int:
        return int(row.node_total)

    @display(description="addresses", ordering="address_total")
    def address_count(self, row: Any) -> int:
        return int(row.address_total)

    @display(description="free", ordering="free_total")
    def free_count(self, row: Any) -> int:
        return int(row.free_total)


@admin.register(FabricAddress)
class FabricAddressAdmin(FactsAdmin):
    """Addresses of fabrics and their leases."""

    read_action = "provider.read"
    list_display = ("address", "fabric", "node", "holder", "leased_at")
    list_filter = (
        TakenAddressFilter,
        ("fabric", AutocompleteSelectFilter),
        ("node", AutocompleteSelectFilter),
    )
    list_select_related = ("fabric", "node")
    search_fields = ("address", "fabric__name", "node__hostname")
    ordering = ("fabric", "id")
    id_fields = ("holder", "node")


class DecidedFilter(LookupFilter):
    """Applications by whether they were decided."""

    title = "decision"
    parameter_name = "pending"
    field = "decided_at__isnull"
    choices_from = (("True", "pending"), ("False", "decided"))


@admin.register(ProviderApplication)
class ProviderApplicationAdmin(FactsAdmin):
    """Applications to become a provider. `manage.py decide_provider` records the decision."""

    read_action = "provider.read"
    list_display = ("organization", "state", "submitted_at", "submitted_by", "decided_at", "decided_by")
    list_filter = (DecidedFilter, ("organization", AutocompleteSelectFilter))
    list_select_related = ("organization",)
    search_fields = ("organization__name", "note")
    ordering = ("-submitted_at", "-id")
    id_fields = ("pk", "organization")

    @display(description="decision", label={**STATUS_COLOURS, "approved": "success"})
    def state(self, row: Any) -> str:
        return str(row.status)
