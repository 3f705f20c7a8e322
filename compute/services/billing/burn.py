"""Compute what a workload and its organization spend, from usage sessions and the clock."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection

from compute.models import UsageSession, Workload
from compute.services.billing.usage_sessions import hourly_cents, open_session_of
from openrelay.core import clock
from openrelay.core.rows import Reading
from openrelay.identity.models import Organization

# At or below this balance, in cents, the balance is used up.
FLOOR_CENTS = 0

# Round down once, over the sum of all sessions: rounding each session would lose seconds of short ones.
_CENTS = """
coalesce(floor(sum(extract(epoch FROM coalesce(ended_at, {now}) - started_at) * cents_per_hour) / 3600), 0)
"""
_BILLED = "FROM compute_usagesession WHERE organization_id = %s::uuid AND NOT non_billable"


@dataclass(frozen=True, slots=True)
class Burn:
    """The spending of a workload and its organization, in cents."""

    workload: Workload
    session: UsageSession | None
    cents_per_hour: int
    accrued_cents: int | None  # of the open session
    org_accrued_cents: int
    org_cents_per_hour: int
    org_available_cents: int

    @property
    def runway_hours(self) -> float | None:
        """How many hours the balance lasts at this rate: 0 when it is used up, None without spending."""
        if not self.org_cents_per_hour:
            return None
        return max(0.0, (self.org_available_cents - FLOOR_CENTS) / self.org_cents_per_hour)


@dataclass(frozen=True, slots=True)
class Spent:
    """The spending of an organization so far, and its spending an hour now, in cents."""

    cents: int
    cents_per_hour: int


def spent(organization_id: UUID) -> Spent:
    """Sum what the organization has spent until now, over all its usage sessions."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_cents()}, coalesce(sum(cents_per_hour) FILTER (WHERE ended_at IS NULL), 0) {_BILLED}",
            [organization_id],
        )
        return Spent(*(int(value) for value in cursor.fetchone()))


def spent_by_sql() -> str:
    """A subquery with the result of `spent` as one row, for the organization aliased `org`."""
    rate = "coalesce(sum(cents_per_hour) FILTER (WHERE ended_at IS NULL), 0) AS cents_per_hour"
    billed = _BILLED.replace("%s::uuid", "org.id")
    return f"(SELECT {_cents()} AS cents, {rate} {billed})"


def spent_cents_query(organization_id: UUID) -> Reading:
    """The cents of `spent` as a query, to read together with others."""
    return Reading(f"(SELECT {_cents()} {_BILLED})", (organization_id,))


def _cents() -> str:
    return _CENTS.format(now=settings.CLOCK_SQL)


def burn(workload: Workload) -> Burn:
    """Read what the workload costs and its organization spends now. Always five queries.

    Without an open session, the rate is the one that the next session would lock. An unset balance counts as
    0.
    """
    at = clock.read()
    session = open_session_of(workload)
    cents = session.cents_per_hour if session else hourly_cents(workload) or 0
    balance = Organization.objects.values_list("balance_cents", flat=True).get(pk=workload.organization_id)
    by_all = spent(workload.organization_id)
    return Burn(
        workload=workload,
        session=session,
        cents_per_hour=cents,
        accrued_cents=_accrued(session, at) if session else None,
        org_accrued_cents=by_all.cents,
        org_cents_per_hour=by_all.cents_per_hour,
        org_available_cents=(balance or 0) - by_all.cents,
    )


def _accrued(session: UsageSession, at: datetime) -> int:
    """The cost of the session until `at`, in whole cents."""
    if session.non_billable:
        return 0
    microseconds = max(timedelta(), at - session.started_at) // timedelta(microseconds=1)
    return microseconds * session.cents_per_hour // 3_600_000_000
