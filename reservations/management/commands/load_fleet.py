"""`manage.py load_fleet FILE`: load a fleet from a file."""

import argparse
import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from openrelay.audit.services.record import OPERATOR
from openrelay.errors import ApiError
from reservations.services.fleet_loading import FleetFaults, load


class Command(BaseCommand):
    """Loads organizations, locations, GPU models, prices and nodes from one JSON file without a fault."""

    help = (
        "Load a fleet from a JSON file, unless it has a fault. Loading it again changes nothing. "
        "openrelay/demo/fleet.json is an example."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument(
            "--new-only",
            action="store_true",
            help="leave nodes that exist as their agents report them; load only what is not there yet",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise CommandError(f"{path} is not JSON: {error}.") from error
        try:
            loaded = load(data, actor=OPERATOR, update=not options["new_only"])
        except FleetFaults as error:
            lines = "\n".join(f"  {fault}" for fault in error.faults)
            raise CommandError(f"{path} was not loaded; nothing was changed.\n{lines}") from error
        except ApiError as error:
            raise CommandError(
                f"{path} was loaded in part: {error.message} Load it again for the rest."
            ) from error
        self.stdout.write(
            f"{len(loaded.nodes)} nodes in {path}: {loaded.enrolled} enrolled, {loaded.updated} updated, "
            f"{len(loaded.nodes) - loaded.enrolled - loaded.updated} as they were."
        )
