"""Reissue or revoke the credentials of a node's agent."""

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from nodes.services.enrolment import reissue_credential, revoke_credentials
from openrelay.audit.actor import OPERATOR
from openrelay.core.errors import ApiError
from openrelay.core.text import text_argument


class Command(BaseCommand):
    help = "Issue a node's agent a new credential in place of those it has, or only revoke them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["reissue", "revoke"])
        parser.add_argument("node_id", type=UUID)
        parser.add_argument("--reason", type=text_argument, required=True, help="why, for the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        node_id, reason = options["node_id"], options["reason"]
        try:
            if options["action"] == "reissue":
                secret = reissue_credential(actor=OPERATOR, node_id=node_id, reason=reason)
                self.stdout.write(f"{secret}\nIt is not shown again. Earlier credentials were revoked.")
            else:
                number = revoke_credentials(actor=OPERATOR, node_id=node_id, reason=reason)
                self.stdout.write(f"{number} credentials revoked")
        except ApiError as error:
            raise CommandError(error.message) from error
