"""Idempotency-Key: a request that comes again is given the answer it was given, and does nothing.

How a creating view and its service use it, with `guard` the request's key (or the absence of one):

    guard = self.guard(body, vm_summary)          # replays a stored answer; 422 for another body
    vm = create_vm(caller=..., guard=guard, ...)  # the service, in each transaction that may do the work:
        with transaction.atomic():
            guard.begin()                        # first: the key's lock, 409 when held, and looks again
            ...                                 # lock the node, decide, write, audit
            guard.store(vm)                      # last: the answer, in the transaction that did the work
    return guard.response(vm)

A service that tries several nodes in a transaction each calls `begin` in each: between two attempts the key
is nobody's, and whoever takes it next either finds the stored answer or does the work itself, once. Without a
header all of it costs nothing. Services take `guard: IdempotencyGuard = NO_GUARD`.
"""

import datetime as dt
import hashlib
import json
import re
import uuid
from collections.abc import Callable
from typing import Any

from django.db import connection
from rest_framework.response import Response

from openrelay.api.handler import Replayed
from openrelay.api.models import IdempotencyKey
from openrelay.core.clock import Now
from openrelay.core.errors import ApiError, Conflict, Invalid, Unprocessable
from openrelay.core.idempotency import NoGuard

KEPT = dt.timedelta(hours=24)
_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")

Render = Callable[[Any], dict[str, Any]]


class UnguardedRequest(NoGuard):
    """A request without the header: nothing is looked up or kept."""

    def __init__(self, render: Render) -> None:
        self.render = render

    def response(self, result: Any) -> Response:
        """The answer to send for `result`."""
        return Response(self.render(result))


class GuardedRequest:
    """A request with the header."""

    has_key = True

    def __init__(self, organization_id: uuid.UUID, key: str, fingerprint: str, render: Render) -> None:
        self.organization_id = organization_id
        self.key = key
        self.fingerprint = fingerprint
        self.render = render
        self.answer: dict[str, Any] | None = None

    def look(self) -> None:
        """Raises Replayed with the stored answer, Unprocessable (IDEMPOTENCY_KEY_REUSED) for another body."""
        kept = (
            IdempotencyKey.objects.filter(organization_id=self.organization_id, key=self.key)
            .filter(created_at__gt=Now() - KEPT)
            .values_list("fingerprint", "answer")
            .first()
        )
        if kept is None:
            return
        fingerprint, answer = kept
        if fingerprint != self.fingerprint:
            raise Unprocessable(
                "This Idempotency-Key was used with another request. Use a new key for a new request."
            )
        raise Replayed(answer)

    def begin(self) -> None:
        """Take the key until this transaction ends, and look again.

        Raises Conflict (IDEMPOTENCY_KEY_IN_USE) while another request holds it, and what `look` raises.
        """
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [self._lock()])
            (taken,) = cursor.fetchone()
        if not taken:
            raise _in_use()
        self.look()

    def store(self, result: Any) -> None:
        """Keep the answer that `result` renders to, replacing one that is past its time."""
        self.answer = self.render(result)
        IdempotencyKey.objects.bulk_create(
            [
                IdempotencyKey(
                    organization_id=self.organization_id,
                    key=self.key,
                    fingerprint=self.fingerprint,
                    answer=self.answer,
                    created_at=Now(),
                )
            ],
            update_conflicts=True,
            update_fields=["fingerprint", "answer", "created_at"],
            unique_fields=["organization", "key"],
        )

    def response(self, result: Any) -> Response:
        """The answer to send for `result`: the stored one."""
        return Response(self.answer if self.answer is not None else self.render(result))

    def _lock(self) -> int:
        name = f"idempotency:{self.organization_id}:{self.key}".encode()
        return int.from_bytes(hashlib.sha256(name).digest()[:8], "big", signed=True)


def _in_use() -> ApiError:
    error = Conflict(
        "Another request with this Idempotency-Key is still running. Wait and retry.",
        code="IDEMPOTENCY_KEY_IN_USE",
    )
    error.headers["Retry-After"] = "1"
    return error


def open_guard(
    header: str | None,
    *,
    method: str,
    path: str,
    principal: str,
    organization_id: uuid.UUID,
    body: Any,
    render: Render,
) -> GuardedRequest | UnguardedRequest:
    """The Idempotency-Key of a request whose permission has been judged.

    `header` is its value or None, `body` the parsed JSON, `render` makes the answer from what the service
    returns. Raises Invalid (VALIDATION_ERROR) for a malformed header, and what `GuardedRequest.look` raises.
    """
    if header is None:
        return UnguardedRequest(render)
    if not _KEY.fullmatch(header):
        raise Invalid("Idempotency-Key must be 1 to 255 printable ASCII characters.")
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    fingerprint = hashlib.sha256(json.dumps([method, path, principal, canonical]).encode()).hexdigest()
    guard = GuardedRequest(organization_id, header, fingerprint, render)
    guard.look()
    return guard
