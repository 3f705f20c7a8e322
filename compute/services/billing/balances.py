"""Notify organizations that their balance is low or used up, once each time that it becomes so.

The organization's row stores the time of each notice. The grace period before its workloads are stopped
begins at the notice, so a late sweep never stops the workloads of an organization without notice.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from compute.services.billing.burn import FLOOR_CENTS, spent, spent_by_sql
from openrelay.audit.services.record import SYSTEM, record
from openrelay.core import clock
from openrelay.identity.models import Organization


@dataclass(frozen=True, slots=True)
class Balance:
    """The cents that an organization has left, and the cents that it spends an hour."""

    left_cents: int
    cents_per_hour: int

    @property
    def is_depleted(self) -> bool:
        """Whether the balance is used up."""
        return self.left_cents <= FLOOR_CENTS

    @property
    def is_low(self) -> bool:
        """Whether the balance lasts for less than `BALANCE_LOW_HOURS` at this rate."""
        lasts_cents = self.cents_per_hour * settings.BALANCE_LOW_HOURS
        return self.is_depleted or self.left_cents - FLOOR_CENTS < lasts_cents


def balance_of(organization: Organization) -> Balance | None:
    """Read the organization's balance now; None when no operator has set it."""
    if organization.balance_cents is None:
        return None
    by_all = spent(organization.pk)
    return Balance(organization.balance_cents - by_all.cents, by_all.cents_per_hour)


# Organizations with a balance that have an open billed session or an earlier notice.
_CHANGING = """
SELECT org.id, org.balance_low_at IS NOT NULL, org.balance_depleted_at IS NOT NULL,
       org.balance_cents - spent.cents, spent.cents_per_hour
FROM identity_organization org CROSS JOIN LATERAL {spent} spent
WHERE org.balance_cents IS NOT NULL AND org.deleted_at IS NULL
  AND (org.balance_low_at IS NOT NULL OR org.balance_depleted_at IS NOT NULL OR EXISTS (
      SELECT FROM compute_usagesession open
      WHERE open.organization_id = org.id AND open.ended_at IS NULL AND NOT open.non_billable))
ORDER BY org.id
"""


def organization_ids_to_notify() -> list[UUID]:
    """Find organizations whose stored notices differ from their balance. One query, without locks."""
    with connection.cursor() as cursor:
        cursor.execute(_CHANGING.format(spent=spent_by_sql()))
        rows = cursor.fetchall()
    found = []
    for pk, told_low, told_depleted, left_cents, cents_per_hour in rows:
        balance = Balance(int(left_cents), int(cents_per_hour))
        if (balance.is_low, balance.is_depleted) != (told_low, told_depleted):
            found.append(pk)
    return found


def note_balance(organization_id: UUID) -> bool:
    """Update the organization's notices of a low or used-up balance. Returns whether they changed.

    The system writes an audit event to the organization's log: `balance.low` or `balance.depleted` when the
    balance becomes so, `balance.restored` when a used-up balance no longer is. Decided again with the
    organization's row locked.
    """
    with transaction.atomic():
        organization = (
            Organization.objects.live().select_for_update(no_key=True).filter(pk=organization_id).first()
        )
        if organization is None:
            return False
        at = clock.read()
        balance = balance_of(organization)
        if balance is None:
            return False
        was_low, was_depleted = organization.balance_low_at, organization.balance_depleted_at
        organization.balance_low_at = (was_low or at) if balance.is_low else None
        organization.balance_depleted_at = (was_depleted or at) if balance.is_depleted else None
        if (was_low, was_depleted) == (organization.balance_low_at, organization.balance_depleted_at):
            return False
        organization.save(update_fields=["balance_low_at", "balance_depleted_at"])
        event, shown = _event(organization, balance, was_low=was_low, was_depleted=was_depleted)
        if event:
            record(
                SYSTEM,
                event,
                target_type="org",
                target_id=organization.pk,
                org_id=organization.pk,
                after=shown,
                at=at,
            )
    return True


def _event(
    organization: Organization,
    balance: Balance,
    *,
    was_low: dt.datetime | None,
    was_depleted: dt.datetime | None,
) -> tuple[str, dict[str, Any]]:
    """The audit event of the change, and its values. A low balance that recovers has no event ('')."""
    shown: dict[str, Any] = {"leftCents": balance.left_cents, "centsPerHour": balance.cents_per_hour}
    if organization.balance_depleted_at is not None and was_depleted is None:
        stops_at = organization.balance_depleted_at + dt.timedelta(minutes=settings.BALANCE_GRACE_MINUTES)
        return "balance.depleted", {**shown, "stopsAt": clock.rfc3339(stops_at)}
    if was_depleted is not None and organization.balance_depleted_at is None:
        return "balance.restored", shown
    return ("balance.low", shown) if was_low is None else ("", shown)
