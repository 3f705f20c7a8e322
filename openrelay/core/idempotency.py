"""The idempotency key of a request, as services use it. The API reads it from the request.

A creating service takes `guard: IdempotencyGuard = NO_GUARD`. In each transaction that may do the work it
calls `guard.begin()` first and `guard.store(result)` last, so the stored answer commits with the work.
"""

from typing import Any, Protocol


class IdempotencyGuard(Protocol):
    """One request's idempotency key, or the absence of one; `has_key` says which."""

    has_key: bool

    def begin(self) -> None:
        """Lock the key until this transaction ends.

        Raises Conflict (IDEMPOTENCY_KEY_IN_USE) while another request holds it.
        """

    def store(self, result: Any) -> None:
        """Store the answer that `result` renders to, in this transaction."""


class NoGuard:
    """A request without an idempotency key: nothing is stored."""

    has_key = False

    def begin(self) -> None:
        """Do nothing."""

    def store(self, result: Any) -> None:
        """Do nothing."""


NO_GUARD: IdempotencyGuard = NoGuard()
