"""Background work of the ground floor."""

from celery import shared_task
from django.db.models.functions import Now

from openrelay.api.models import Beat
from openrelay.api.services.idempotency import delete_expired


@shared_task(name="openrelay.beat")
def beat() -> None:
    """Write down that beat schedules, the broker carries and a worker works."""
    Beat.objects.bulk_create(
        [Beat(id=1, at=Now())], update_conflicts=True, unique_fields=["id"], update_fields=["at"]
    )


@shared_task(name="api.delete_expired_answers")
def delete_expired_answers() -> None:
    """Delete the answers kept for Idempotency-Keys of more than 24 hours ago."""
    delete_expired()
