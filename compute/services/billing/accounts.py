"""Check whether an organization may start billed workloads."""

from typing import Any
from uuid import UUID

from compute.services.billing.burn import FLOOR_CENTS, spent, spent_cents_query
from openrelay.core.errors import Conflict
from openrelay.core.rows import Reading
from openrelay.identity.accounts import ACTIVE, STATUS_SQL
from openrelay.identity.caller import Caller


def account_query(organization_id: UUID) -> Reading:
    """Query the account status, the balance and, if a balance is set, the cents spent so far."""
    cents = spent_cents_query(organization_id)
    return Reading(
        f"(SELECT json_build_array({STATUS_SQL}, balance_cents,"  # noqa: S608  (constants)
        f" CASE WHEN balance_cents IS NOT NULL THEN {cents.sql} END)"
        " FROM identity_organization org WHERE id = %s::uuid)",
        (*cents.params, organization_id),
    )


def require_funded_account(found: list[Any]) -> None:
    """Refuse a billed request, by the result of `account_query`, before placement starts.

    Placement decides again under the lock of a node. Raises Conflict ACCOUNT_RESTRICTED or
    INSUFFICIENT_BALANCE.
    """
    status, balance, cents = found
    _require_status(status)
    if balance is not None:
        _require_left(balance - int(cents))


def require_active(caller: Caller) -> None:
    """Refuse to start anything for an organization whose account is not active.

    Uses the account status that was read with the caller's rights. Raises Conflict ACCOUNT_RESTRICTED.
    """
    _require_status(caller.account.status)


def require_balance(caller: Caller) -> None:
    """Refuse to start a billed workload for an organization whose balance is used up.

    Subtracts what the organization has spent from its balance. An organization without a balance is never
    refused, and needs no query. Raises Conflict INSUFFICIENT_BALANCE.
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
