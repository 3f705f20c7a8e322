"""Organizations, people, memberships, keys and sessions, to look at and to decide on."""

from typing import Any

from django.contrib import admin
from django.contrib.auth import admin as _auth_admin  # noqa: F401  (registers Group, before it is taken off)
from django.contrib.auth.models import Group
from django.db.models import Case, Count, Q, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from unfold.contrib.filters.admin import AutocompleteSelectFilter, BooleanRadioFilter
from unfold.decorators import display

from openrelay.console.base import STATUS_COLOURS, FactsAdmin, FactsInline, LookupFilter
from openrelay.core.clock import Now
from openrelay.core.ids import parse_id
from openrelay.identity.accounts import ACTIVE, BALANCE_DEPLETED, BALANCE_LOW, SUSPENDED
from openrelay.identity.admin_decisions import MembershipDecisions, SessionDecisions, links_to
from openrelay.identity.models import ApiKey, Membership, Organization, Role, SessionToken, User
from openrelay.identity.permissions import BUILTIN_ROLES
from openrelay.identity.roles import builtin
from openrelay.identity.services.memberships import OPERATORS_ACTION

# Nobody is in a group of Django's: roles say who may do what.
admin.site.unregister(Group)


class RoleFilter(LookupFilter):
    """Members by role."""

    title = "role"
    parameter_name = "role"
    choices_from = tuple((role.id, role.name) for role in BUILTIN_ROLES.values())


class LifeFilter(LookupFilter):
    """Keys and sessions by whether they still open anything."""

    title = "state"
    parameter_name = "life"
    choices_from = (("active", "active"), ("expired", "expired"), ("revoked", "revoked"))


class DeletedFilter(LookupFilter):
    """Organizations by whether they were deleted."""

    title = "deleted"
    parameter_name = "deleted"
    field = "deleted_at__isnull"
    choices_from = (("False", "deleted"), ("True", "not deleted"))


DELETED = "deleted"
_ACCOUNT_COLOURS = {
    ACTIVE: "success",
    BALANCE_LOW.replace("_", " "): "warning",
    BALANCE_DEPLETED.replace("_", " "): "danger",
    SUSPENDED: "danger",
    DELETED: "danger",
}


