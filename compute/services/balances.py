"""Telling organizations that their balance is low or used up: once each time it comes to be so.

What was told is a fact of the organization, with its time, and the grace period before its workloads are
stopped begins then. So nobody is stopped who was not told before, however late the sweep runs.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from compute.models import UsageSession
from compute.services.burn import FLOOR_CENTS, spent
from openrelay import clock
from openrelay.audit.services.record import SYSTEM, record
from openrelay.identity.models import Organization


@dataclass(frozen=True, slots=True)
class Balance:
    """What an organization has left, in cents, and what it spends an hour."""

    left_cents: int
    cents_per_hour: int

    @property
    def is_depleted(self) -> bool:
        """Whether nothing is left."""
        return self.left_cents <= FLOOR_CENTS

    @property
    def is_low(self) -> bool:
        """Whether what is left lasts for less than `BALANCE_LOW_HOURS` at this rate."""
        lasts_cents = self.cents_per_hour * settings.BALANCE_LOW_HOURS
        return self.is_depleted or self.left_cents - FLOOR_CENTS < lasts_cents


def balance_of(organization: Organization) -> Balance | None:
    """What the organization has left now; None where nobody has set its balance."""
    if organization.balance_cents is None:
        return None
    by_all = spent(organization.pk)
    return Balance(organization.balance_cents - by_all.cents, by_all.cents_per_hour)


def changing_ids() -> list[UUID]:
    """Organizations whose balance may have changed: something billed runs for them, or they were told."""
    spending = UsageSession.objects.open().filter(organization=OuterRef("pk"), non_billable=False)
    told = Q(balance_low_at__isnull=False) | Q(balance_depleted_at__isnull=False)
    rows = Organization.objects.live().filter(Exists(spending) | told, balance_cents__isnull=False)
    return list(rows.order_by("pk").values_list("pk", flat=True))


def note_balance(organization_id: UUID) -> bool:
    """Tell the organization what its balance has come to; returns whether there was something to tell.

    An event `balance.low` or `balance.depleted` each time it comes to be so, `balance.restored` when a
    balance that was used up no longer is; in the organization's audit log, by the system. Decided again with
    the organization's row locked.
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
    """The event that tells the change, and what it shows; no event for a low balance that is no longer."""
    shown: dict[str, Any] = {"leftCents": balance.left_cents, "centsPerHour": balance.cents_per_hour}
    if organization.balance_depleted_at is not None and was_depleted is None:
        stops_at = organization.balance_depleted_at + dt.timedelta(minutes=settings.BALANCE_GRACE_MINUTES)
        return "balance.depleted", {**shown, "stopsAt": clock.rfc3339(stops_at)}
    if was_depleted is not None and organization.balance_depleted_at is None:
        return "balance.restored", shown
    return ("balance.low", shown) if was_low is None else ("", shown)
