"""The page between an operator's wish and the service that fulfils it: what will happen, and the reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.debug import sensitive_variables

from openrelay.console.base import titled
from openrelay.console.caller import decider
from openrelay.core.errors import ApiError
from openrelay.identity.caller import Caller

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One thing to decide on: how it is put to the operator, what it takes, and the service that does it.

    `take` gets the caller and the form's fields. `target_type` and `target_id` are what a refusal is noted
    on. Without `effects` there is nothing to decide, and `question` says why.

    A secret that `take` returns is shown once, on the page that answers, and kept nowhere.
    """

    title: str
    question: str
    effects: Sequence[str]
    verb: str
    action: str
    target_type: str
    target_id: object
    take: Callable[[Caller, Fields], str | None]
    done: str
    back_url: str
    done_url: str


@sensitive_variables("secret")
def decide(request: HttpRequest, shown_by: ModelAdmin, decision: Decision, form: forms.Form) -> HttpResponse:
    """GET: what would happen, and the form that asks for the reason. POST: do it, or say why not."""
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    error: ApiError | None = None
    if decision.effects and form.is_valid():
        try:
            with decider(
                request, decision.action, target_type=decision.target_type, target_id=decision.target_id
            ) as caller:
                secret = decision.take(caller, form.cleaned_data)
        except ApiError as refusal:
            error = refusal
        else:
            if secret is not None:
                return _shown_once(request, shown_by, decision, secret)
            messages.success(request, decision.done)
            return HttpResponseRedirect(decision.done_url)
    context = {
        **shown_by.admin_site.each_context(request),
        "opts": titled(shown_by.opts, decision.title),
        "title": decision.title,
        "decision": decision,
        "form": form,
        "error": error,
    }
    status = error.status if error else 400 if form.errors else 200
    return TemplateResponse(request, "console/decide.html", context, status=status)


@sensitive_variables("secret", "context")
def _shown_once(request: HttpRequest, shown_by: ModelAdmin, decision: Decision, secret: str) -> HttpResponse:
    context = {
        **shown_by.admin_site.each_context(request),
        "opts": titled(shown_by.opts, decision.title),
        "title": decision.title,
        "decision": decision,
        "secret": secret,
    }
    response = TemplateResponse(request, "console/shown_once.html", context)
    add_never_cache_headers(response)
    return response
