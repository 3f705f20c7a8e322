"""How an organization stands with the platform."""

import datetime as dt
from dataclasses import dataclass
from typing import Final

ACTIVE: Final = "active"
#: Operators suspended it: nothing is started, and what runs is stopped after a grace period.
SUSPENDED: Final = "suspended"
#: What operators can set.
STATUSES: Final = (ACTIVE, SUSPENDED)
#: What it has left does not last long at the present rate.
BALANCE_LOW: Final = "balance_low"
#: Nothing is left: nothing that is billed is started, and what is billed is stopped after a grace period.
BALANCE_DEPLETED: Final = "balance_depleted"


@dataclass(frozen=True, slots=True)
class Account:
    """An organization's status, one of `STATUSES`, and what operators say it has, in cents; None: unknown."""

    status: str = ACTIVE
    balance_cents: int | None = None


#: Of whoever has no account of their own, such as a node.
ORDINARY: Final = Account()

#: The SQL of `Account.status`, of the organization aliased `org`.
STATUS_SQL: Final = f"CASE WHEN org.suspended_at IS NULL THEN '{ACTIVE}' ELSE '{SUSPENDED}' END"


def status_of(
    *,
    suspended_at: dt.datetime | None,
    balance_depleted_at: dt.datetime | None,
    balance_low_at: dt.datetime | None,
) -> str:
    """The status of an account as its organization is shown it: the gravest that is so."""
    if suspended_at is not None:
        return SUSPENDED
    if balance_depleted_at is not None:
        return BALANCE_DEPLETED
    return BALANCE_LOW if balance_low_at is not None else ACTIVE
