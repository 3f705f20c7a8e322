"""How many requests a minute a principal may send, counted in Valkey for all processes together."""

import functools
import logging
import math
import time
from typing import Any, cast

import redis
from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from openrelay.errors import TooManyRequests
from openrelay.identity.caller import Caller

log = logging.getLogger(__name__)

WINDOW_SECONDS = 60
#: For how long a counter that did not answer is not asked again, so that its silence costs few requests.
LEFT_ALONE_SECONDS = 5.0


class PrincipalThrottle(BaseThrottle):
    """Refuses a principal's requests beyond `RATE_LIMIT_PER_MINUTE`; without a credential, an address's.

    A node is never refused: what it reports must arrive. When Valkey does not answer, nobody is.
    """

    _left_alone_until = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        """Whether the request may go on. Raises TooManyRequests (RATE_LIMITED) with the seconds to wait."""
        caller = cast(Caller | None, request.user)
        if caller is not None and caller.kind == "node":
            return True
        who = caller.principal if caller else f"address:{request._request.source_ip}"  # type: ignore[attr-defined]
        if time.monotonic() < PrincipalThrottle._left_alone_until:
            return True
        try:
            sent, left_ms = self._count(who)
        except redis.RedisError as error:
            PrincipalThrottle._left_alone_until = time.monotonic() + LEFT_ALONE_SECONDS
            log.warning("requests are not counted: %s", error)
            return True
        if sent <= settings.RATE_LIMIT_PER_MINUTE:
            return True
        raise TooManyRequests(
            f"More than {settings.RATE_LIMIT_PER_MINUTE} requests in a minute. Wait and send fewer.",
            retry_after=max(1, math.ceil(left_ms / 1000)),
        )

    def _count(self, who: str) -> tuple[int, int]:
        """The requests of this window with this one, and its milliseconds left."""
        key = f"{settings.REDIS_PREFIX}rate:{who}"
        with _client().pipeline(transaction=True) as pipeline:
            pipeline.set(key, 0, ex=WINDOW_SECONDS, nx=True)
            pipeline.incr(key)
            pipeline.pttl(key)
            _, sent, left_ms = pipeline.execute()
        return int(sent), int(left_ms)


@functools.cache
def _client() -> redis.Redis:
    client: redis.Redis = redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=0.25, socket_timeout=0.25
    )
    return client
