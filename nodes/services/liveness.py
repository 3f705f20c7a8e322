"""Heartbeats of nodes: when the agent last called, and its level."""

import datetime as dt

from nodes.levels import BASE
from nodes.models import Node, NodeHeartbeat
from nodes.querysets import OFFLINE_GRACE
from openrelay.core.clock import Now

# Short compared with OFFLINE_GRACE, and long enough to limit writes to the table.
_HEARTBEAT_INTERVAL = dt.timedelta(seconds=3)


def record_heartbeat(node: Node, *, level: int = BASE, version: str = "") -> None:
    """Record that the node's agent called, with its level and version.

    Does not lock the node: the heartbeat is a separate row. Writes at most once per _HEARTBEAT_INTERVAL
    unless the level or version changed.
    """
    fields = {"agent_level": level, "agent_version": version}
    heartbeats = NodeHeartbeat.objects.filter(node=node)
    if heartbeats.filter(seen_at__gt=Now() - _HEARTBEAT_INTERVAL, **fields).exists():
        return
    if not heartbeats.update(seen_at=Now(), **fields):
        NodeHeartbeat.objects.get_or_create(node=node, defaults={"seen_at": Now(), **fields})


def agent_level_of(node: Node) -> int:
    """Return the level that the node's agent last reported; BASE if it never called."""
    level = NodeHeartbeat.objects.filter(node=node).values_list("agent_level", flat=True).first()
    return BASE if level is None else level


def offline_since(node: Node) -> dt.datetime | None:
    """Return when the node goes or went offline: the end of the grace period after its last heartbeat.

    None if its agent never called.
    """
    seen_at: dt.datetime | None = (
        NodeHeartbeat.objects.filter(node=node).values_list("seen_at", flat=True).first()
    )
    return None if seen_at is None else seen_at + OFFLINE_GRACE
