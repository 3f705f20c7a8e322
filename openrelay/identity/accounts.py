"""How an organization stands with the platform."""

from dataclasses import dataclass
from typing import Final

ACTIVE: Final = "active"
#: Nothing new is started that is billed; what runs goes on.
SUSPENDED: Final = "suspended"
STATUSES: Final = (ACTIVE, SUSPENDED)


@dataclass(frozen=True, slots=True)
class Account:
    """An organization's status, one of `STATUSES`, and what operators say it has, in cents; None: unknown."""

    status: str = ACTIVE
    balance_cents: int | None = None


#: Of whoever has no account of their own, such as a node.
ORDINARY: Final = Account()
