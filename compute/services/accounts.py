"""Whether an organization may start what it is billed for."""

from compute.services.burn import FLOOR_CENTS, spent
from openrelay.errors import Conflict
from openrelay.identity.accounts import ACTIVE
from openrelay.identity.caller import Caller


def require_active(caller: Caller) -> None:
    """Refuse to start anything for an organization whose account is not active, as read with the rights.

    Raises Conflict ACCOUNT_RESTRICTED.
    """
    if caller.account.status != ACTIVE:
        raise Conflict(
            f"The account of your organization is {caller.account.status}, so nothing new is started for it. "
            "What runs goes on. Ask an operator.",
            code="ACCOUNT_RESTRICTED",
        )


def require_balance(caller: Caller) -> None:
    """Refuse to start what is billed for an organization that has nothing left to spend.

    What it has is its balance less what it has spent; one without a balance is never refused, and costs no
    query. Raises Conflict INSUFFICIENT_BALANCE.
    """
    balance = caller.account.balance_cents
    if balance is None:
        return
    left = balance - spent(caller.organization_id).cents
    if left <= FLOOR_CENTS:
        raise Conflict(
            f"Your organization has {left} cents left, and nothing that is billed is started at "
            f"{FLOOR_CENTS} or below. Add to its balance first.",
            code="INSUFFICIENT_BALANCE",
        )
