"""Questions to the hardware: who sees a node, what is held when, in which phase a hold is."""

import datetime as dt
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import Case, F, Q, Value, When

from openrelay.core.clock import Now
from openrelay.identity.caller import Caller

# A moment: one that was read from the database's clock under a lock, or that clock in the query itself.
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
        """Nodes that `caller` has a relation to by ownership, or all for an operator."""
        return self if caller.is_operator else self.filter(organization_id=caller.organization_id)

    def live(self) -> Self:
        """Nodes that were not removed."""
        return self.filter(removed_at=None)

    def online(self, at: Moment) -> Self:
        """Nodes heard from within the grace before `at`."""
        return self.live().filter(heartbeat__seen_at__gt=at - OFFLINE_GRACE)

    def silent(self, at: Moment) -> Self:
        """Nodes that were not removed and that were not heard from within the grace before `at`."""
        return self.live().filter(
            Q(heartbeat=None) | Q(heartbeat__seen_at=None) | Q(heartbeat__seen_at__lte=at - OFFLINE_GRACE)
        )

    def with_status(self, at: Moment) -> Self:
        """Annotate `status` at `at`: the one place that decides it.

        Removed, or past its announced end; draining, or about to leave; in maintenance; else by whether it
        is heard from, which `heard` says whatever the status.
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
        """Nodes whose announced end has come by `at`, and that were not removed yet."""
        return self.live().filter(terminate_at__lte=at)

    def taking_new_work(self, at: Moment) -> Self:
        """Online nodes whose owner lets new workloads start there."""
        return self.online(at).filter(owner_hold="", terminate_at=None)


class GpuUnitQuerySet(models.QuerySet[Any]):
    """GPU units."""

    def present(self) -> Self:
        """Units that the node's last inventory had."""
        return self.filter(gone_at=None)


class Phase:
    """The phases of a hold."""

    ENDED, NEEDS_REVIEW, PENDING, ACTIVE = "ended", "needs-review", "pending", "active"


def phase(at: Moment, prefix: str = "") -> Case:
    """The phase of the hold reached by the lookup `prefix` ("hold__") at `at`, as an expression.

    Ended, needs-review, pending or active, in that order of precedence: the one place that decides it.
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
        """Units that are withheld from everybody else at `at`, the hold's phase apart."""
        return self.filter(term__contains=at)
