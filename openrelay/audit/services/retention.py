"""Delete what the audit log has kept for as long as it is to."""

import datetime as dt

from django.conf import settings
from django.db import connection, transaction

from openrelay.audit.models import AuditEvent
from openrelay.core.clock import Now

BATCH = 5_000


def delete_expired() -> int:
    """Delete events older than AUDIT_RETENTION_DAYS, a batch a transaction, and return their number."""
    if not settings.AUDIT_RETENTION_DAYS:
        return 0
    kept = dt.timedelta(days=settings.AUDIT_RETENTION_DAYS)
    deleted = 0
    while True:
        with transaction.atomic():
            with connection.cursor() as cursor:
                # What the log's trigger asks for before it lets anything be deleted, for this transaction
                # alone.
                cursor.execute("SET LOCAL openrelay.audit_retention = 'on'")
            expired = AuditEvent.objects.filter(created_at__lt=Now() - kept).order_by("created_at")
            count, _ = AuditEvent.objects.filter(pk__in=expired.values("pk")[:BATCH]).delete()
        deleted += count
        if count < BATCH:
            return deleted
