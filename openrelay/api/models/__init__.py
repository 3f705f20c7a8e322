from openrelay.api.models.idempotency_key import IdempotencyKey

__all__ = ["IdempotencyKey"]
