"""How many requests a minute a caller may send.

Each process counts for itself, and adds what it counted to the count in Valkey after every hundredth part
of the limit. So most requests ask Valkey nothing (a question for each cost a quarter of the throughput of a
short answer), and all processes together exceed the limit by a few hundredths at most. While Valkey does not
answer, each process applies the limit to what it counted itself.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from openrelay.core import counters
from openrelay.core.errors import TooManyRequests
from openrelay.identity.caller import Caller

WINDOW_SECONDS = 60
# So many callers are remembered by a process; beyond, those whose minute is over are forgotten, or else all.
MOST_CALLERS = 20_000


class CallerThrottle(BaseThrottle):
    """Refuses a caller's requests beyond `RATE_LIMIT_PER_MINUTE`, and an address's requests without a valid
    credential beyond `RATE_LIMIT_PER_ADDRESS_PER_MINUTE`.

    A node is never refused: its reports must arrive. A valid credential has a count of its own, so nobody is
    refused for what others at the same address send.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        """Count the request. Raises TooManyRequests (RATE_LIMITED) with the seconds to wait."""
        caller = cast(Caller | None, request.user)
        if caller is None:
            count_address(request._request)
        elif caller.kind != "node":
            _count(caller.principal, settings.RATE_LIMIT_PER_MINUTE)
        return True


def count_address(request: HttpRequest) -> None:
    """Count a request that comes without a valid credential. Raises TooManyRequests (RATE_LIMITED)."""
    source_ip: str = request.source_ip  # type: ignore[attr-defined]
    name = f"address:{counters.network_of(source_ip)}"
    _count(name, settings.RATE_LIMIT_PER_ADDRESS_PER_MINUTE)


@dataclass(slots=True)
class _Window:
    """One caller's minute: what all processes counted by the last look at Valkey, and what this one counted
    since.
    """

    ends: float
    shared: int = 0
    pending: int = 0


_windows: dict[str, _Window] = {}
_lock = threading.Lock()  # never held while anything is asked


def _count(name: str, limit: int) -> None:
    if not limit:
        return
    step = max(1, limit // 100)
    with _lock:
        window = _window(name)
        window.pending += 1
        told = window.pending if window.pending >= step else 0
        if told:
            window.shared, window.pending = window.shared + told, 0
        number, wait = window.shared + window.pending, window.ends - time.monotonic()
    if told:
        counted = counters.count(f"rate:{name}", seconds=WINDOW_SECONDS, by=told)
        if counted is not None:
            number, wait = counted[0].number, float(counted[0].seconds_left)
            with _lock:
                window.shared = max(number, window.shared)
                window.ends = time.monotonic() + wait
    if number > limit:
        raise TooManyRequests(
            f"More than {limit} requests in a minute. Wait and send fewer.",
            retry_after=max(1, min(WINDOW_SECONDS, round(wait))),
        )


def _window(name: str) -> _Window:
    """The caller's minute, a new one if there is none or it is over. Under the lock."""
    now = time.monotonic()
    window = _windows.get(name)
    if window is None or window.ends <= now:
        if len(_windows) >= MOST_CALLERS:
            _forget(now)
        window = _windows[name] = _Window(now + WINDOW_SECONDS)
    return window


def _forget(now: float) -> None:
    for name in [name for name, window in _windows.items() if window.ends <= now]:
        del _windows[name]
    if len(_windows) >= MOST_CALLERS:
        _windows.clear()


def forget_callers() -> None:
    """Begin to count anew in this process; for tests."""
    with _lock:
        _windows.clear()
