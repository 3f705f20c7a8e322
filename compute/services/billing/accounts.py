"""Whether an organization may start what it is billed for."""

from typing import Any
from uuid import UUID

from compute.services.billing.burn import FLOOR_CENTS, spent, spent_cents
from openrelay.core.errors import Conflict
from openrelay.core.rows import Reading
from openrelay.identity.accounts import ACTIVE, STATUS_SQL
from openrelay.identity.caller import Caller


def account_of(organization_id: UUID) -> Reading:
    """How the organization stands now, for `require_means`: summed up only where it has a balance."""
    cents = spent_cents(organization_id)
    return Reading(
        f"(SELECT json_build_array({STATUS_SQL}, balance_cents,"  # noqa: S608  (constants)
        f" CASE WHEN balance_cents IS NOT NULL THEN {cents.sql} END)"
        " FROM identity_organization org WHERE id = %s::uuid)",
        (*cents.params, organization_id),
    )


def require_means(found: list[Any]) -> None:
    """Refuse what would be billed, by what `account_of` found, before anybody looks for room.

    It is decided again under the lock of a node. Raises Conflict ACCOUNT_RESTRICTED or INSUFFICIENT_BALANCE.
    """
    status, balance, cents = found
    _require_status(status)
    if balance is not None:
        _require_left(balance - int(cents))


def require_active(caller: Caller) -> None:
    """Refuse to start anything for an organization whose account is not active, as read with the rights.

    Raises Conflict ACCOUNT_RESTRICTED.
    """
    _require_status(caller.account.status)


def require_balance(caller: Caller) -> None:
    """Refuse to start what is billed for an organization that has nothing left to spend.

    What it has is its balance less what it has spent; one without a balance is never refused, and costs no
    query. Raises Conflict INSUFFICIENT_BALANCE.
    """
    balance = caller.account.balance_cents
    if balance is not None:
        _require_left(balance - spent(caller.organization_id).cents)


def _require_status(status: str) -> None:
    if status != ACTIVE:
        raise Conflict(
            f"The account of your organization is {status}. Nothing starts, and running workloads stop "
            "after a grace period. Ask an operator.",
            code="ACCOUNT_RESTRICTED",
        )


def _require_left(cents: int) -> None:
    if cents <= FLOOR_CENTS:
        raise Conflict(
            f"Your organization has {cents} cents left. Billed workloads start only above {FLOOR_CENTS} "
            "cents. Add to its balance first.",
            code="INSUFFICIENT_BALANCE",
        )
