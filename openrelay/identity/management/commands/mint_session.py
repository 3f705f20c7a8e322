"""Sign a person in to the API."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from openrelay.audit.actor import OPERATOR
from openrelay.core.canonical import slug_argument
from openrelay.core.errors import ApiError
from openrelay.identity.models import Membership
from openrelay.identity.services.sessions import mint_session


class Command(BaseCommand):
    help = "Print a session token for a person, good for 12 hours."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument(
            "--org",
            type=slug_argument,
            help="the slug of the organization to act in; needed when there are several",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        email = options["email"].strip().lower()
        places = Membership.objects.joined().filter(user__email=email, organization__deleted_at=None)
        places = places.select_related("organization")
        if options["org"]:
            places = places.filter(organization__slug=options["org"])
        found = list(places)
        if not found:
            raise CommandError(
                "There is no member with that address" + (" there." if options["org"] else ".")
            )
        if len(found) > 1:
            slugs = ", ".join(sorted(place.organization.slug for place in found))
            raise CommandError(f"{email} is a member of several organizations. Name one with --org: {slugs}.")
        try:
            _, secret = mint_session(
                actor=OPERATOR, user_id=found[0].user_id, organization_id=found[0].organization_id
            )
        except ApiError as error:
            raise CommandError(error.message) from error
        self.stdout.write(secret)
