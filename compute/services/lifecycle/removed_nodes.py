"""Revoke the credentials of removed nodes when their agents have nothing left to confirm."""

import datetime as dt
from typing import Final
from uuid import UUID

from django.db.models import Exists, OuterRef

from compute.models import Run
from nodes.models import Node, NodeCredential
from nodes.services.enrolment import revoke_node_credentials
from nodes.services.locking import locked
from openrelay.audit.services.record import SYSTEM
from openrelay.core import clock
from openrelay.core.errors import NotFound

# How long the agent of a removed node can still call and learn that the node was removed.
REVOKE_AFTER: Final = dt.timedelta(hours=1)
_REASON: Final = "The node was removed, and no guest is left there."


def retired_node_ids() -> list[UUID]:
    """Find removed nodes that have a credential and no open run, the longest removed first."""
    return list(
        Node.objects.filter(
            Exists(NodeCredential.objects.filter(node=OuterRef("pk"), revoked_at=None)),
            ~Exists(Run.objects.filter(node=OuterRef("pk"), closed_at=None)),
            removed_at__lte=clock.Now() - REVOKE_AFTER,
        )
        .order_by("removed_at", "id")
        .values_list("pk", flat=True)
    )


def revoke_retired(node_id: UUID) -> bool:
    """Revoke the credentials of a node that was removed over an hour ago and has no open run.

    Returns whether this call revoked any.
    """
    try:
        with locked(node_id) as held:
            removed_at = held.node.removed_at
            if removed_at is None or removed_at > held.at - REVOKE_AFTER:
                return False
            if Run.objects.filter(node=held.node, closed_at=None).exists():
                return False
            return revoke_node_credentials(held, actor=SYSTEM, reason=_REASON) > 0
    except NotFound:
        return False
