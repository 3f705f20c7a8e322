"""Who did something, as the audit log names them, and the request that they did it by."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

#: What an organization reads instead of a party that it may not know: the organization that evicted for
#: capacity that it owns, manages or has reserved; and the platform, its operators and its agents.
CAPACITY_OWNER = "capacity-owner"
PLATFORM = "platform"


@dataclass(frozen=True, slots=True)
class Actor:
    """`name` is "user:<id>", "key:<id>", "node:<id>", "operator" (a person at the server) or "system".

    `organization_id` is the organization that it acts in, None for the last two.
    """

    name: str
    source_ip: str = ""
    request_id: str = ""
    organization_id: uuid.UUID | None = None
    is_platform: bool = False

    def name_for(self, organization_id: uuid.UUID | None) -> str:
        """The actor as the log of that organization names it: by its own name, unless it is another's."""
        if self.name == SYSTEM.name or (
            self.organization_id is not None and self.organization_id == organization_id
        ):
            return self.name
        if self.organization_id is None or self.is_platform or self.name.startswith("node:"):
            return PLATFORM
        return CAPACITY_OWNER


SYSTEM = Actor("system")
OPERATOR = Actor("operator")

_server_request_id: ContextVar[uuid.UUID | None] = ContextVar("server_request_id", default=None)


@contextmanager
def serving_request(server_request_id: uuid.UUID) -> Iterator[None]:
    """Have every event that is written in the block carry that id: the server's own of the request."""
    token = _server_request_id.set(server_request_id)
    try:
        yield
    finally:
        _server_request_id.reset(token)


def current_server_request_id() -> uuid.UUID | None:
    """The server's own id of the request that is being served; None outside of any, as in a task."""
    return _server_request_id.get()
