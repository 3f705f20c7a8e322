"""A node's own word that it will end."""

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from compute.api.agent import HostView
from compute.api.notice_serializers import TerminationNotice
from compute.services.lifecycle.drain import Notice, take_notice
from nodes.api.agent import NodeAuthentication
from nodes.models import Node
from openrelay.api.auth import BearerAuthentication, bearer
from openrelay.core.clock import rfc3339
from openrelay.identity import secrets
from openrelay.identity.caller import Caller


class NodeOrBearerAuthentication(BaseAuthentication):
    """A node's credential, or that of anybody else, who is then told that there is nothing here."""

    def authenticate(self, request: Request) -> tuple[Caller, Node | str] | None:
        """The caller that the credential stands for, or None without one. Raises Unauthenticated."""
        if (bearer(request) or "").startswith(secrets.NODE_CREDENTIAL):
            return NodeAuthentication().authenticate(request)
        return BearerAuthentication().authenticate(request)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class NodeNotice(HostView):
    """Where a node announces its end, for a path that other callers do not know of."""

    operations = {"POST": "node_termination_notice"}
    authentication_classes = [NodeOrBearerAuthentication]

    def post(self, request: Request) -> Response:
        """Announce that this node will end."""
        data = self.read(TerminationNotice)
        node = take_notice(caller=self.caller, node_id=self.node.pk, notice=Notice(**data))
        assert node.terminate_at is not None  # noqa: S101 - what taking a notice leaves there
        return Response(
            {
                "nodeId": str(node.pk),
                "status": "draining" if node.removed_at is None else "removed",
                "terminateAt": rfc3339(node.terminate_at),
            }
        )
