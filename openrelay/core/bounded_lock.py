"""A lock of this process that is held while something is asked of the database."""

from threading import Lock
from types import TracebackType

from django.conf import settings

from openrelay.core.errors import TryAgain


class BoundedLock:
    """One thread at a time, and no wait for it longer than one for a lock of the database: whoever has it may
    wait for a connection that hangs.
    """

    def __init__(self) -> None:
        self._lock = Lock()

    def __enter__(self) -> None:
        """Take the turn. Raises TryAgain (TRY_AGAIN) when it does not come in time."""
        if not self._lock.acquire(timeout=settings.DATABASE_LOCK_TIMEOUT or -1):
            raise TryAgain("Others wait for the database, for longer than usual. Try again.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
