"""What the API keeps for itself, to look at."""

from django.contrib import admin
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from openrelay.api.models import Beat, IdempotencyKey
from openrelay.console.base import FactsAdmin


@admin.register(Beat)
class BeatAdmin(FactsAdmin):
    """The sign of life of the background work."""

    read_action = "audit.read"
    list_display = ("__str__", "at")
    id_fields = ()


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(FactsAdmin):
    """Requests whose answer is kept; the answer itself is the organization's own."""

    read_action = "audit.read"
    list_display = ("key", "organization", "created_at")
    list_filter = (("organization", AutocompleteSelectFilter),)
    list_select_related = ("organization",)
    search_fields = ("key", "organization__name")
    ordering = ("-created_at", "-id")
    exclude = ("answer",)
    id_fields = ("pk", "organization")
