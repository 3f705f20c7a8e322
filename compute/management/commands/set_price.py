"""Set what a GPU costs by the hour, for everybody or for one organization."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from compute.models import Tier
from compute.services.billing.prices import MOST_CENTS, drop_org_price, set_price
from nodes.models import GpuModel
from openrelay.audit.actor import OPERATOR
from openrelay.core.canonical import slug_argument
from openrelay.core.errors import ApiError
from openrelay.identity.models import Organization


class Command(BaseCommand):
    help = "Set what a GPU of a model costs by the hour. What runs keeps the rate it started at."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", type=slug_argument, help="the GPU model's slug")
        parser.add_argument("tier", choices=Tier.values)
        parser.add_argument("cents", help="cents a GPU and hour; `drop` ends an organization's own rate")
        parser.add_argument("--org", type=slug_argument, metavar="SLUG", help="for this organization alone")

    def handle(self, *args: Any, **options: Any) -> None:
        model = GpuModel.objects.filter(slug=options["model"]).first()
        if model is None:
            raise CommandError(f"There is no GPU model {options['model']}.")
        organization = None
        if options["org"]:
            organization = Organization.objects.live().filter(slug=options["org"]).first()
            if organization is None:
                raise CommandError(f"There is no organization {options['org']}.")
        tier, cents = options["tier"], options["cents"]
        if cents == "drop":
            if organization is None:
                raise CommandError("Only an organization's own rate can be dropped: name it with --org.")
            changed = drop_org_price(actor=OPERATOR, organization=organization, gpu_model=model, tier=tier)
            self.stdout.write("dropped" if changed else "there was none")
            return
        if not cents.isdecimal() or len(cents) > len(str(MOST_CENTS)):
            raise CommandError(f"cents must be a whole number from 0 to {MOST_CENTS}, or `drop`.")
        try:
            set_price(
                actor=OPERATOR,
                gpu_model=model,
                tier=tier,
                cents_per_gpu_hour=int(cents),
                organization=organization,
            )
        except ApiError as error:
            raise CommandError(error.message) from error
        whose = organization.name if organization else "everybody"
        self.stdout.write(f"{model.name}, {tier}: {int(cents)} cents a GPU and hour for {whose}")
