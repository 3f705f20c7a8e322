"""Take a person out of an organization."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from openrelay.audit.actor import OPERATOR
from openrelay.core.canonical import slug_argument
from openrelay.core.errors import NotFound
from openrelay.core.text import text_argument
from openrelay.identity.models import Organization, User
from openrelay.identity.services.memberships import remove_member


class Command(BaseCommand):
    help = (
        "End a person's membership in an organization. The keys they made there can do nothing from then on."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("org", type=slug_argument, help="the organization's slug")
        parser.add_argument("--reason", type=text_argument, default="", help="why, for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            user = User.objects.get_by_natural_key(options["email"])
            organization = Organization.objects.live().get(slug=options["org"])
            remove_member(
                actor=OPERATOR,
                user_id=user.id,
                organization_id=organization.id,
                reason=options["reason"],
            )
        except User.DoesNotExist:
            raise CommandError(f"There is nobody with the address {options['email']}.") from None
        except Organization.DoesNotExist:
            raise CommandError(f"There is no organization {options['org']}.") from None
        except NotFound as error:
            raise CommandError(f"{options['email']} is not a member of {options['org']}.") from error
        self.stdout.write(f"{user.email} is no longer a member of {organization.name}")
