"""The console's sign-in form, and what every decision asks for."""

from django import forms
from django.contrib.auth.base_user import AbstractBaseUser
from unfold.forms import AuthenticationForm


class OperatorLoginForm(AuthenticationForm):
    """Lets in active members of the platform ops organization, and tells others why not."""

    error_messages = {
        "invalid_login": "This email address and password do not go together. Mind upper and lower case.",
        "inactive": "This account is not active. Ask another operator.",
        "not_operator": "The console is for the platform's operators, and this account is not one of them.",
    }

    def confirm_login_allowed(self, user: AbstractBaseUser) -> None:
        """Raise ValidationError for someone whose password is right and who does not belong here."""
        if not user.is_active:
            raise forms.ValidationError(self.error_messages["inactive"], code="inactive")
        if not getattr(user, "is_staff", False):
            raise forms.ValidationError(self.error_messages["not_operator"], code="not_operator")


class ReasonForm(forms.Form):
    """Why: the audit log keeps it."""

    reason = forms.CharField(
        max_length=500,
        label="Reason",
        help_text="Kept in the audit log.",
        widget=forms.Textarea(attrs={"rows": 3, "class": "or-input"}),
        error_messages={"required": "Say why. The audit log keeps it."},
    )
