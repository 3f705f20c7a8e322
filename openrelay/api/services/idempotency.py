"""Let go of answers that are past their time."""

from openrelay.api.idempotency import KEPT
from openrelay.api.models import IdempotencyKey
from openrelay.core.clock import Now


def delete_expired() -> int:
    """Delete the answers of Idempotency-Keys older than 24 hours; returns how many went."""
    deleted, _ = IdempotencyKey.objects.filter(created_at__lte=Now() - KEPT).delete()
    return deleted
