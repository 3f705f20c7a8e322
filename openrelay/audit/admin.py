"""The audit log, to look at."""

from django.contrib import admin
from unfold.contrib.filters.admin import AutocompleteSelectFilter, FieldTextFilter
from unfold.paginator import InfinitePaginator

from openrelay.audit.models import AuditEvent
from openrelay.console.base import FactsAdmin
from openrelay.console.filters import TimeRangeFilter


@admin.register(AuditEvent)
class AuditEventAdmin(FactsAdmin):
    """Who did what to which object, the newest first."""

    read_action = "audit.read"
    list_display = (
        "created_at",
        "event",
        "actor",
        "target_type",
        "target_id",
        "organization",
        "reason",
        "source_ip",
    )
    list_display_links = ("created_at", "event")
    list_filter = (
        ("organization", AutocompleteSelectFilter),
        ("event", FieldTextFilter),
        ("actor", FieldTextFilter),
        ("target_type", FieldTextFilter),
        ("created_at", TimeRangeFilter),
    )
    list_select_related = ("organization",)
    search_fields = ("event", "actor", "reason", "request_id")
    id_fields = ("pk", "target_id")
    sortable_by = ()
    # Counting a log of millions takes longer than reading a page of it.
    paginator = InfinitePaginator
    show_full_result_count = False
