"""Let go of what the audit log has kept long enough."""

import datetime as dt

from django.db import connection, transaction

from openrelay.audit.models import AuditEvent
from openrelay.clock import Now

KEPT = dt.timedelta(days=365)
_AT_ONCE = 5_000


def delete_expired() -> int:
    """Delete events older than 365 days, some at a time; returns how many went."""
    deleted = 0
    while True:
        with transaction.atomic():
            with connection.cursor() as cursor:
                # What the log's trigger asks for before it lets anything be deleted, for this transaction
                # alone.
                cursor.execute("SET LOCAL openrelay.audit_retention = 'on'")
            expired = AuditEvent.objects.filter(created_at__lt=Now() - KEPT).order_by("created_at")
            count, _ = AuditEvent.objects.filter(pk__in=expired.values("pk")[:_AT_ONCE]).delete()
        deleted += count
        if count < _AT_ONCE:
            return deleted
