"""A provider with a node, tenants on it, and the provider's calls."""

from dataclasses import dataclass
from typing import Any

import pytest

from nodes.models import Node
from nodes.services.enrolment import enrol_node
from openrelay.audit.actor import OPERATOR
from openrelay.audit.models import AuditEvent
from openrelay.core import clock
from openrelay.identity.models import Organization
from tests import factories
from tests.compute.conftest import World, world

__all__ = ["world"]


@dataclass
class Provider:
    """The provider's operations on its nodes, over HTTP."""

    world: World

    @property
    def path(self) -> str:
        return f"/v1/orgs/{self.world.provider.pk}/provider"

    def get(self, what: str, **query: Any) -> Any:
        answer = self.world.client(self.world.provider).get(f"{self.path}/{what}", query)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def nodes(self, **query: Any) -> dict[str, dict[str, Any]]:
        """The listed nodes by hostname, in the order of the list."""
        return {row["hostname"]: row for row in self.get("nodes", **query)}

    def shown(self, node: Node | None = None) -> dict[str, Any]:
        """How the node reads now, removed or not."""
        return self.nodes(includeRemoved="true")[(node or self.world.node).hostname]

    def set(self, status: str, node: Node | None = None, by: Organization | None = None) -> Any:
        """PATCH the node's status; returns the answer."""
        by = by or self.world.provider
        return self.world.client(by).patch(
            f"/v1/orgs/{by.pk}/provider/nodes/{(node or self.world.node).pk}", {"status": status}
        )

    def offboard(self, node: Node, by: Organization | None = None, **body: Any) -> Any:
        """POST offboard; returns the answer."""
        by = by or self.world.provider
        return self.world.client(by).post(f"/v1/orgs/{by.pk}/provider/nodes/{node.pk}/offboard", body)

    def notice(self, node: Node | None = None, **body: Any) -> Any:
        """Have the node announce its own end; returns the answer."""
        return self.world.agent(node).post("/v1/nodes/termination-notice", body)

    def interruptible(self, units: int = 4, **fields: Any) -> Node:
        """An interruptible node of the provider, online, with so many units."""
        made = enrol_node(
            actor=OPERATOR,
            organization_id=self.world.provider.pk,
            hostname=f"spot-{clock.read().timestamp()}",
            node_class=Node.Class.INTERRUPTIBLE,
            **fields,
        )
        factories.inventory(made, units)
        factories.online(made)
        return made


@pytest.fixture
def provider(world: World) -> Provider:
    return Provider(world)


def events(target: Any) -> list[str]:
    """The names of the audit events about a thing, the oldest first."""
    rows = AuditEvent.objects.filter(target_id=str(target.pk)).order_by("created_at", "id")
    return list(rows.values_list("event", flat=True))
