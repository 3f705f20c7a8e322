"""What operators decide about people in the console: another role, the end of a membership or a session."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html_join

from openrelay.console.base import FactsAdmin
from openrelay.console.deciding import Decision, decide
from openrelay.console.forms import ReasonForm
from openrelay.core import clock
from openrelay.core.clock import Now
from openrelay.identity.caller import Caller
from openrelay.identity.models import ApiKey, Membership, Role, SessionToken
from openrelay.identity.permissions import BUILTIN_ROLES
from openrelay.identity.roles import builtin
from openrelay.identity.services.memberships import (
    OPERATORS_ACTION,
    change_role_as_operator,
    remove_member_as_operator,
)
from openrelay.identity.services.sessions import revoke_session_as_operator

_KEPT = "The audit log keeps who did it, and why."
_EVERYTHING = [role.id for role in BUILTIN_ROLES.values() if role.everything]


class RoleForm(ReasonForm):
    """Which role, and why."""

    role = forms.ChoiceField(label="New role", widget=forms.Select(attrs={"class": "or-input"}))
    field_order = ("role", "reason")

    def __init__(self, place: Membership, data: Any = None) -> None:
        super().__init__(data)
        own = Role.objects.of_organization(place.organization_id)
        roles = [(role.id, role.name) for role in BUILTIN_ROLES.values()]
        roles += [(str(role.pk), f"{role.name} (made by the organization)") for role in own]
        choice: forms.ChoiceField = self.fields["role"]  # type: ignore[assignment]
        choice.choices = [("", "Choose one"), *(role for role in roles if role[0] != place.role_id)]


def links_to(pages: dict[str, str], pk: object) -> str:
    """Links to an object's pages: names of urls, each with what to call it."""
    urls = ((reverse(f"admin:{name}", args=[pk]), text) for name, text in pages.items())
    return format_html_join(" · ", '<a class="text-link" href="{}">{}</a>', urls)


def pages_of(
    admin: FactsAdmin,
    views: dict[str, Callable[..., HttpResponse]],
    target: Callable[[UUID], tuple[str, object]],
    action: str = OPERATORS_ACTION,
) -> list[URLPattern]:
    """Urls of pages of one object each that need `action`: `<pk>/<page>/`, named "app_model_page".

    A refused change is noted in the audit log on `target`, a type and an id.
    """
    label = f"{admin.opts.app_label}_{admin.opts.model_name}"
    return [
        path(
            f"<uuid:pk>/{page}/",
            admin.page(view, action=action, target=target),
            name=f"{label}_{page}",
        )
        for page, view in views.items()
    ]


