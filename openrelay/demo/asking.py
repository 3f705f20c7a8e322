"""Asking a running server by the published client, and comparing what it answers with what it should.

What a server that is being restarted does not answer is asked again, so that who asks outlives a crash of
anything but itself.
"""

import json
import time
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import httpx

from openrelay.demo import sdk

# Seconds that a server may be away, or a guest may take to start or go.
PATIENCE = 90.0
# Answers that say "not now" and nothing about the request.
_LATER = {(502, ""), (504, ""), (429, "RATE_LIMITED")} | {
    (503, "DATABASE_UNAVAILABLE"),
    (503, "TRY_AGAIN"),
    (409, "IDEMPOTENCY_KEY_IN_USE"),
}


class Surprise(Exception):
    """An answer that is not what it should be, or none at all."""


class Actor:
    """One caller: what it is called on the screen, its organization, and the client with its key."""

    def __init__(self, role: str, label: str, demo: dict[str, Any]) -> None:
        self.label = label
        self.org: str = demo["orgs"][role]
        self.ssh_key: str | None = demo["sshKeys"].get(role)
        client_class = sdk.load().AuthenticatedClient
        self.client = client_class(
            base_url=demo["baseUrl"], token=demo["keys"][role], timeout=httpx.Timeout(20.0)
        )

    def once(self, key: str) -> Any:
        """The client with an Idempotency-Key, for a request that must not be done twice."""
        return self.client.with_headers({"Idempotency-Key": key})


class Asking:
    """Asks, again if need be. `say` shows a line; `lost` says whether the last request went unanswered once.

    A request that was lost may have been done all the same: what answers it then is a repeat.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.lost = False
        self.count = 0
        sdk.load()
        self._models = import_module(f"{sdk.NAME}.models")

    def model(self, kind: str, /, **fields: Any) -> Any:
        """One of the client's request models."""
        return getattr(self._models, kind)(**fields)

    def ask(self, path: str, *args: Any, client: Any, **fields: Any) -> Any:
        """Call an operation ("vms.get_vm") until the server answers it; returns the client's response."""
        operation = _operation(path)
        give_up = time.monotonic() + PATIENCE
        self.lost, self.count = False, self.count + 1
        while True:
            try:
                answer = operation.sync_detailed(*args, client=client, **fields)
                why = f"{int(answer.status_code)} {code_of(answer)}".strip()
                if (int(answer.status_code), code_of(answer)) not in _LATER:
                    return answer
            except httpx.TransportError as error:
                why = str(error) or type(error).__name__
            if time.monotonic() > give_up:
                raise Surprise(f"{path} was not answered for {PATIENCE:.0f} s: {why}")
            if not self.lost:
                self.say(f"      (the server is away, asking again: {why})")
                self.lost = True
            time.sleep(0.5)

    def got(self, path: str, *args: Any, client: Any, **fields: Any) -> Any:
        """Call an operation that must succeed; returns what it answered, parsed."""
        answer = self.ask(path, *args, client=client, **fields)
        expect(answer.status_code in (200, 204), f"{path} should have succeeded, and answered {told(answer)}")
        return answer.parsed

    def done(self, path: str, *args: Any, client: Any, repeated: tuple[int, str], **fields: Any) -> None:
        """Call a change that must succeed; the repeat of one that was lost may find it done: `repeated`."""
        answer = self.ask(path, *args, client=client, **fields)
        again = self.lost and (int(answer.status_code), code_of(answer)) == repeated
        expect(
            again or answer.status_code in (200, 204),
            f"{path} should have succeeded, and answered {told(answer)}",
        )

    def refused(self, path: str, *args: Any, client: Any, status: int, code: str, **fields: Any) -> str:
        """Call an operation that must be refused with that status and code; returns how it was refused."""
        answer = self.ask(path, *args, client=client, **fields)
        expect(
            (int(answer.status_code), code_of(answer)) == (status, code),
            f"{path} should have been refused with {status} {code}, and answered {told(answer)}",
        )
        return told(answer)

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until `holds`, at most PATIENCE seconds. Raises Surprise with `what`."""
        give_up = time.monotonic() + PATIENCE
        while not holds():
            expect(time.monotonic() < give_up, f"{what} did not happen within {PATIENCE:.0f} s")
            time.sleep(0.25)


def expect(holds: bool, otherwise: str) -> None:
    """Raises Surprise with `otherwise` unless `holds`."""
    if not holds:
        raise Surprise(otherwise)


def code_of(answer: Any) -> str:
    """The stable code of a refusal; empty when there is none."""
    return str(_body(answer).get("code", ""))


def told(answer: Any) -> str:
    """A refusal as one line: status, code and sentence."""
    body = _body(answer)
    said = f"{body.get('code')}: {body.get('error')}" if "code" in body else repr(answer.content[:300])
    return f"{int(answer.status_code)} {said}"


def _body(answer: Any) -> dict[str, Any]:
    try:
        found = json.loads(answer.content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _operation(path: str) -> ModuleType:
    """An operation of the client by its name, such as `vms.create_vm`."""
    return import_module(f"{sdk.NAME}.api.{path}")
