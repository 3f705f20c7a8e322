"""Which passwords are taken, beside what Django's validators refuse."""

from typing import Any, Final

from django.core.exceptions import ValidationError

_DIFFERENT_AT_LEAST: Final = 5


class DifferentCharactersValidator:
    """Refuses a password of very few different characters, such as one that repeats itself."""

    def validate(self, password: str, user: Any = None) -> None:
        """Raise ValidationError for too few different characters."""
        if len(set(password)) < _DIFFERENT_AT_LEAST:
            raise ValidationError(
                f"This password has fewer than {_DIFFERENT_AT_LEAST} different characters.",
                code="too_few_different",
            )

    def get_help_text(self) -> str:
        """The rule, for people."""
        return f"Your password must have at least {_DIFFERENT_AT_LEAST} different characters."
