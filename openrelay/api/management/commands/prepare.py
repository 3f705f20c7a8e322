"""Bring the database to where the processes can start."""

import os
from typing import Any
from urllib.parse import urlsplit

from django.core.management import call_command, get_commands
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError


class Command(BaseCommand):
    """`manage.py prepare`: migrate, then seed the demo unless DEMO=false."""

    help = "Apply the migrations and, unless DEMO=false, seed the demo fleet. Safe to repeat."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            call_command("migrate", interactive=False, verbosity=1)
        except OperationalError as error:
            url = urlsplit(os.environ.get("DATABASE_URL", ""))
            raise CommandError(
                f"The database {url.hostname}:{url.port}{url.path} cannot be used: {error}. "
                "DATABASE_URL names it."
            ) from error
        wanted = os.environ.get("DEMO", "true").strip().lower() not in ("false", "0", "no", "off")
        if wanted and "seed_demo" in get_commands():
            call_command("seed_demo")
