"""Make an organization."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from openrelay.audit.actor import OPERATOR
from openrelay.core.canonical import slug_argument
from openrelay.core.errors import ApiError
from openrelay.identity.services.organizations import create_organization


class Command(BaseCommand):
    help = "Make an organization and print its id."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", type=slug_argument, help="short name, unique, such as acme")
        parser.add_argument("name", help="full name")
        parser.add_argument(
            "--platform-ops", action="store_true", help="the one whose people are the operators"
        )
        parser.add_argument("--provider", action="store_true", help="may own nodes")
        parser.add_argument("--billing-email", default="")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            organization = create_organization(
                actor=OPERATOR,
                name=options["name"],
                slug=options["slug"],
                is_platform_ops=options["platform_ops"],
                is_provider=options["provider"],
                billing_email=options["billing_email"],
            )
        except ApiError as error:
            raise CommandError(error.message) from error
        self.stdout.write(str(organization.id))
