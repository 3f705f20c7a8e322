"""Reservations, what was announced of them and who manages them, to look at."""

from typing import Any

from django.contrib import admin
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from unfold.contrib.filters.admin import AutocompleteSelectFilter, FieldTextFilter
from unfold.decorators import display

from nodes.models import HoldAudience, HoldUnit, TopologyGeneration
from openrelay.console.base import STATUS_COLOURS, FactsAdmin, FactsInline, LookupFilter, link, titled
from openrelay.console.filters import TimeRangeFilter
from openrelay.console.listing import DeclaredList
from openrelay.core.clock import Now
from reservations.admin.review import ACTION, ReviewPages
from reservations.models import Announcement, Reservation, ReservationManager
from reservations.querysets import Status


class StatusFilter(LookupFilter):
    """Reservations by status at this moment."""

    title = "status"
    parameter_name = "status"
    choices_from = tuple((status, status) for status in (*Status.LIVE, *Status.ENDED))


class AnnouncementInline(FactsInline):
    """What was announced of a reservation."""

    model = Announcement
    fields = ("event", "key", "occurred_at", "announced_at")
    ordering = ("-occurred_at",)


def review_url(pk: object) -> str:
    """The page on which a reservation is decided on."""
    return reverse("admin:reservations_reservation_review", args=[pk])


class ReservationsListed(FactsAdmin):
    """What both lists of reservations share: the computed facts, one query for all rows."""

    read_action = "reservation.read"
    search_fields = (
        "contract_ref",
        "reason",
        "hold__node__hostname",
        "hold__audience_rows__organization__name",
        "hold__held_units__unit__address",
    )
    id_fields = ("pk", "hold__node", "hold__audience")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # Not the inherited queryset: that one is put in order before there is anything annotated to order by.
        rows = Reservation.objects.all()
        held = HoldUnit.objects.filter(hold=OuterRef("pk")).order_by("unit__address")
        audience = HoldAudience.objects.filter(hold=OuterRef("pk"), organization__is_platform_ops=False)
        return (
            rows.with_status(Now())
            .select_related("hold__node__organization")
            .annotate(
                unit_addresses=ArraySubquery(held.values("unit__address")),
                released_addresses=ArraySubquery(held.filter(released=True).values("unit__address")),
                audience_names=ArraySubquery(
                    audience.order_by("organization__name").values("organization__name")
                ),
            )
        )

    @display(description="node", ordering="hold__node__hostname")
    def node(self, row: Any) -> str:
        return str(row.hold.node)

    @display(description="owner", ordering="hold__node__organization__name")
    def owner(self, row: Any) -> str:
        return str(row.hold.node.organization)

    @display(description="status", ordering="status", label={**STATUS_COLOURS, "expired": "default"})
    def state(self, row: Any) -> str:
        return str(row.status)

    @display(description="kept for")
    def kept_for(self, row: Any) -> str:
        return ", ".join(row.audience_names) or "the platform alone"

    @display(description="units")
    def units(self, row: Any) -> str:
        count, released = len(row.unit_addresses), len(row.released_addresses)
        return f"{count}, {released} released" if released else str(count)

    @display(description="starts", ordering="starts_at")
    def starts(self, row: Any) -> Any:
        return row.starts_at

    @display(description="ends", ordering="ends_at", empty_value="open")
    def ends(self, row: Any) -> Any:
        return row.ends_at


@admin.register(Reservation)
class ReservationAdmin(ReservationsListed):
    """Every reservation there was, with its status at this moment."""

    list_display = ("contract", "state", "node", "owner", "kept_for", "units", "starts", "ends", "created_at")
    list_filter = (
        StatusFilter,
        ("hold__node", AutocompleteSelectFilter),
        ("hold__audience", AutocompleteSelectFilter),
        ("managers", AutocompleteSelectFilter),
        ("contract_ref", FieldTextFilter),
        ("starts_at", TimeRangeFilter),
        ("ends_at", TimeRangeFilter),
    )
    inlines = (AnnouncementInline,)
    readonly_fields = ("status_now", "decide", "units_now", "kept_for", "managed_by", "pinned_to")
    fields = (
        "status_now",
        "decide",
        "hold",
        "contract_ref",
        "reason",
        "kept_for",
        "managed_by",
        "units_now",
        "starts_at",
        "ends_at",
        "cancelled_at",
        "pinned_to",
        "pinned_at",
        "created_by",
        "created_at",
        "updated_at",
    )

    def get_urls(self) -> list[URLPattern]:
        pages = ReviewPages(self)
        queue = ReviewQueue(self.model, self.admin_site)
        return [
            path("review/", self.page(queue.changelist_view), name="reservations_reservation_queue"),
            path("<uuid:pk>/review/", self.page(pages.show), name="reservations_reservation_review"),
            path(
                "<uuid:pk>/review/confirm/",
                self.page(pages.confirm, action=ACTION),
                name="reservations_reservation_confirm",
            ),
            *super().get_urls(),
        ]

    @display(description="contract", ordering="contract_ref")
    def contract(self, row: Any) -> str:
        return row.contract_ref or f"…{str(row.pk)[-12:]}"

    @display(description="status")
    def status_now(self, row: Any) -> str:
        return str(row.status)

    @display(description="decide")
    def decide(self, row: Any) -> str:
        text = "Look at it and change it" if row.status in Status.LIVE else "Look at its units"
        return format_html('<a class="text-link" href="{}">{}</a>', review_url(row.pk), text)

    @display(description="units")
    def units_now(self, row: Any) -> str:
        released = set(row.released_addresses)
        return ", ".join(
            f"{address} (released)" if address in released else address for address in row.unit_addresses
        )

    @display(description="managed by")
    def managed_by(self, row: Any) -> str:
        return ", ".join(row.managers.order_by("name").values_list("name", flat=True)) or "nobody"

    @display(description="pinned to")
    def pinned_to(self, row: Any) -> str:
        return f"generation {row.hold.topology_gen}; the node is at {row.hold.node.topology_gen}"


