"""Delete an organization."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from openrelay.audit.actor import OPERATOR
from openrelay.core.errors import ApiError
from openrelay.core.text import text_argument
from openrelay.identity.models import Organization
from reservations.services.org_deletion import delete_organization_as


class Command(BaseCommand):
    help = (
        "Delete an organization: its people and keys have no access any more, and its VMs and pods are "
        "terminated. Its usage, its audit log and its slug are kept."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", help="the organization's slug")
        parser.add_argument("--reason", type=text_argument, default="", help="kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            organization = Organization.objects.get(slug=options["slug"])
            delete_organization_as(actor=OPERATOR, organization_id=organization.pk, reason=options["reason"])
        except Organization.DoesNotExist:
            raise CommandError(f"There is no organization {options['slug']}.") from None
        except ApiError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"{organization.name} is deleted. A worker ends what runs for it.")
