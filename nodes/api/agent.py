"""Nodes' agents speaking for their own node, by its credential: the inventory, and the base of the rest."""

import datetime as dt

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from nodes.inventory import Inventory
from nodes.models import Node, NodeCredential, NodeHeartbeat
from nodes.services.inventory import take
from openrelay.api.auth import bearer
from openrelay.api.views import OperationView
from openrelay.audit.actor import Actor
from openrelay.clock import Now
from openrelay.errors import Unauthenticated
from openrelay.identity import secrets
from openrelay.identity.caller import Caller

# Often enough to tell who is online, seldom enough not to wear the table.
_HEARTBEAT_EVERY = dt.timedelta(seconds=3)


class NodeAuthentication(BaseAuthentication):
    """Reads `Authorization: Bearer` with a node's credential, and nothing else."""

    def authenticate(self, request: Request) -> tuple[Caller, Node] | None:
        """The node as a caller, or None without a credential. Raises Unauthenticated for any other."""
        secret = bearer(request)
        if secret is None:
            return None
        credential = (
            NodeCredential.objects.filter(
                digest=secrets.digest(secret), revoked_at=None, node__removed_at=None
            )
            .select_related("node__organization")
            .first()
        )
        if credential is None:
            raise Unauthenticated("This is not the credential of a node here. Enrol the node to get one.")
        node = credential.node
        caller = Caller(
            kind="node",
            organization_id=node.organization_id,
            organization_name=node.organization.name,
            is_operator=False,
            actions=frozenset(),
            actor=Actor(
                f"node:{node.pk}",
                source_ip=request._request.source_ip,  # type: ignore[attr-defined]
                request_id=request._request.request_id,  # type: ignore[attr-defined]
            ),
            node_id=node.pk,
        )
        return caller, node

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class AgentView(OperationView):
    """A path for agents. Every call, whatever comes of it, is a sign of life of its node."""

    authentication_classes = [NodeAuthentication]

    @property
    def node(self) -> Node:
        """The node whose agent is speaking."""
        node = self.request.auth
        assert isinstance(node, Node)  # noqa: S101 - what NodeAuthentication leaves there
        return node

    def relate(self, caller: Caller, operation: str | None) -> None:
        heard = NodeHeartbeat.objects.filter(node=self.node)
        if not heard.filter(seen_at__gt=Now() - _HEARTBEAT_EVERY).exists() and not heard.update(
            seen_at=Now()
        ):
            NodeHeartbeat.objects.get_or_create(node=self.node, defaults={"seen_at": Now()})


class AgentInventory(AgentView):
    """Where a node says what it has."""

    operations = {"POST": "agent_inventory"}

    def post(self, request: Request) -> Response:
        """Take the node's account of its hardware."""
        taken = take(self.node.pk, self.read(Inventory), actor=self.caller.actor)
        answer = {"topologyGen": taken.generation, "changed": taken.changed}
        return Response({**answer, "flagged": taken.flagged} if taken.flagged else answer)
