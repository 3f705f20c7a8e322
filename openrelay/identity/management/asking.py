"""Asking for a person's password on the command line."""

import getpass
import os
import sys

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from openrelay.identity.models import User


def ask_password(person: User) -> str:
    """A password for the person: OPENRELAY_USER_PASSWORD, or what is typed at the terminal.

    Raises CommandError without a terminal, and for a password that the validators refuse.
    """
    password = os.environ.get("OPENRELAY_USER_PASSWORD")
    if password is None:
        if not sys.stdin or not sys.stdin.isatty():
            raise CommandError(
                "There is no terminal to ask for the password. Set OPENRELAY_USER_PASSWORD, or see --help."
            )
        password = getpass.getpass("Password: ")
    try:
        validate_password(password, person)
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from error
    return password
