"""Make a person a member of an organization."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from openrelay.audit.actor import OPERATOR
from openrelay.core.canonical import slug_argument
from openrelay.core.errors import ApiError
from openrelay.identity.models import Organization, User
from openrelay.identity.permissions import BUILTIN_ROLES
from openrelay.identity.services.memberships import add_member, role_called


class Command(BaseCommand):
    help = "Make a person a member of an organization."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("org", type=slug_argument, help="the organization's slug")
        parser.add_argument(
            "role",
            help=f"{', '.join(BUILTIN_ROLES)}, or the name or id of one of the organization's own",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            user = User.objects.get_by_natural_key(options["email"])
            organization = Organization.objects.live().get(slug=options["org"])
            role = role_called(organization.id, options["role"])
            add_member(actor=OPERATOR, user_id=user.id, organization_id=organization.id, role=role)
        except User.DoesNotExist:
            raise CommandError(f"There is nobody with the address {options['email']}.") from None
        except Organization.DoesNotExist:
            raise CommandError(f"There is no organization {options['org']}.") from None
        except ApiError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"{user.email} is {options['role']} of {organization.name}")
