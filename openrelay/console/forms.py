"""The console's sign-in form."""

from django import forms
from django.contrib.auth.base_user import AbstractBaseUser
from unfold.forms import AuthenticationForm


class OperatorLoginForm(AuthenticationForm):  # type: ignore[misc]
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
