"""Deleting an organization: a fact with its time. Its rows stay: its usage, its audit log, its slug.

From then on its people and keys have no access to it, it joins no reservation, and it enrols no node. Its
workloads are ended by a task, node by node.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import transaction

from nodes.models import Node
from openrelay.audit.services.record import Actor, record
from openrelay.core import clock, jobs
from openrelay.core.clock import rfc3339
from openrelay.core.errors import Conflict, NotFound
from openrelay.identity.caller import Caller
from openrelay.identity.models import Organization
from openrelay.identity.services.callers import forget_keys, reread
from reservations.models import Reservation
from reservations.querysets import not_ended

# How many of the things in the way are named.
_NAMED: Final = 5


def delete_organization(*, caller: Caller) -> None:
    """Delete the organization that the caller acts in.

    Raises Forbidden without org.delete; Conflict ORG_IN_USE naming reservations in force that it is in or
    manages and nodes of its that are enrolled, INVALID_STATE for the platform ops organization.
    """
    with transaction.atomic():
        organization = _locked(caller.organization_id)
        caller, at = reread(caller)
        caller.require("org.delete")
        _delete(caller.actor, organization, at, "")


def delete_organization_as(*, actor: Actor, organization_id: UUID, reason: str = "") -> None:
    """Delete any organization, for the one who acts at the server; see `delete_organization`.

    Raises NotFound, Conflict also for one that was deleted before.
    """
    with transaction.atomic():
        organization = _locked(organization_id)
        _delete(actor, organization, clock.read(), reason)


def _locked(organization_id: UUID) -> Organization:
    # FOR UPDATE, which waits for every transaction that has written a row of this organization, and lets
    # none write another meanwhile: each takes FOR KEY SHARE on it.
    organization: Organization | None = (
        Organization.objects.select_for_update().filter(pk=organization_id).first()
    )
    if organization is None:
        raise NotFound()
    return organization


def _delete(actor: Actor, organization: Organization, at: datetime, reason: str) -> None:
    if organization.is_platform_ops:
        raise Conflict("The platform's own organization cannot be deleted.")
    if organization.deleted_at is not None:
        raise Conflict(f"{organization.name} was deleted before, at {rfc3339(organization.deleted_at)}.")
    _require_unused(organization, at)
    organization.deleted_at = at
    organization.save(update_fields=["deleted_at"])
    record(
        actor,
        "org.deleted",
        target_type="org",
        target_id=organization.pk,
        org_id=organization.pk,
        before={"name": organization.name, "slug": organization.slug},
        reason=reason,
        at=at,
    )
    transaction.on_commit(forget_keys)
    jobs.on_commit("compute.sweep_accounts")


def _require_unused(organization: Organization, at: datetime) -> None:
    """Raise Conflict ORG_IN_USE naming what has to end before the organization can be deleted."""
    contracts = Reservation.objects.filter(not_ended(at)).concerning(organization.pk)
    nodes = Node.objects.live().filter(organization=organization)
    found, remedies = [], []
    if held := list(contracts.order_by("pk").values_list("pk", flat=True)):
        found.append(f"it is in or manages reservations in force ({_names(held)})")
        remedies.append("Have an operator cancel the reservations or take the organization out of them.")
    if enrolled := list(nodes.order_by("hostname").values_list("hostname", flat=True)):
        found.append(f"it has enrolled nodes ({_names(enrolled)})")
        remedies.append("Set the nodes to removed.")
    if found:
        raise Conflict(
            f"{organization.name} cannot be deleted: {' and '.join(found)}. {' '.join(remedies)}",
            code="ORG_IN_USE",
        )


def _names(things: Sequence[object]) -> str:
    """The first few of them, and how many more there are."""
    more = f" and {len(things) - _NAMED} more" if len(things) > _NAMED else ""
    return ", ".join(str(thing) for thing in things[:_NAMED]) + more
