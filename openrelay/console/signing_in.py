"""The console's sign-in page."""

from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse

from openrelay.console import attempts
from openrelay.console.forms import OperatorLoginForm
from openrelay.identity.models import User


class SignIn(LoginView):
    """`/console/login/`: the admin's own page, with attempts counted and noted."""

    authentication_form = OperatorLoginForm
    template_name = "admin/login.html"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method in ("GET", "HEAD") and admin.site.has_permission(request):
            return HttpResponseRedirect(self.get_default_redirect_url())
        return super().dispatch(request, *args, **kwargs)

    def get_default_redirect_url(self) -> str:
        return reverse("admin:index")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {
            **admin.site.each_context(self.request),
            "title": "Log in",
            "subtitle": None,
            "app_path": self.request.get_full_path(),
            "username": self.request.user.get_username(),
            **super().get_context_data(**kwargs),
        }

    def form_valid(self, form: Any) -> HttpResponse:
        with transaction.atomic():
            answer = super().form_valid(form)
            attempts.succeeded(form.attempt, cast(User, form.get_user()))
        attempts.settle(form.attempt)
        return answer

    def form_invalid(self, form: Any) -> HttpResponse:
        return attempts.said(super().form_invalid(form), form.limited)
