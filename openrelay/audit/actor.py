"""Who did something, as the audit log names them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Actor:
    """`name` is "user:<id>", "key:<id>", "node:<id>", "operator" (a person at the server) or "system"."""

    name: str
    source_ip: str = ""
    request_id: str = ""


SYSTEM = Actor("system")
OPERATOR = Actor("operator")
