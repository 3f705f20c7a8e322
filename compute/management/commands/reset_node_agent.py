"""Forget the order of a node's reports, so that its agent is heard again."""

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from compute.services.agents.agent_reset import reset_agent
from openrelay.audit.actor import OPERATOR
from openrelay.core.errors import ApiError
from openrelay.core.text import text_argument


class Command(BaseCommand):
    help = "Forget the epochs and sequences of a node's reports, so that its agent is heard again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("node_id", type=UUID)
        parser.add_argument("--reason", type=text_argument, required=True, help="why, for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            reset_agent(node_id=options["node_id"], actor=OPERATOR, reason=options["reason"])
        except ApiError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"{options['node_id']}: the next report of each kind is taken")
