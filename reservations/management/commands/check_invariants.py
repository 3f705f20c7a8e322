"""`manage.py check_invariants`: is every promise kept?"""

import sys
from typing import Any

from django.core.management.base import BaseCommand

from reservations.services.invariants import PROMISES, violations


class Command(BaseCommand):
    """Checks what must be true of the database; prints what is not and exits 1, or exits 0."""

    help = "Check what must be true of the database. Lists what is wrong and exits 1, or exits 0."

    def handle(self, *args: Any, **options: Any) -> None:
        found = violations()
        for sentence in found:
            self.stdout.write(sentence)
        if found:
            self.stderr.write(f"{len(found)} violations of {len(PROMISES)} invariants.")
            sys.exit(1)
        self.stdout.write(f"All {len(PROMISES)} invariants hold.")
