"""Approve or reject an organization's application to become a provider."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from nodes.models import ProviderApplication
from nodes.services.applications import decide_application
from openrelay.audit.actor import OPERATOR
from openrelay.core.canonical import slug_argument
from openrelay.core.errors import ApiError
from openrelay.core.text import text_argument


class Command(BaseCommand):
    help = "Decide the pending application of an organization to become a provider."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", type=slug_argument, help="the organization's slug")
        parser.add_argument("decision", choices=["approve", "reject"])
        parser.add_argument("--reason", type=text_argument, default="", help="why, for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        application = ProviderApplication.objects.filter(
            organization__slug=options["slug"], decided_at=None
        ).first()
        if application is None:
            raise CommandError(f"No application of {options['slug']} is pending.")
        try:
            decided = decide_application(
                actor=OPERATOR,
                application_id=application.pk,
                approve=options["decision"] == "approve",
                reason=options["reason"],
            )
        except ApiError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"{options['slug']}: {decided.status}")
