"""Give a person another password."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from openrelay.audit.actor import OPERATOR
from openrelay.core.errors import ApiError
from openrelay.identity.management.asking import ask_password
from openrelay.identity.models import User
from openrelay.identity.services.users import set_password


class Command(BaseCommand):
    help = (
        "Give a person another password for the console, and end their sessions. The password is asked "
        "for, or read from OPENRELAY_USER_PASSWORD."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, **options: Any) -> None:
        person = User.objects.filter(email=options["email"].strip().lower()).first()
        if person is None:
            raise CommandError(f"There is no person with the address {options['email']}.")
        try:
            set_password(actor=OPERATOR, user_id=person.pk, password=ask_password(person))
        except ApiError as error:
            raise CommandError(error.message) from error
