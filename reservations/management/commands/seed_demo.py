"""`manage.py seed_demo`: make the demo fleet in this home."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from reservations.services.demo import seed


class Command(BaseCommand):
    """Makes the demo fleet where it is missing, and writes demo.json and agents.json into OPENRELAY_HOME."""

    help = "Make the demo fleet where it is missing; write demo.json and agents.json into OPENRELAY_HOME."

    def handle(self, *args: Any, **options: Any) -> None:
        home = settings.OPENRELAY_HOME
        home.mkdir(parents=True, exist_ok=True)
        demo = seed(home, settings.BASE_URL)
        vms, pods = demo["nodes"]["vm"], demo["nodes"]["pod"]
        self.stdout.write(f"demo: {len(vms)} VM nodes, {len(pods)} pod node; {home / 'demo.json'}")
