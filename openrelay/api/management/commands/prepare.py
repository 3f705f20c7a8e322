"""Bring the database to where the processes can start."""

import os
from typing import Any

from django.core.management import call_command, get_commands
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """`manage.py prepare`: migrate, then seed the demo unless DEMO=false."""

    help = "Apply the migrations and, unless DEMO=false, seed the demo fleet. Safe to repeat."

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=1)
        wanted = os.environ.get("DEMO", "true").strip().lower() not in ("false", "0", "no", "off")
        if wanted and "seed_demo" in get_commands():
            call_command("seed_demo")
