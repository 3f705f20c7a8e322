"""How many requests a minute a principal may send, counted for all processes together."""

from typing import Any, cast

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from openrelay import counters
from openrelay.errors import TooManyRequests
from openrelay.identity.caller import Caller

WINDOW_SECONDS = 60


class PrincipalThrottle(BaseThrottle):
    """Refuses a principal's requests beyond `RATE_LIMIT_PER_MINUTE`; without a credential, an address's.

    A node is never refused: what it reports must arrive. When Valkey does not answer, nobody is.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        """Whether the request may go on. Raises TooManyRequests (RATE_LIMITED) with the seconds to wait."""
        caller = cast(Caller | None, request.user)
        if caller is not None and caller.kind == "node":
            return True
        who = caller.principal if caller else f"address:{request._request.source_ip}"  # type: ignore[attr-defined]
        counted = counters.count(f"rate:{who}", seconds=WINDOW_SECONDS)
        if counted is None or counted[0].number <= settings.RATE_LIMIT_PER_MINUTE:
            return True
        raise TooManyRequests(
            f"More than {settings.RATE_LIMIT_PER_MINUTE} requests in a minute. Wait and send fewer.",
            retry_after=counted[0].seconds_left,
        )
