"""The console's own assets."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Carries the console's stylesheet; the pages belong to the apps whose models they show."""

    name = "openrelay.console"
    label = "console"
