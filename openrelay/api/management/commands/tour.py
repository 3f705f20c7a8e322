"""`manage.py tour`: the whole story, told against a running server."""

import argparse
import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from openrelay.demo.asking import Surprise
from openrelay.demo.tour import Tour


class Command(BaseCommand):
    """Walks through the promise by the published client; exits 1 at the first surprise."""

    help = "Walk through the promise against the server running in OPENRELAY_HOME, by the published client."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait before each step")

    def handle(self, *args: Any, **options: Any) -> None:
        home = settings.OPENRELAY_HOME
        for name in ("demo.json", "agents.json"):
            if not (home / name).is_file():
                raise CommandError(f"There is no {home / name}. Start the demo with `make up` first.")
        began = time.monotonic()
        try:
            tour = Tour(home, lambda line: print(line, flush=True), pause=options["pause"])
            tour.run()
        except Surprise as surprise:
            raise CommandError(f"The tour ends here: {surprise}.") from None
        except RuntimeError as error:  # the client is not installed
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError(
                "Interrupted. The next tour tidies up what this one leaves.", returncode=130
            ) from None
        print(
            f"\nThe tour is over: {tour.number} steps, {tour.server.count} requests, "
            f"{time.monotonic() - began:.0f} s, and every answer was as it should be."
        )
