"""Set what an organization may do."""

from argparse import SUPPRESS, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from openrelay.audit.actor import OPERATOR
from openrelay.core.canonical import slug_argument
from openrelay.core.errors import ApiError
from openrelay.identity.accounts import STATUSES
from openrelay.identity.models import Organization
from openrelay.identity.services.organizations import SWITCHES, set_switches

_SWITCHES = (
    ("--provider", "is_provider", "may own nodes"),
    ("--reservations-enabled", "reservations_enabled", "can be in reservations"),
    ("--stop-enabled", "stop_enabled", "may stop its VMs"),
    ("--infiniband-enabled", "infiniband_enabled", "its pods get InfiniBand"),
    (
        "--leave-notices-enabled",
        "leave_notices_enabled",
        "its persistent nodes may announce that they will leave",
    ),
)
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _switch(text: str) -> bool:
    try:
        return _WORDS[text.lower()]
    except KeyError:
        raise ArgumentTypeError("give true or false") from None


def _cents(text: str) -> int | None:
    try:
        return None if text == "unknown" else int(text)
    except ValueError:
        raise ArgumentTypeError("give whole cents, or unknown") from None


class Command(BaseCommand):
    help = "Set what an organization may do. What is not named stays as it is."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", type=slug_argument, help="the organization's slug")
        for option, dest, what in _SWITCHES:
            parser.add_argument(
                option, dest=dest, type=_switch, metavar="true|false", help=what, default=SUPPRESS
            )
        parser.add_argument(
            "--balance-cents",
            type=_cents,
            metavar="CENTS",
            help="what it has left, or unknown",
            default=SUPPRESS,
        )
        parser.add_argument(
            "--account-status",
            choices=STATUSES,
            help="suspended: nothing is started, and what runs is stopped after a grace period",
            default=SUPPRESS,
        )

    def handle(self, *args: Any, **options: Any) -> None:
        switches = {name: options[name] for name in SWITCHES if name in options}
        if not switches:
            raise CommandError("Nothing to set. See --help for what there is.")
        try:
            organization = Organization.objects.live().get(slug=options["slug"])
            set_switches(actor=OPERATOR, organization_id=organization.id, **switches)
        except Organization.DoesNotExist:
            raise CommandError(f"There is no organization {options['slug']}.") from None
        except ApiError as error:
            raise CommandError(error.message) from error
        self.stdout.write(
            f"{organization.name}: " + ", ".join(f"{name} {value}" for name, value in switches.items())
        )
