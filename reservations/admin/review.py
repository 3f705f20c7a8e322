"""The review screen: a reservation's facts, the choices, and each choice's effect before it is made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse

from openrelay.console.base import FactsAdmin, titled
from openrelay.console.caller import caller_of, decider
from openrelay.console.forms import ReasonForm
from openrelay.core.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from openrelay.identity.models import Organization
from reservations.admin.forms import AudienceForm, EndForm, PlainForm, ShownForm
from reservations.services import amending, effects
from reservations.services.amending import Changes, Shown
from reservations.services.review import Review, review

ACTION = "reservation.manage"
# How many organizations the field for adding offers by itself; any other can be typed.
OFFERED = 300

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing an operator can do: how it is asked for, what it would do, what does it."""

    name: str
    title: str
    verb: str
    done: str
    dangerous: bool
    form: Callable[[Review, Any], forms.Form]
    effects: Callable[[Review, Fields], list[str]]
    changes: Callable[[Review, Fields], Changes | None]  # None: it cancels


def _audience_changes(shown: Review, data: Fields) -> Changes:
    removed = {org.pk for org in data["remove"]}
    stay = [str(org.pk) for org in shown.audience if org.pk not in removed]
    return Changes(allowed_org_ids=[*stay, *(str(org.pk) for org in data["add"])])


CHOICES = {
    choice.name: choice
    for choice in (
        Choice(
            name="reaffirm",
            title="Re-affirm",
            verb="Re-affirm the reservation",
            done="Re-affirmed: the reservation is pinned to the node as it is now.",
            dangerous=False,
            form=lambda _shown, data: PlainForm(data),
            effects=lambda shown, _data: effects.of_reaffirming(shown),
            changes=lambda _shown, _data: Changes(reaffirm=True),
        ),
        Choice(
            name="audience",
            title="Amend the audience",
            verb="Change the audience",
            done="The audience is changed.",
            dangerous=False,
            form=lambda shown, data: AudienceForm(data, audience=shown.audience),
            effects=lambda shown, data: effects.of_audience(shown, data["add"], list(data["remove"])),
            changes=_audience_changes,
        ),
        Choice(
            name="end",
            title="End at a time",
            verb="Change the end",
            done="The end is changed.",
            dangerous=False,
            form=lambda _shown, data: EndForm(data),
            effects=lambda shown, data: effects.of_ending(shown, data["ends_at"]),
            changes=lambda _shown, data: Changes(set_end=True, ends_at=data["ends_at"]),
        ),
        Choice(
            name="cancel",
            title="Cancel now",
            verb="Cancel the reservation",
            done="Cancelled: the reservation is over.",
            dangerous=True,
            form=lambda _shown, data: PlainForm(data),
            effects=lambda shown, _data: effects.of_cancelling(shown),
            changes=lambda _shown, _data: None,
        ),
    )
}