def with_life(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Annotate `life`: "active", "expired" or "revoked" now; of a deleted organization all are revoked."""
    return rows.annotate(
        life=Case(
            When(
                Q(revoked_at__isnull=False) | Q(organization__deleted_at__isnull=False), then=Value("revoked")
            ),
            When(expires_at__lte=Now(), then=Value("expired")),
            default=Value("active"),
        )
    )


def _held(row: Any) -> str:
    """The role of a membership that came with its `custom_role`, by name."""
    return str(row.custom_role) if row.custom_role else builtin(row.role).name


class MembershipInline(FactsInline):
    """The members of an organization, or the organizations of a person."""

    model = Membership
    fields = ("user", "organization", "held", "joined_at")
    readonly_fields = ("held",)
    ordering = ("organization__name", "user__email")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("user", "organization", "custom_role")

    @display(description="role")
    def held(self, row: Any) -> str:
        return _held(row)


@admin.register(Organization)
class OrganizationAdmin(FactsAdmin):
    """Tenants."""

    read_action = "org.read"
    list_display = (
        "name",
        "slug",
        "state",
        "member_count",
        "key_count",
        "is_provider",
        "reservations_enabled",
        "created_at",
    )
    list_filter = (
        DeletedFilter,
        ("is_platform_ops", BooleanRadioFilter),
        ("is_provider", BooleanRadioFilter),
        ("reservations_enabled", BooleanRadioFilter),
    )
    search_fields = ("name", "slug", "short_id", "billing_email")
    ordering = ("name", "id")
    inlines = (MembershipInline,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.annotate(
            member_total=Count("memberships", filter=Q(memberships__joined_at__isnull=False), distinct=True),
            key_total=Count("api_keys", filter=Q(api_keys__revoked_at=None, deleted_at=None), distinct=True),
        )

    @display(description="state", label=_ACCOUNT_COLOURS)
    def state(self, row: Any) -> str:
        return DELETED if row.deleted_at else str(row.account_status).replace("_", " ")

    @display(description="members", ordering="member_total")
    def member_count(self, row: Any) -> int:
        return int(row.member_total)

    @display(description="live keys", ordering="key_total")
    def key_count(self, row: Any) -> int:
        return int(row.key_total)


@admin.register(User)
class UserAdmin(FactsAdmin):
    """People."""

    read_action = "member.read"
    list_display = ("email", "full_name", "organization_count", "is_active", "last_login", "created_at")
    list_filter = (("is_active", BooleanRadioFilter),)
    search_fields = ("email", "full_name")
    ordering = ("email",)
    exclude = ("password",)
    inlines = (MembershipInline,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.annotate(
            organization_total=Count("memberships", filter=Q(memberships__joined_at__isnull=False))
        )

    @display(description="organizations", ordering="organization_total")
    def organization_count(self, row: Any) -> int:
        return int(row.organization_total)


@admin.register(Membership)
class MembershipAdmin(FactsAdmin):
    """Who is in which organization, as what."""

    read_action = "member.read"
    readonly_fields = ("decide",)
    fields_for_action = {"decide": OPERATORS_ACTION}
    list_display = ("user", "organization", "held", "invited_at", "joined_at")
    list_filter = (("organization", AutocompleteSelectFilter), RoleFilter)
    list_select_related = ("user", "organization", "custom_role")
    search_fields = ("user__email", "user__full_name", "organization__name")
    ordering = ("organization__name", "user__email")
    id_fields = ("pk", "user", "organization", "custom_role")

    def get_urls(self) -> list[URLPattern]:
        return [*MembershipDecisions(self).urls(), *super().get_urls()]

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """What was done to a member the audit log has of the person."""
        wanted = parse_id(object_id)
        place = Membership.objects.filter(pk=wanted).first() if wanted else None
        return super().history_view(request, str(place.user_id) if place else object_id, extra_context)

    @display(description="role", ordering="role")
    def held(self, row: Any) -> str:
        return _held(row)

    @display(description="decide")
    def decide(self, row: Any) -> str:
        return links_to(MembershipDecisions.PAGES, row.pk)


@admin.register(Role)
class RoleAdmin(FactsAdmin):
    """Roles that organizations made for themselves."""

    read_action = "role.read"
    list_display = ("name", "organization", "member_count", "permission_count", "updated_at", "created_at")
    list_filter = (("organization", AutocompleteSelectFilter),)
    list_select_related = ("organization",)
    search_fields = ("name", "organization__name", "description")
    ordering = ("organization__name", "name", "id")
    id_fields = ("pk", "organization", "created_by", "updated_by")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.annotate(member_total=Count("memberships"))

    @display(description="members", ordering="member_total")
    def member_count(self, row: Any) -> int:
        return int(row.member_total)

    @display(description="permissions")
    def permission_count(self, row: Any) -> int:
        return len(row.permissions)


@admin.register(ApiKey)
class ApiKeyAdmin(FactsAdmin):
    """API keys; their secrets are not stored."""

    read_action = "apikey.read"
    list_display = (
        "name",
        "prefix",
        "organization",
        "state",
        "created_by",
        "last_used_at",
        "expires_at",
        "created_at",
    )
    list_filter = (("organization", AutocompleteSelectFilter), LifeFilter)
    list_select_related = ("organization", "created_by")
    search_fields = ("name", "prefix", "organization__name", "created_by__email")
    ordering = ("-created_at", "-id")
    id_fields = ("pk", "organization", "created_by")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_life(super().get_queryset(request))

    @display(description="state", label={**STATUS_COLOURS, "expired": "warning"})
    def state(self, row: Any) -> str:
        return str(row.life)


@admin.register(SessionToken)
class SessionTokenAdmin(FactsAdmin):
    """Sessions of people at the API."""

    read_action = "member.read"
    readonly_fields = ("decide",)
    fields_for_action = {"decide": OPERATORS_ACTION}
    list_display = ("user", "organization", "state", "created_at", "expires_at")
    list_filter = (("organization", AutocompleteSelectFilter), LifeFilter)
    list_select_related = ("user", "organization")
    search_fields = ("user__email", "organization__name")
    ordering = ("-created_at", "-id")
    id_fields = ("pk", "user", "organization")

    def get_urls(self) -> list[URLPattern]:
        return [*SessionDecisions(self).urls(), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_life(super().get_queryset(request))

    @display(description="state", label={**STATUS_COLOURS, "expired": "warning"})
    def state(self, row: Any) -> str:
        return str(row.life)

    @display(description="decide")
    def decide(self, row: Any) -> str:
        return "over" if row.life != "active" else links_to(SessionDecisions.PAGES, row.pk)
