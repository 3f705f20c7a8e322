"""Make a person."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_email

from openrelay.audit.actor import OPERATOR
from openrelay.core.errors import ApiError
from openrelay.identity.management.asking import ask_password
from openrelay.identity.models import User
from openrelay.identity.services.users import create_user


class Command(BaseCommand):
    help = (
        "Make a person and print their id. The password is asked for, or read from OPENRELAY_USER_PASSWORD."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--full-name", default="")
        parser.add_argument("--no-password", action="store_true", help="no sign-in to the console")

    def handle(self, *args: Any, **options: Any) -> None:
        password = None
        try:
            validate_email(options["email"])
            if not options["no_password"]:
                password = ask_password(User(email=options["email"], full_name=options["full_name"]))
            user = create_user(
                actor=OPERATOR, email=options["email"], password=password, full_name=options["full_name"]
            )
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        except ApiError as error:
            raise CommandError(error.message) from error
        self.stdout.write(str(user.id))
