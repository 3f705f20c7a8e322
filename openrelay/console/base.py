"""The base of every list and page in the console: to look at, search and filter, never to write by hand."""

from collections.abc import Callable
from copy import copy
from functools import cache, reduce
from operator import or_
from typing import Any, ClassVar, cast

from django.contrib import admin
from django.contrib.admin.exceptions import DisallowedModelAdminLookup, DisallowedModelAdminToField
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import get_fields_from_path
from django.db.models import Count, IntegerField, Model, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from unfold.admin import ModelAdmin, TabularInline
from unfold.contrib.filters.admin import DropdownFilter

from openrelay.console.access import can_view, has_action, require_action
from openrelay.console.listing import DeclaredList, ListRefused
from openrelay.core.canonical import search_term as search_for
from openrelay.core.ids import parse_id

#: What an operator needs to see an object's history, which is its events in the audit log.
HISTORY_ACTION = "audit.read"

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


@cache
def plain_column(name: str, label: str) -> Callable[[Any], str]:
    """A column that shows what a relation names without a link to its page."""

    @admin.display(description=label, empty_value="-")
    def shown(row: Any) -> str:
        related = getattr(row, name)
        return "" if related is None else str(related)

    return shown


class _ReadOnly:
    """Nobody adds, changes or deletes by hand: what can be changed is changed by a service."""

    model: type[Model]

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """The fields to show; a relation to what the operator may not view is shown without a link."""
        fieldsets: Any = super().get_fieldsets(request, obj)  # type: ignore[misc]
        return [
            (title, {**options, "fields": [self._without_link(request, name) for name in options["fields"]]})
            for title, options in fieldsets
        ]

    def _without_link(self, request: HttpRequest, name: Any) -> Any:
        columns = {field.name: field for field in self.model._meta.get_fields() if field.many_to_one}
        field = columns.get(name) if isinstance(name, str) else None
        if (
            field is None
            or not field.related_model
            or can_view(request, cast("type[Model]", field.related_model))
        ):
            return name
        return plain_column(name, str(getattr(field, "verbose_name", name)))

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class FactsAdmin(_ReadOnly, ModelAdmin):
    """One model's list and page. The list takes the same few queries however many rows there are.

    `read_action` is the action that an operator needs to see anything of the model in the console. A class
    that names none is closed to everybody. A page that changes something is wrapped by `page` with its own
    action.
    """

    read_action: ClassVar[str] = ""
    #: Fields shown only to an operator with an action, by name: links to pages that need it.
    fields_for_action: ClassVar[dict[str, str]] = {}
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

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return has_action(request, self.read_action)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def to_field_allowed(self, request: HttpRequest, to_field: str) -> bool:
        """Whether other pages may refer to rows by a field: only by the primary key."""
        return to_field in ("pk", self.opts.pk.name, self.opts.pk.attname)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The object of a page. An empty `_to_field` in the query string names no field."""
        return super().get_object(request, object_id, from_field or None)

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        """The declared filters, without those by a relation to what the operator may not view."""
        return [each for each in super().get_list_filter(request) if self._can_filter(request, each)]

    def _can_filter(self, request: HttpRequest, declared: Any) -> bool:
        if not isinstance(declared, tuple | list | str):
            return True
        field = get_fields_from_path(self.model, declared if isinstance(declared, str) else declared[0])[-1]
        related = cast("type[Model] | None", field.related_model)
        return related is None or can_view(request, related)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        """The computed fields, without links to pages that the operator may not open."""
        return [
            name
            for name in super().get_readonly_fields(request, obj)
            if name not in self.fields_for_action or has_action(request, self.fields_for_action[name])
        ]

    def page(
        self,
        view: Callable[..., HttpResponse],
        *,
        action: str = "",
        target: Callable[[Any], tuple[str, object]] | None = None,
    ) -> Callable[..., HttpResponse]:
        """Wrap a view of this admin as a page of the console.

        The operator needs `action`, if one is named, and the read action of this class; otherwise the answer
        is 403. A refused change is noted in the audit log on what `target` tells of the page's `pk`: a type
        and an id. The view, or its service, asks for `action` again under its lock.
        """

        def guarded(request: HttpRequest, **kwargs: Any) -> HttpResponse:
            pk = kwargs.get("pk", "")
            if not all(has_action(request, each) for each in (action or self.read_action, self.read_action)):
                target_type, target_id = target(pk) if target else (self.opts.model_name or "", pk)
                for each in (action or self.read_action, self.read_action):
                    require_action(request, each, target_type=target_type, target_id=target_id)
            return view(request, **kwargs)

        wrapped: Callable[..., HttpResponse] = self.admin_site.admin_view(guarded)
        return wrapped

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[DeclaredList]:
        return DeclaredList

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The list as asked for. Raises ListRefused for a filter, order or page that it does not have."""
        try:
            return super().get_changelist_instance(request)
        except (IncorrectLookupParameters, DisallowedModelAdminLookup, DisallowedModelAdminToField) as error:
            raise ListRefused(str(error)) from error

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list; 403 without the read action, 400 for a filter that the list does not declare."""
        self._require_read(request)
        try:
            answer: HttpResponse = super().changelist_view(request, extra_context)
        except ListRefused as refusal:
            context = {
                **self.admin_site.each_context(request),
                **(extra_context or {}),
                "opts": titled(self.opts, "Not a list that the console has"),
                "title": "Not a list that the console has",
                "refusal": str(refusal),
                "list_url": request.path,
            }
            return TemplateResponse(request, "console/refused.html", context, status=400)
        return answer

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """An object's page; 403 without the read action."""
        self._require_read(request)
        shown = {"show_history": has_action(request, HISTORY_ACTION), **(extra_context or {})}
        return super().changeform_view(request, object_id, form_url, shown)

    def _require_read(self, request: HttpRequest) -> None:
        require_action(request, self.read_action, target_type=self.opts.model_name or "", target_id="")

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
        """An object's history is what the audit log has of it; 403 for an operator who may not read that."""
        self._require_read(request)
        require_action(request, HISTORY_ACTION, target_type=self.opts.model_name or "", target_id=object_id)
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

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        """The computed fields, with those that stand for a relation without its link."""
        shown = (self._without_link(request, name) for name in self.fields or ())
        return [*super().get_readonly_fields(request, obj), *(each for each in shown if callable(each))]

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return can_view(request, self.model)


class LookupFilter(DropdownFilter):
    """A filter by one value of a column or annotation: `field`, or else what `parameter_name` names."""

    choices_from: tuple[tuple[str, str], ...] = ()
    field = ""

    def __init__(self, request: HttpRequest, params: Any, model: type[Model], model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        wanted = self.value()
        if wanted and wanted not in dict(self.choices_from):
            raise IncorrectLookupParameters(
                f"{self.parameter_name} is {wanted[:60]!r}. Choose one of: "
                f"{', '.join(dict(self.choices_from))}."
            )

    def lookups(self, request: HttpRequest, model_admin: Any) -> tuple[tuple[str, str], ...]:
        return self.choices_from

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows that have the chosen value; for a field of `__isnull`, "True" or "False" is chosen."""
        wanted = self.value()
        if not wanted:
            return queryset
        field = self.field or self.parameter_name
        return queryset.filter(**{field: wanted == "True" if field.endswith("__isnull") else wanted})
