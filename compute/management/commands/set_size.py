"""Set, or take from the table, a size that VMs without GPUs come in."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from compute.services.billing.sizes import drop_size, set_size
from openrelay.audit.actor import OPERATOR
from openrelay.core.canonical import slug_argument
from openrelay.core.errors import Invalid, NotFound


class Command(BaseCommand):
    help = "Set a size of VMs without GPUs, or drop it. VMs that have it keep what they were given."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("size", type=slug_argument, help="its name, such as cpu-small")
        parser.add_argument("vcpu", nargs="?", type=int, help="CPUs")
        parser.add_argument("ram_mb", nargs="?", type=int, metavar="ram", help="MiB of memory")
        parser.add_argument("cents", nargs="?", type=int, help="cents an hour")
        parser.add_argument("--drop", action="store_true", help="offer it no more")

    def handle(self, *args: Any, **options: Any) -> None:
        slug, figures = options["size"], [options[name] for name in ("vcpu", "ram_mb", "cents")]
        if options["drop"]:
            try:
                drop_size(actor=OPERATOR, slug=slug)
            except NotFound:
                raise CommandError(f"There is no size {slug}.") from None
            self.stdout.write("dropped")
            return
        if None in figures:
            raise CommandError("Give CPUs, MiB of memory and cents an hour, or --drop.")
        vcpu, ram_mb, cents = figures
        try:
            set_size(actor=OPERATOR, slug=slug, vcpu=vcpu, ram_mb=ram_mb, cents_per_hour=cents)
        except Invalid as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"{slug}: {vcpu} CPUs, {ram_mb} MiB, {cents} cents an hour")