class QueueList(DeclaredList):
    """The queue's rows lead to where they are decided on."""

    def url_for_result(self, result: Any) -> str:
        return review_url(result.pk)


class ReviewQueue(ReservationsListed):
    """Reservations whose node changed since they were pinned, the longest waiting first."""

    list_display = (
        "contract",
        "node",
        "owner",
        "kept_for",
        "units",
        "waiting_since",
        "cause",
        "starts",
        "ends",
    )
    list_filter = (
        ("hold__node", AutocompleteSelectFilter),
        ("hold__audience", AutocompleteSelectFilter),
    )
    ordering = ("since", "pk")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[DeclaredList]:
        return QueueList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        first = TopologyGeneration.objects.filter(
            node=OuterRef("hold__node"), number__gt=OuterRef("hold__topology_gen")
        ).order_by("number")
        return (
            super()
            .get_queryset(request)
            .filter(status=Status.NEEDS_REVIEW)
            .annotate(since=Subquery(first.values("at")[:1]), first_cause=Subquery(first.values("cause")[:1]))
        )

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The queue."""
        answer: HttpResponse = super().changelist_view(
            request,
            {"title": "Needs review", "opts": titled(self.opts, "Needs review"), **(extra_context or {})},
        )
        return answer

    @display(description="contract", ordering="contract_ref")
    def contract(self, row: Any) -> str:
        return row.contract_ref or f"…{str(row.pk)[-12:]}"

    @display(description="waiting since", ordering="since")
    def waiting_since(self, row: Any) -> Any:
        return row.since

    @display(description="what changed first")
    def cause(self, row: Any) -> str:
        return str(row.first_cause or "")


@admin.register(Announcement)
class AnnouncementAdmin(FactsAdmin):
    """Steps that the clock or the hardware took, each announced once."""

    read_action = "reservation.read"
    list_display = ("occurred_at", "event", "reservation_link", "node", "key", "announced_at")
    list_display_links = ("occurred_at",)
    list_filter = (
        ("reservation__hold__node", AutocompleteSelectFilter),
        ("occurred_at", TimeRangeFilter),
    )
    list_select_related = ("reservation__hold__node",)
    search_fields = ("event", "reservation__contract_ref", "reservation__hold__node__hostname")
    id_fields = ("pk", "reservation", "reservation__hold__node")

    @display(description="reservation", ordering="reservation__contract_ref")
    def reservation_link(self, row: Any) -> str:
        text = row.reservation.contract_ref or f"…{str(row.reservation_id)[-12:]}"
        return link("reservations_reservation", row.reservation_id, text)

    @display(description="node", ordering="reservation__hold__node__hostname")
    def node(self, row: Any) -> str:
        return str(row.reservation.hold.node)


@admin.register(ReservationManager)
class ReservationManagerAdmin(FactsAdmin):
    """Organizations that may release and reclaim on an owner's behalf."""

    read_action = "reservation.read"
    list_display = ("organization", "contract", "node")
    list_filter = (("organization", AutocompleteSelectFilter),)
    list_select_related = ("organization", "reservation__hold__node")
    search_fields = ("organization__name", "reservation__contract_ref", "reservation__hold__node__hostname")
    ordering = ("-id",)
    id_fields = ("reservation", "organization", "reservation__hold__node")

    @display(description="contract", ordering="reservation__contract_ref")
    def contract(self, row: Any) -> str:
        return row.reservation.contract_ref or str(row.reservation_id)

    @display(description="node", ordering="reservation__hold__node__hostname")
    def node(self, row: Any) -> str:
        return str(row.reservation.hold.node)
