"""The base of every list and page in the console: to look at, search and filter, never to write by hand."""

from copy import copy
from functools import reduce
from operator import or_
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Count, IntegerField, Model, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from unfold.admin import ModelAdmin, TabularInline
from unfold.contrib.filters.admin import DropdownFilter

from openrelay.canonical import search_term as search_for
from openrelay.ids import parse_id

#: How a status is coloured, wherever one is shown.
STATUS_COLOURS = {
    "active": "success",
    "online": "success",
    "running": "success",
    "free": "success",
    "pending": "info",
    "deploying": "info",
    "maintenance": "info",
    "needs-review": "warning",
    "needs review": "warning",
    "draining": "warning",
    "interrupted": "warning",
    "offline": "danger",
    "failed": "danger",
    "revoked": "danger",
    "gone": "danger",
    "flagged": "danger",
}


def titled(opts: Any, title: str) -> Any:
    """A model's `opts` under which a page of its own is titled `title` in the console's header."""
    copied = copy(opts)
    copied.verbose_name_plural = title
    return copied


def link(model: str, pk: object, text: object) -> str:
    """A link to the console's page of one object; `model` is "app_model" in lower case."""
    return format_html(
        '<a class="text-link" href="{}">{}</a>', reverse(f"admin:{model}_change", args=[pk]), text
    )


def count_of(rows: QuerySet[Any], by: str = "node") -> Coalesce:
    """How many `rows` belong to the outer row: a subquery, so that counts do not multiply each other."""
    counted = (
        rows.filter(**{by: OuterRef("pk")}).order_by().values(by).annotate(total=Count("pk")).values("total")
    )
    return Coalesce(Subquery(counted, output_field=IntegerField()), 0)


class _ReadOnly:
    """Nobody adds, changes or deletes by hand: what can be changed is changed by a service."""

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class FactsAdmin(_ReadOnly, ModelAdmin):
    """One model's list and page. The list takes the same few queries however many rows there are."""

    list_per_page = 50
    list_max_show_all = 200
    list_fullwidth = True
    list_filter_sheet = True
    list_filter_submit = True
    show_facets = admin.ShowFacets.NEVER
    compressed_fields = True
    actions = None
    #: The fields that a whole id, typed into the search, is looked for in.
    id_fields: tuple[str, ...] = ("pk",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """What the search finds; a whole id finds the object itself and what belongs to it. Ids and PCI
        addresses are found in any spelling.
        """
        search_term = search_for(search_term)
        wanted = parse_id(search_term)
        if wanted is not None and self.id_fields:
            return queryset.filter(reduce(or_, (Q(**{field: wanted}) for field in self.id_fields))), True
        return super().get_search_results(request, queryset, search_term)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """An object's history is what the audit log has of it."""
        return HttpResponseRedirect(
            f"{reverse('admin:audit_auditevent_changelist')}?{urlencode({'q': object_id})}"
        )


class FactsInline(_ReadOnly, TabularInline):
    """Rows shown on their owner's page."""

    extra = 0
    max_num = 0
    can_delete = False
    show_change_link = True
    per_page = 25
    tab = True


class LookupFilter(DropdownFilter):
    """A filter by one value of a column or annotation: `field`, or else what `parameter_name` names."""

    choices_from: tuple[tuple[str, str], ...] = ()
    field = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> tuple[tuple[str, str], ...]:
        return self.choices_from

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows that have the chosen value; for a field of `__isnull`, "True" or "False" is chosen."""
        wanted = self.value()
        if not wanted:
            return queryset
        if wanted not in dict(self.choices_from):
            raise IncorrectLookupParameters(f"{self.title}: {wanted}")
        field = self.field or self.parameter_name
        return queryset.filter(**{field: wanted == "True" if field.endswith("__isnull") else wanted})
