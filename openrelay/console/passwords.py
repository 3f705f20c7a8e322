"""The page on which operators change their own password."""

from typing import Any, cast

from django import forms
from django.contrib import admin
from django.contrib.auth.views import PasswordChangeView
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse_lazy
from django.views.decorators.debug import sensitive_variables
from unfold.forms import AdminOwnPasswordChangeForm

from openrelay.audit.actor import Actor
from openrelay.console.attempts import Attempt, begin, said, settle
from openrelay.core.errors import TooManyRequests
from openrelay.identity.models import User
from openrelay.identity.services.users import set_password


class OwnPasswordForm(AdminOwnPasswordChangeForm):
    """Takes the old password, whose guesses count as attempts to sign in do, and the new one.

    `limited` is what refused a guess that was one too many.
    """

    limited: TooManyRequests | None = None

    def __init__(self, user: User, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(user, *args, **kwargs)
        self.source_ip = getattr(request, "source_ip", "")
        self.request_id = getattr(request, "request_id", "")

    @sensitive_variables()
    def clean_old_password(self) -> str:
        """The old password, if it is right. Raises ValidationError."""
        attempt = Attempt(name=self.user.email, source_ip=self.source_ip, request_id=self.request_id)
        try:
            begin(attempt)
        except TooManyRequests as refusal:
            self.limited = refusal
            raise forms.ValidationError(refusal.message, code="limited") from refusal
        old: str = super().clean_old_password()
        settle(attempt)
        return old

    def save(self, commit: bool = True) -> User:
        """Set the new password."""
        user = cast(User, self.user)
        set_password(
            actor=Actor(f"user:{user.pk}", self.source_ip, self.request_id),
            user_id=user.pk,
            password=self.cleaned_data["new_password1"],
        )
        user.refresh_from_db(fields=["password"])
        return user


class ChangePassword(PasswordChangeView):
    """`/console/password_change/`: the admin's own page, with the change noted and guesses counted."""

    form_class = OwnPasswordForm
    success_url = reverse_lazy("admin:password_change_done")

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "request": self.request}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**admin.site.each_context(self.request), **super().get_context_data(**kwargs)}

    def form_valid(self, form: Any) -> HttpResponse:
        with transaction.atomic():
            return super().form_valid(form)

    def form_invalid(self, form: Any) -> HttpResponse:
        return said(super().form_invalid(form), form.limited)
