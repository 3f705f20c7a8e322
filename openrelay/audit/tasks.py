"""Background work of the audit log."""

from celery import shared_task

from openrelay.audit.services.retention import delete_expired


@shared_task(name="audit.delete_expired")
def delete_expired_events() -> None:
    """Delete what the log has kept for 365 days."""
    delete_expired()
