"""`manage.py load_fleet FILE`: load a fleet from a file."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from openrelay.audit.services.record import OPERATOR
from reservations.fleet import NotAFleetFile, decode
from reservations.services.fleet_loading import SendsToReview, load
from reservations.services.fleet_planning import FleetFaults, NodePlan, Plan, make_plan

_LABELS = {"organizations": "organizations", "locations": "locations", "gpu_models": "GPU models"}


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
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="print what would change, and which reservations would need review; change nothing",
        )
        parser.add_argument(
            "--yes",
            action="store_true",
            help="load the file even where that sends reservations to review",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        update = not options["new_only"]
        try:
            data = decode(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise CommandError(f"{path} is not text in UTF-8.") from error
        except NotAFleetFile as error:
            raise CommandError(f"{path} was not loaded; nothing was changed: {error}.") from error
        try:
            if options["dry_run"]:
                self._show(path, make_plan(data, update=update))
                return
            loaded = load(data, actor=OPERATOR, update=update, review=options["yes"])
        except FleetFaults as error:
            raise CommandError(
                f"{path} was not loaded; nothing was changed.\n{_indented(error.faults)}"
            ) from error
        except SendsToReview as error:
            raise CommandError(
                f"{path} was not loaded; nothing was changed. It would send reservations to review:\n"
                f"{_indented(_reviews(error.plan))}\n"
                "Correct the file, or give --yes to load it. --dry-run shows the whole difference."
            ) from error
        unchanged = len(loaded.nodes) - loaded.enrolled - loaded.updated
        failed = f", {len(loaded.failed)} failed" if loaded.failed else ""
        self.stdout.write(
            f"{len(loaded.nodes) + len(loaded.failed)} nodes in {path}: {loaded.enrolled} enrolled, "
            f"{loaded.updated} updated, {unchanged} as they were{failed}."
        )
        if loaded.failed:
            raise CommandError(
                f"{path} was loaded in part. These nodes stayed as they were:\n{_indented(loaded.failed)}"
            )

    def _show(self, path: Path, plan: Plan) -> None:
        """Print the plan: what is new in the catalogue, every node that changes, and the reservations."""
        for kind, slugs in plan.new.items():
            if slugs:
                self.stdout.write(f"New {_LABELS[kind]}: {', '.join(slugs)}")
        for node in plan.nodes:
            if node.is_new or node.is_updated:
                self.stdout.write(_line(node))
        for line in _reviews(plan):
            self.stdout.write(line)
        enrolled = sum(node.is_new for node in plan.nodes)
        updated = sum(node.is_updated for node in plan.nodes)
        self.stdout.write(
            f"Dry run of {path}: {enrolled} nodes to enrol, {updated} to update, "
            f"{len(plan.nodes) - enrolled - updated} to leave as they are, {len(plan.reviews)} reservations "
            "to send to review. Nothing was changed."
        )


def _line(node: NodePlan) -> str:
    place = f"nodes[{node.number}] {node.entry['hostname']} of {node.entry['organization']}"
    if node.is_new:
        return f"{place}: new, with {len(node.entry['inventory']['units'])} units"
    return f"{place}: {'; '.join(node.difference.topology) or 'its host, health or what is for sale'}"


def _reviews(plan: Plan) -> Iterator[str]:
    for node, found in plan.reviews:
        contract = f", contract {found.contract_ref}" if found.contract_ref else ""
        yield (
            f"nodes[{node.number}] {node.entry['hostname']}: reservation {found.pk} "
            f"({found.status}{contract}) would need review: {'; '.join(node.difference.topology)}"
        )


def _indented(lines: Any) -> str:
    return "\n".join(f"  {line}" for line in lines)