class MembershipDecisions:
    """The pages of a membership: another role, and its end."""

    PAGES = {
        "identity_membership_role": "Give another role",
        "identity_membership_remove": "Remove from the organization",
    }

    def __init__(self, admin: FactsAdmin) -> None:
        self.admin = admin

    def urls(self) -> list[URLPattern]:
        return pages_of(self.admin, {"role": self.role, "remove": self.remove}, _member)

    def role(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Another role for a member."""
        place = _place(pk)
        if place is None:
            return _missing(request, "membership", "identity_membership")

        def take(caller: Caller, fields: dict[str, Any]) -> None:
            change_role_as_operator(
                caller=caller, membership_id=pk, role=fields["role"], reason=fields["reason"]
            )

        here = reverse("admin:identity_membership_change", args=[pk])
        decision = Decision(
            title="Change role",
            question=f"Give {place.user} another role in {place.organization}?",
            effects=(
                f"They are {_role_name(place)} now. What the new role gives and takes counts from their next "
                "request on.",
                *_keys(place, "cut to the new role just as fast"),
                *_left_without(place),
                _KEPT,
            ),
            verb="Change the role",
            action=OPERATORS_ACTION,
            target_type="member",
            target_id=place.user_id,
            take=take,
            done=f"{place.user} has the new role.",
            back_url=here,
            done_url=here,
        )
        return decide(request, self.admin, decision, RoleForm(place, _data(request)))

    def remove(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """The end of a membership."""
        place = _place(pk)
        if place is None:
            return _missing(request, "membership", "identity_membership")

        def take(caller: Caller, fields: dict[str, Any]) -> None:
            remove_member_as_operator(caller=caller, membership_id=pk, reason=fields["reason"])

        sessions = SessionToken.objects.filter(
            user=place.user_id, organization=place.organization_id, revoked_at=None, expires_at__gt=Now()
        ).count()
        decision = Decision(
            title="Remove member",
            question=f"Remove {place.user} from {place.organization}?",
            effects=(
                "From their next request on they may do nothing there.",
                *_keys(place, "refused whatever is asked by them"),
                f"{sessions} of their sessions there {'ends' if sessions == 1 else 'end'}.",
                *(["This console closes for them."] if place.organization.is_platform_ops else []),
                *_left_without(place),
                "What they made or started stays.",
                _KEPT,
            ),
            verb="Remove",
            action=OPERATORS_ACTION,
            target_type="member",
            target_id=place.user_id,
            take=take,
            done=f"{place.user} is no longer a member of {place.organization}.",
            back_url=reverse("admin:identity_membership_change", args=[pk]),
            done_url=reverse("admin:identity_membership_changelist"),
        )
        return decide(request, self.admin, decision, ReasonForm(_data(request)))


class SessionDecisions:
    """The page of a session: its end."""

    PAGES = {"identity_sessiontoken_end": "End this session"}

    def __init__(self, admin: FactsAdmin) -> None:
        self.admin = admin

    def urls(self) -> list[URLPattern]:
        return pages_of(self.admin, {"end": self.end}, lambda pk: ("session", pk))

    def end(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """The end of a session."""
        session = SessionToken.objects.select_related("user", "organization").filter(pk=pk).first()
        if session is None:
            return _missing(request, "session", "identity_sessiontoken")

        def take(caller: Caller, fields: dict[str, Any]) -> None:
            revoke_session_as_operator(caller=caller, session_id=pk, reason=fields["reason"])

        over = session.revoked_at is not None or session.expires_at <= clock.read()
        here = reverse("admin:identity_sessiontoken_change", args=[pk])
        decision = Decision(
            title="End session",
            question=(
                f"This session of {session.user} is over already."
                if over
                else f"End this session of {session.user} in {session.organization}?"
            ),
            effects=()
            if over
            else (
                "Its token is refused from now on, whoever has it.",
                f"{session.user} stays a member, and other sessions and keys of theirs go on.",
                _KEPT,
            ),
            verb="End the session",
            action=OPERATORS_ACTION,
            target_type="session",
            target_id=pk,
            take=take,
            done="The session has ended.",
            back_url=here,
            done_url=here,
        )
        return decide(request, self.admin, decision, ReasonForm(_data(request)))


def _data(request: HttpRequest) -> Any:
    return request.POST if request.method == "POST" else None


def _place(pk: UUID) -> Membership | None:
    found: Membership | None = (
        Membership.objects.select_related("user", "organization", "custom_role").filter(pk=pk).first()
    )
    return found


def _member(pk: UUID) -> tuple[str, object]:
    """The target on which a refused decision on a membership is noted: the member, where there is one."""
    place = _place(pk)
    return "member", place.user_id if place else pk


def _missing(request: HttpRequest, what: str, model: str) -> HttpResponse:
    messages.error(request, f"There is no such {what}.")
    return HttpResponseRedirect(reverse(f"admin:{model}_changelist"))


def _role_name(place: Membership) -> str:
    return place.custom_role.name if place.custom_role else builtin(place.role).name


def _keys(place: Membership, fate: str) -> list[str]:
    """What becomes of the live keys that the person made there."""
    alive = Q(expires_at=None) | Q(expires_at__gt=Now())
    number = ApiKey.objects.filter(
        alive, organization=place.organization_id, created_by=place.user_id, revoked_at=None
    ).count()
    if not number:
        return []
    keys = "key that they made there is" if number == 1 else "keys that they made there are"
    return [f"{number} API {keys} {fate}."]


def _left_without(place: Membership) -> list[str]:
    """A warning when nobody else there holds everything."""
    holders = Membership.objects.joined().filter(
        organization=place.organization_id, role__in=_EVERYTHING, user__is_active=True
    )
    if place.role not in _EVERYTHING or holders.exclude(pk=place.pk).exists():
        return []
    return [f"Nobody else in {place.organization} is owner or admin."]
