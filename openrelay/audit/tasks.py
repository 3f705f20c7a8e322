"""Background work of the audit log."""

from celery import shared_task

from openrelay.audit.services.repeats import write_counted
from openrelay.audit.services.retention import delete_expired


@shared_task(name="audit.delete_expired")
def delete_expired_events() -> None:
    """Delete events older than AUDIT_RETENTION_DAYS."""
    delete_expired()


@shared_task(name="audit.write_counted")
def write_counted_events() -> None:
    """Write the events that were counted for a minute."""
    write_counted()
