"""Play the agents of nodes that have no hardware."""

import signal
import time
from argparse import ArgumentParser
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from compute.simulation.process import AlreadyRunning, Simulation


class Command(BaseCommand):
    help = "Plays the agents of pretended nodes: speaks HTTP to the control plane with their credentials."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--credentials",
            required=True,
            type=Path,
            help="JSON list of {nodeId, credential, inventory, baseUrl}; read again whenever it changes. An "
            "entry may also have bootSeconds, stopSeconds, offline, failsBoots, keepsGuests, losesGuests, "
            "fillsDisk, agentLevel and failedGpus (addresses)",
        )
        parser.add_argument(
            "--memory", type=Path, help="where the guests are kept; beside the credentials file unless given"
        )
        parser.add_argument("--base-url", default=settings.BASE_URL, help="for entries without a baseUrl")
        parser.add_argument("--interval", type=float, default=1.0, help="seconds between two turns")

    def handle(
        self, *, credentials: Path, memory: Path | None, base_url: str, interval: float, **_: Any
    ) -> None:
        signal.signal(signal.SIGTERM, _leave)
        if not credentials.is_file():
            raise CommandError(f"There is no file {credentials}.")
        memory = memory or credentials.with_name(f"{credentials.stem}.guests.json")
        with httpx.Client(timeout=10.0, trust_env=False) as http:
            try:
                simulation = Simulation(credentials, memory, base_url=base_url, http=http)
            except AlreadyRunning as error:
                raise CommandError(f"These nodes are played already: {error}.") from None
            try:
                while True:
                    begun = time.monotonic()
                    simulation.turn()
                    time.sleep(max(0.05, interval - (time.monotonic() - begun)))
            except KeyboardInterrupt:
                pass
            finally:
                simulation.close()


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
