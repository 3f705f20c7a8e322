"""Console pages of incidents of nodes' agents."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.decorators import display

from nodes.models import NodeIncident
from openrelay.console.base import FactsAdmin, LookupFilter
from openrelay.console.filters import TimeRangeFilter


class OpenFilter(LookupFilter):
    """Incidents by whether they are open."""

    title = "state"
    parameter_name = "state"
    choices_from = (("open", "open"), ("over", "over"))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case "open":
                return queryset.filter(ended_at=None)
            case "over":
                return queryset.exclude(ended_at=None)
        return queryset


class KindFilter(LookupFilter):
    """Incidents by kind."""

    title = "kind"
    parameter_name = "kind"
    choices_from = tuple(NodeIncident.Kind.choices)


@admin.register(NodeIncident)
class NodeIncidentAdmin(FactsAdmin):
    """Incidents of nodes' agents: refused reports, and two hosts with one credential."""

    read_action = "provider.read"
    list_display = ("began_at", "node", "kind", "state", "detail", "last_at", "ended_at")
    list_filter = (
        OpenFilter,
        KindFilter,
        ("node", AutocompleteSelectFilter),
        ("began_at", TimeRangeFilter),
    )
    list_select_related = ("node",)
    search_fields = ("detail", "node__hostname")
    ordering = ("-began_at", "-id")
    id_fields = ("pk", "node")

    @display(description="state", label={"open": "danger", "over": "success"})
    def state(self, row: NodeIncident) -> str:
        """Whether the incident is open."""
        return "over" if row.ended_at else "open"
