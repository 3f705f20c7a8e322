"""Background work of the ground floor."""

from celery import shared_task
from django.db.models.functions import Now

from openrelay.api.models import Beat


@shared_task(name="openrelay.beat")
def beat() -> None:
    """Write down that beat schedules, the broker carries and a worker works."""
    Beat.objects.bulk_create(
        [Beat(id=1, at=Now())], update_conflicts=True, unique_fields=["id"], update_fields=["at"]
    )
