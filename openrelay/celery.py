"""The Celery application: its tasks live in the apps, its schedule here."""

import os

from celery import Celery

from openrelay.schedule import every

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "openrelay.settings")

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
    **every(60, "compute.sweep_interrupted"),
    **every(10, "compute.refresh_offers"),
    **every(3600, "api.delete_expired_answers"),
    **every(3600, "audit.delete_expired"),
}
