"""Which audit events a caller sees."""

import uuid
from collections.abc import Mapping
from typing import Any, Self

from django.db import models
from django.db.models import Q

from openrelay.audit.kinds import ON_NODE


class Settled(models.Func):
    """The position below which no event is ever added, in the snapshot of the query that asks."""

    function = "openrelay_audit_settled"
    arity = 0
    output_field = models.BigIntegerField()


class AuditEventQuerySet(models.QuerySet[Any]):
    """Queries over the audit log."""

    def of_organization(self, organization_id: uuid.UUID) -> Self:
        """The events in one organization's log."""
        return self.filter(organization_id=organization_id)

    def settled(self) -> Self:
        """The events before which, by position, none will be added any more."""
        return self.filter(position__lt=Settled())

    def matching(self, filters: Mapping[str, Any], *, for_operators: bool) -> Self:
        """The events that read so, each filter exact; `since` is included, `until` is not.

        An organization finds events by what it reads of them, never by what is hidden from it.
        """
        found = self
        if "event" in filters:
            found = found.filter(event=filters["event"])
        if "actor" in filters:
            found = found.filter(**{"actor" if for_operators else "shown_actor": filters["actor"]})
        if "target_id" in filters:
            target = filters["target_id"]
            is_target = Q(target_id=target)
            if not for_operators:
                is_target = is_target & ~Q(event__in=ON_NODE) | Q(event__in=ON_NODE, after__nodeId=target)
            found = found.filter(is_target)
        if "since" in filters:
            found = found.filter(created_at__gte=filters["since"])
        if "until" in filters:
            found = found.filter(created_at__lt=filters["until"])
        return found
