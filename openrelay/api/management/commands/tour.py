"""`manage.py tour`: the whole story, told against a running server."""

import argparse
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from openrelay.demo.tour import Surprise, Tour


class Command(BaseCommand):
    """Walks through the promise by the published client; exits 1 at the first surprise."""

    help = "Walk through the promise against the server running in OPENRELAY_HOME, by the published client."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait before each step")

    def handle(self, *args: Any, **options: Any) -> None:
        home = settings.OPENRELAY_HOME
        if not (home / "demo.json").is_file():
            raise CommandError(f"There is no {home / 'demo.json'}. Start the demo with `make up` first.")
        tour = Tour(home, lambda line: print(line, flush=True), pause=options["pause"])
        try:
            tour.run()
        except Surprise as surprise:
            print(f"\nSurprise: {surprise}", file=sys.stderr)
            sys.exit(1)
        print("\nThe tour is over; every answer was as it should be.")
