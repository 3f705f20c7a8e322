"""The Celery application: its tasks live in the apps, its schedule here."""

import os
from logging.config import dictConfig

from celery import Celery
from celery.beat import Service
from celery.signals import beat_init, setup_logging
from django.conf import settings

from openrelay.schedule import every, stop_on_sigterm

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "openrelay.settings")
os.environ["OPENRELAY_PROCESS"] = "worker"


@setup_logging.connect
def _configure_logging(**_: object) -> None:
    """Log as every other process does. Without a receiver Celery sets the root logger to its own level."""
    dictConfig(settings.LOGGING)


@beat_init.connect
def _stop_on_sigterm(sender: Service, **_: object) -> None:
    stop_on_sigterm(sender)


app = Celery("openrelay")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["openrelay.api", "openrelay.audit", "nodes", "compute", "reservations"])
app.conf.beat_scheduler = "openrelay.schedule:SoonScheduler"
app.conf.beat_schedule = {
    **every(10, "openrelay.beat"),
    **every(5, "reservations.announce_all_due"),
    **every(60, "reservations.arm_moments"),
    **every(10, "compute.sweep_teardowns"),
    **every(30, "compute.sweep_stuck"),
    **every(5, "compute.sweep_lost_nodes"),
    **every(5, "compute.sweep_leaving_nodes"),
    **every(300, "compute.sweep_retired_nodes"),
    **every(60, "compute.sweep_interrupted"),
    **every(30, "compute.sweep_accounts"),
    **every(10, "compute.refresh_offers"),
    **every(3600, "api.delete_expired_answers"),
    **every(15, "audit.write_counted"),
    **every(3600, "audit.delete_expired"),
}
