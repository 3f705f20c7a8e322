"""Counts that all processes share and that begin anew after a while: in Valkey, as far as it is there.

Nothing here is needed to do anything, only to say "not so often". So when Valkey does not answer, nothing is
counted, and a circuit breaker leaves it alone for a moment, so that its silence costs few requests.
"""

import functools
import ipaddress
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from openrelay.core.circuit_breaker import valkey

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Count:
    """How many were counted in this window, and the whole seconds until the next begins, 1 or more."""

    number: int
    seconds_left: int


def count(*names: str, seconds: int, by: int = 1) -> list[Count] | None:
    """Count `by` more of each of `names`, whose window opens with the first and lasts `seconds`.

    None when nothing can be counted now.
    """

    def counted(pipeline: Any) -> None:
        for name in names:
            key = _key(name)
            pipeline.set(key, 0, ex=seconds, nx=True)
            pipeline.incrby(key, by)
            pipeline.pttl(key)

    def read(answers: list[Any]) -> list[Count]:
        return [
            Count(int(number), max(1, math.ceil(int(left_ms) / 1000)))
            for number, left_ms in zip(answers[1::3], answers[2::3], strict=True)
        ]

    return _ask(counted, read)


def network_of(source_ip: str) -> str:
    """The address that requests from `source_ip` are counted for: of IPv6 the /64 network, which one customer
    has as a whole. Empty for what is no address.
    """
    try:
        address = ipaddress.ip_address(source_ip)
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def take_back(name: str, *, seconds: int) -> None:
    """One less of `name`, which was counted before."""

    def less(pipeline: Any) -> None:
        pipeline.set(_key(name), 0, ex=seconds, nx=True)
        pipeline.decr(_key(name))

    _ask(less, len)


def forget(name: str) -> None:
    """Begin anew to count `name`."""
    _ask(lambda pipeline: pipeline.delete(_key(name)), len)


def remember(name: str, *, seconds: int) -> None:
    """Let `name` be `known` for `seconds` from now."""
    _ask(lambda pipeline: pipeline.set(_key(name), 1, ex=seconds), len)


def known(name: str) -> bool:
    """Whether `name` is remembered. What cannot be asked is not."""
    return bool(_ask(lambda pipeline: pipeline.exists(_key(name)), lambda answers: int(answers[0]) > 0))


def _key(name: str) -> str:
    return f"{settings.REDIS_PREFIX}{name}"


def _ask(fill: Callable[[Any], object], read: Callable[[list[Any]], T]) -> T | None:
    if not valkey.allows():
        return None
    try:
        with _client().pipeline(transaction=True) as pipeline:
            fill(pipeline)
            answers = pipeline.execute()
    except redis.RedisError as error:
        valkey.failed()
        log.warning("nothing is counted: %s", error)
        return None
    valkey.succeeded()
    return read(answers)


@functools.cache
def _client() -> redis.Redis:
    client: redis.Redis = redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=0.25,
        socket_timeout=0.25,
        # A dead connection is made anew, but what did not come in time is not asked again.
        retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
    )
    return client
