from openrelay.api.models.beat import Beat
from openrelay.api.models.idempotency_key import IdempotencyKey

__all__ = ["Beat", "IdempotencyKey"]
