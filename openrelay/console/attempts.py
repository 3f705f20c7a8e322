"""How often somebody may try a password at the console, and what the audit log has of it.

An attempt counts before the password is looked at, so that many at once cannot all be the last one allowed.
One that succeeds does not count against its address, and the account begins anew. Whoever tries to sign in as
somebody else must not keep that person out: where they signed in before, they have a count of their own, and
no other count holds for them there.
"""

import hashlib
import math
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpResponse

from openrelay.audit.actor import SYSTEM, Actor
from openrelay.audit.services.record import record
from openrelay.core import counters
from openrelay.core.errors import TooManyRequests
from openrelay.identity.models import User

WINDOW_SECONDS = 15 * 60
KNOWN_SECONDS = 30 * 24 * 3600
#: What the log says was tried where nobody has the name: names that are none may be mistyped passwords.
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt to sign in: the name as it was typed, and where it came from."""

    name: str
    source_ip: str
    request_id: str

    @property
    def account(self) -> str:
        """The account that is tried, also for a name that nobody has; it does not tell the name."""
        return hashlib.sha256(_plain(self.name).encode()).hexdigest()

    @property
    def origin(self) -> str:
        """The address that its failures are counted for; empty where it is not known."""
        return counters.network_of(self.source_ip)


def begin(attempt: Attempt) -> None:
    """Count an attempt before its password is looked at.

    Raises TooManyRequests (RATE_LIMITED) with the seconds to wait, when the account or the address has had
    all its failures of a quarter of an hour. The first that is refused so is noted in the audit log.
    """
    is_known = _is_known(attempt)
    limits = {_account_count(attempt, is_known=is_known): settings.SIGN_IN_FAILURES_PER_ACCOUNT}
    if attempt.origin and not is_known:
        limits[_address_count(attempt)] = settings.SIGN_IN_FAILURES_PER_ADDRESS
    limits = {name: limit for name, limit in limits.items() if limit}
    counted = counters.count(*limits, seconds=WINDOW_SECONDS) if limits else None
    if counted is None:
        return
    beyond = [
        (count, limit) for count, limit in zip(counted, limits.values(), strict=True) if count.number > limit
    ]
    if not beyond:
        return
    if any(count.number == limit + 1 for count, limit in beyond):
        refused(attempt, "limited")
    wait = max(count.seconds_left for count, _ in beyond)
    minutes = math.ceil(wait / 60)
    raise TooManyRequests(
        "Too many attempts to sign in have failed. This password was not checked. Try again in "
        f"{minutes} minute{'' if minutes == 1 else 's'}.",
        retry_after=wait,
    )


def refused(attempt: Attempt, why: str) -> None:
    """Note in the audit log that an attempt was refused, and why: a code."""
    person = User.objects.filter(email=_plain(attempt.name)).first()
    record(
        Actor(SYSTEM.name, attempt.source_ip, attempt.request_id),
        "console.sign_in_refused",
        target_type="user",
        target_id=person.pk if person else UNKNOWN,
        after={"why": why, "email": person.email if person else UNKNOWN},
    )


def succeeded(attempt: Attempt, person: User) -> None:
    """Note in the audit log that a person signed in."""
    record(
        Actor(f"user:{person.pk}", attempt.source_ip, attempt.request_id),
        "console.signed_in",
        target_type="user",
        target_id=person.pk,
    )


def settle(attempt: Attempt) -> None:
    """Count an attempt no longer, since it succeeded."""
    is_known = _is_known(attempt)
    counters.forget(_account_count(attempt, is_known=is_known))
    if attempt.origin and not is_known:
        counters.take_back(_address_count(attempt), seconds=WINDOW_SECONDS)
    if attempt.origin:
        counters.remember(_place(attempt), seconds=KNOWN_SECONDS)


def said(answer: HttpResponse, limited: TooManyRequests | None) -> HttpResponse:
    """The page that answers an attempt: when there were too many, it says so to programs as well."""
    if limited is not None:
        answer.status_code = limited.status
        for name, value in limited.headers.items():
            answer.headers[name] = value
    return answer


def _plain(name: str) -> str:
    """A name as accounts have it."""
    return name.strip().lower()


def _is_known(attempt: Attempt) -> bool:
    """Whether the account signed in from this address before."""
    return bool(attempt.origin) and counters.known(_place(attempt))


def _account_count(attempt: Attempt, *, is_known: bool) -> str:
    return f"{_place(attempt)}:failed" if is_known else f"signin:{attempt.account}:failed"


def _address_count(attempt: Attempt) -> str:
    return f"signin:from:{attempt.origin}:failed"


def _place(attempt: Attempt) -> str:
    """The account at this address."""
    return f"signin:{attempt.account}:{attempt.origin}"
