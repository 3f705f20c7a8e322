"""The console's sign-in form, and what every decision asks for."""

from typing import Any

from django import forms
from django.contrib.auth.base_user import AbstractBaseUser
from django.views.decorators.debug import sensitive_variables
from unfold.forms import AuthenticationForm

from openrelay.console.attempts import Attempt, begin, refused
from openrelay.core.errors import TooManyRequests
from openrelay.core.text import fault_of_text
from openrelay.identity.models import User


class OperatorLoginForm(AuthenticationForm):
    """Lets in active members of the platform ops organization, and tells others why not.

    `limited` is what refused an attempt that was one too many.
    """

    error_messages = {
        "invalid_login": "This email address and password do not go together. Mind upper and lower case.",
        "inactive": "This account is not active. Ask another operator.",
        "not_operator": "The console is for the platform's operators, and this account is not one of them.",
        "address": "Your role may not be used from this address. Sign in from one of its address ranges.",
    }
    limited: TooManyRequests | None = None

    @property
    def attempt(self) -> Attempt:
        """The attempt that this form makes."""
        return Attempt(
            name=self.cleaned_data["username"],
            source_ip=getattr(self.request, "source_ip", ""),
            request_id=getattr(self.request, "request_id", ""),
        )

    @sensitive_variables()
    def clean(self) -> dict[str, Any]:
        """Whether name and password let in. Raises ValidationError, which is noted in the audit log."""
        if not self.cleaned_data.get("username") or not self.cleaned_data.get("password"):
            return self.cleaned_data
        try:
            begin(self.attempt)
        except TooManyRequests as refusal:
            self.limited = refusal
            raise forms.ValidationError(refusal.message, code="limited") from refusal
        try:
            return super().clean()
        except forms.ValidationError as refusal:
            refused(self.attempt, refusal.code or "invalid")
            raise

    def confirm_login_allowed(self, user: AbstractBaseUser) -> None:
        """Raise ValidationError for someone whose password is right and who does not belong here."""
        if not user.is_active:
            raise forms.ValidationError(self.error_messages["inactive"], code="inactive")
        if not isinstance(user, User) or not user.is_staff:
            raise forms.ValidationError(self.error_messages["not_operator"], code="not_operator")
        if not user.console_opens_from(self.attempt.source_ip):
            raise forms.ValidationError(self.error_messages["address"], code="address")


class ReasonForm(forms.Form):
    """Why: the audit log keeps it."""

    reason = forms.CharField(
        max_length=500,
        label="Reason",
        help_text="Kept in the audit log.",
        widget=forms.Textarea(attrs={"rows": 3, "class": "or-input"}),
        error_messages={"required": "Say why. The audit log keeps it."},
    )

    def clean_reason(self) -> str:
        """Refuse characters that cannot be seen."""
        reason: str = self.cleaned_data["reason"]
        if fault := fault_of_text(reason):
            raise forms.ValidationError(f"The reason {fault}.")
        return reason
