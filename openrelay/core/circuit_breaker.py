"""A circuit breaker for Valkey: one that does not answer is left alone for a moment, by all that ask it."""

import time
from threading import Lock

#: For how many seconds a Valkey that did not answer is not asked again.
OPEN_SECONDS = 5.0


class CircuitBreaker:
    """Whether something may be asked. After a failure nobody asks it for OPEN_SECONDS; then one caller tries,
    and the others only once that one had an answer.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._closed = True
        self._next_try = 0.0

    def allows(self) -> bool:
        """Whether to ask now. Whoever is told so has to call `succeeded` or `failed` after."""
        if self._closed:
            return True
        with self._guard:
            now = time.monotonic()
            if not self._closed and now < self._next_try:
                return False
            self._next_try = now + OPEN_SECONDS
            return True

    def succeeded(self) -> None:
        """Note that it answered."""
        self._closed = True

    def failed(self) -> None:
        """Note that it did not answer."""
        with self._guard:
            self._closed = False
            self._next_try = time.monotonic() + OPEN_SECONDS


#: Of this process: for counters and for the messages that wake up work.
valkey = CircuitBreaker()