class ReviewPages:
    """The page of one reservation, and the one on which a choice is confirmed."""

    def __init__(self, model_admin: FactsAdmin) -> None:
        self.model_admin = model_admin

    def show(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """The reservation as it is, beside the node as it is, and the choices."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        try:
            shown = review(pk)
        except NotFound:
            return self._missing(request)
        return self._page(request, shown)

    def confirm(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """GET: what a choice would do, in words. POST: do it, and return to the reservation."""
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        data = request.POST if request.method == "POST" else request.GET
        try:
            shown = review(pk)
        except NotFound:
            return self._missing(request)
        choice = CHOICES.get(data.get("choice", ""))
        given = ShownForm(data)
        if choice is None or not given.is_valid():
            return self._page(request, shown, error=Invalid("Choose one of the things below."))
        if shown.ended:
            return self._page(request, shown)
        form = choice.form(shown, data)
        if not form.is_valid():
            told = [str(message) for messages in form.errors.values() for message in messages]
            return self._page(request, shown, error=Invalid(" ".join(told)), bound={choice.name: form})
        basis = Shown(
            generation=given.cleaned_data["generation"], updated_at=given.cleaned_data["updated_at"]
        )
        if request.method == "POST":
            reason = ReasonForm(request.POST)
            if reason.is_valid():
                return self._decide(
                    request, shown, choice, form.cleaned_data, basis, reason.cleaned_data["reason"]
                )
        else:
            reason = ReasonForm()
        if basis != shown.shown:
            return self._page(request, shown, error=Conflict(_stale(shown, basis)))
        return self._confirmation(request, shown, choice, form, reason, data)

    def _decide(
        self, request: HttpRequest, shown: Review, choice: Choice, data: Fields, basis: Shown, reason: str
    ) -> HttpResponse:
        try:
            pk = shown.reservation.pk
            with decider(request, ACTION, target_type="reservation", target_id=pk) as caller:
                changes = choice.changes(shown, data)
                found: dict[str, Any] = {
                    "caller": caller,
                    "node_id": shown.node.pk,
                    "reservation_id": pk,
                    "reason": reason,
                    "shown": basis,
                }
                if changes is None:
                    amending.cancel(**found)
                else:
                    amending.amend(**found, changes=changes)
        except ApiError as error:
            # Drawn from a look taken after the refusal, so that it shows what stood in the way.
            return self._page(request, review(shown.reservation.pk), error=error, reason=reason)
        messages.success(request, choice.done)
        return HttpResponseRedirect(self._url("review", shown))

    def _page(
        self,
        request: HttpRequest,
        shown: Review,
        *,
        error: ApiError | None = None,
        bound: dict[str, forms.Form] | None = None,
        reason: str = "",
    ) -> HttpResponse:
        refused = _why_not(request)
        choices = [
            (choice, (bound or {}).get(choice.name) or choice.form(shown, None))
            for choice in CHOICES.values()
            if choice.name != "reaffirm" or shown.in_review
        ]
        context = {
            "title": shown.reservation.contract_ref or f"Reservation …{str(shown.reservation.pk)[-12:]}",
            "review": shown,
            "error": error,
            "reason_given": reason,
            "refused": refused,
            "choices": [] if shown.ended or refused else choices,
            "offered": _offered(shown) if not shown.ended and not refused else (),
            "confirm_url": self._url("confirm", shown),
        }
        return self._render(request, "reservations/review.html", context, error.status if error else 200)

    def _confirmation(
        self,
        request: HttpRequest,
        shown: Review,
        choice: Choice,
        form: forms.Form,
        reason: ReasonForm,
        data: QueryDict,
    ) -> HttpResponse:
        if refused := _why_not(request):
            return self._page(request, shown, error=Forbidden(refused))
        if choice.name == "reaffirm" and (shown.obstacles or not shown.in_review):
            why = "; ".join(shown.obstacles) or "it does not need review"
            return self._page(
                request, shown, error=Conflict(f"The reservation cannot be re-affirmed: {why}.")
            )
        carried = [
            (name, value)
            for name in ("add", "remove", "ends_at", "no_end")
            if name in form.fields
            for value in data.getlist(name)
        ]
        context = {
            "title": choice.title,
            "review": shown,
            "choice": choice,
            "effects": choice.effects(shown, form.cleaned_data),
            "carried": carried,
            "reason": reason,
            "back_url": self._url("review", shown),
        }
        return self._render(request, "reservations/confirm.html", context, 400 if reason.errors else 200)

    def _render(
        self, request: HttpRequest, template: str, context: dict[str, Any], status: int
    ) -> HttpResponse:
        context = {
            **self.model_admin.admin_site.each_context(request),
            "opts": titled(self.model_admin.opts, context["title"]),
            "queue_url": reverse("admin:reservations_reservation_queue"),
            **context,
        }
        return TemplateResponse(request, template, context, status=status)

    def _missing(self, request: HttpRequest) -> HttpResponse:
        messages.error(request, "There is no such reservation.")
        return HttpResponseRedirect(reverse("admin:reservations_reservation_queue"))

    def _url(self, page: str, shown: Review) -> str:
        return reverse(f"admin:reservations_reservation_{page}", args=[shown.reservation.pk])


def _why_not(request: HttpRequest) -> str:
    """Why this operator cannot decide, as a sentence; empty when they can."""
    try:
        caller_of(request).require(ACTION)
    except ApiError as error:
        return error.message
    return ""


def _stale(shown: Review, basis: Shown) -> str:
    if basis.generation != shown.node.topology_gen:
        return (
            f"The node changed meanwhile: you chose at topology generation {basis.generation}, and it is now "
            f"{shown.node.topology_gen}. Nothing was done. This page shows it as it is now."
        )
    return "The reservation was changed meanwhile. Nothing was done. This page shows it as it is now."


def _offered(shown: Review) -> list[Organization]:
    """Organizations that the field for adding completes, by name."""
    there = [org.pk for org in shown.audience]
    able = Organization.objects.live().filter(reservations_enabled=True).exclude(pk__in=there)
    return list(able.order_by("name", "pk")[:OFFERED])
