"""Signs of life: when a node was last heard from, and what its agent can do."""

import datetime as dt

from nodes.levels import BASE
from nodes.models import Node, NodeHeartbeat
from nodes.querysets import OFFLINE_GRACE
from openrelay.core.clock import Now

# Often enough to tell who is online, seldom enough not to wear the table.
_HEARTBEAT_INTERVAL = dt.timedelta(seconds=3)


def record_heartbeat(node: Node, *, level: int = BASE, version: str = "") -> None:
    """Note that the node's agent spoke, of which level and version it is.

    Locks nothing: a heartbeat is a row of its own, and nobody waits for it.
    """
    fields = {"agent_level": level, "agent_version": version}
    heartbeats = NodeHeartbeat.objects.filter(node=node)
    if heartbeats.filter(seen_at__gt=Now() - _HEARTBEAT_INTERVAL, **fields).exists():
        return
    if not heartbeats.update(seen_at=Now(), **fields):
        NodeHeartbeat.objects.get_or_create(node=node, defaults={"seen_at": Now(), **fields})


def agent_level_of(node: Node) -> int:
    """The level that the node's agent last said it is of; the lowest for one that never spoke."""
    level = NodeHeartbeat.objects.filter(node=node).values_list("agent_level", flat=True).first()
    return BASE if level is None else level


def offline_since(node: Node) -> dt.datetime | None:
    """From when on a node that is silent is offline: the end of the grace after it was last heard from.

    None for one that never spoke.
    """
    seen_at: dt.datetime | None = (
        NodeHeartbeat.objects.filter(node=node).values_list("seen_at", flat=True).first()
    )
    return None if seen_at is None else seen_at + OFFLINE_GRACE
