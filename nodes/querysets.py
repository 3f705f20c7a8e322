"""Queries of nodes, GPU units and holds: visibility, status, phase."""

import datetime as dt
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import Case, F, Q, Value, When

from openrelay.core.clock import Now
from openrelay.identity.caller import Caller

# A moment: a time read from the database's clock, or the expression of that clock in the query.
Moment = dt.datetime | Now

OFFLINE_GRACE = dt.timedelta(seconds=settings.NODE_OFFLINE_GRACE_SECONDS)


class NodeStatus:
    """The statuses of a node, as the API spells them."""

    ONLINE, OFFLINE = "online", "offline"
    MAINTENANCE, DRAINING, REMOVED = "maintenance", "draining", "removed"
    ALL = (ONLINE, OFFLINE, MAINTENANCE, DRAINING, REMOVED)


class NodeQuerySet(models.QuerySet[Any]):
    """Nodes."""

    def visible_to(self, caller: Caller) -> Self:
        """Nodes of the caller's organization, or all nodes for an operator."""
        return self if caller.is_operator else self.filter(organization_id=caller.organization_id)

    def live(self) -> Self:
        """Nodes without `removed_at`."""
        return self.filter(removed_at=None)

    def online(self, at: Moment) -> Self:
        """Live nodes with a heartbeat within the grace period before `at`."""
        return self.live().filter(heartbeat__seen_at__gt=at - OFFLINE_GRACE)

    def silent(self, at: Moment) -> Self:
        """Live nodes without a heartbeat within the grace period before `at`."""
        return self.live().filter(
            Q(heartbeat=None) | Q(heartbeat__seen_at=None) | Q(heartbeat__seen_at__lte=at - OFFLINE_GRACE)
        )

    def with_status(self, at: Moment) -> Self:
        """Annotate `status` and `heard` at `at`. No other code decides the status.

        In order of precedence: removed (also if the announced removal time has passed), draining (also if a
        removal is announced), maintenance, online, offline. `heard` is true if the node has a heartbeat
        within the grace period, whatever its status.
        """
        heard = Q(heartbeat__seen_at__gt=at - OFFLINE_GRACE)
        return self.annotate(
            heard=Case(When(heard, then=Value(True)), default=Value(False)),
            status=Case(
                When(Q(removed_at__isnull=False) | Q(terminate_at__lte=at), then=Value(NodeStatus.REMOVED)),
                When(
                    Q(terminate_at__isnull=False) | Q(owner_hold="draining"), then=Value(NodeStatus.DRAINING)
                ),
                When(owner_hold="maintenance", then=Value(NodeStatus.MAINTENANCE)),
                When(heard, then=Value(NodeStatus.ONLINE)),
                default=Value(NodeStatus.OFFLINE),
                output_field=models.CharField(),
            ),
        )

    def leaving(self, at: Moment) -> Self:
        """Live nodes whose announced removal time has passed at `at`."""
        return self.live().filter(terminate_at__lte=at)

    def taking_new_work(self, at: Moment) -> Self:
        """Online nodes whose owner allows new workloads."""
        return self.online(at).filter(owner_hold="", terminate_at=None)


class GpuUnitQuerySet(models.QuerySet[Any]):
    """GPU units."""

    def present(self) -> Self:
        """Units that are not gone: the last inventory report of their node listed them."""
        return self.filter(gone_at=None)


class Phase:
    """The phases of a hold."""

    ENDED, NEEDS_REVIEW, PENDING, ACTIVE = "ended", "needs-review", "pending", "active"


def phase(at: Moment, prefix: str = "") -> Case:
    """Build the expression of a hold's phase at `at`. No other code decides the phase.

    `prefix` is the lookup that leads to the hold, for example "hold__". In order of precedence: ended,
    needs-review, pending, active.
    """

    def where(**lookups: Any) -> Q:
        return Q(**{prefix + name: value for name, value in lookups.items()})

    return Case(
        When(where(term__isempty=True) | where(term__endswith__lte=at), then=Value(Phase.ENDED)),
        When(~where(topology_gen=F(f"{prefix}node__topology_gen")), then=Value(Phase.NEEDS_REVIEW)),
        When(where(term__startswith__gt=at), then=Value(Phase.PENDING)),
        default=Value(Phase.ACTIVE),
        output_field=models.CharField(),
    )


class HoldQuerySet(models.QuerySet[Any]):
    """Holds."""

    def with_phase(self, at: Moment) -> Self:
        """Annotate `phase` at `at`; see `phase`."""
        return self.annotate(phase=phase(at))


class HoldUnitQuerySet(models.QuerySet[Any]):
    """Units in holds."""

    def in_term(self, at: Moment) -> Self:
        """Units whose hold is in its term at `at`, in whatever phase."""
        return self.filter(term__contains=at)
