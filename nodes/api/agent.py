"""Authentication of nodes' agents, and the base class of the views that they call."""

import re
from typing import Any, ClassVar

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Exists, OuterRef
from rest_framework import status
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from nodes.levels import BASE, LEVEL_HEADER, VERSION_HEADER
from nodes.models import Node, NodeCredential, NodeIncident
from nodes.services.incidents import close_refused_incident, close_two_hosts_incident, record_refused_report
from nodes.services.liveness import record_heartbeat
from openrelay.api.auth import bearer
from openrelay.api.views import OperationView
from openrelay.audit.actor import Actor
from openrelay.core.clock import Now
from openrelay.core.errors import Invalid, Unauthenticated
from openrelay.identity import secrets
from openrelay.identity.caller import Caller

# The error codes of a body that the server cannot read: malformed, contradictory, too large, or of another
# type.
_UNREADABLE = ("VALIDATION_ERROR", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")
_LEVEL = re.compile(r"[1-9][0-9]{0,3}")
_VERSION = re.compile(r"[\x21-\x7e]{0,64}")


class NodeAuthentication(BaseAuthentication):
    """Authenticates a node by `Authorization: Bearer` with its credential."""

    def authenticate(self, request: Request) -> tuple[Caller, Node] | None:
        """Return the node and its caller, or None without a credential.

        Raises Unauthenticated for an unknown or revoked credential.
        """
        secret = bearer(request)
        if secret is None:
            return None
        credential = (
            NodeCredential.objects.filter(digest=secrets.digest(secret), revoked_at=None)
            .select_related("node__organization")
            .annotate(
                silent=Exists(Node.objects.silent(Now()).filter(pk=OuterRef("node"))),
                open_incidents=ArraySubquery(
                    NodeIncident.objects.filter(node=OuterRef("node"), ended_at=None).values("kind")
                ),
            )
            .first()
        )
        if credential is None:
            raise Unauthenticated(
                "The credential does not belong to a node. Enrol the node to get a credential."
            )
        node = credential.node
        node.was_silent = credential.silent
        node.open_incidents = credential.open_incidents
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
                organization_id=node.organization_id,
            ),
            node_id=node.pk,
        )
        return caller, node

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class AgentView(OperationView):
    """A view for agents. Every authenticated call with valid headers is a heartbeat, even if it is refused.

    The headers LEVEL_HEADER and VERSION_HEADER give the agent's level and version; the default is the lowest
    level. The credential of a removed node stays valid, so that the agent can tear down the remaining guests.
    """

    authentication_classes = [NodeAuthentication]
    #: The kind of incident that a refused report opens; empty for a view that takes no reports.
    incident_kind: ClassVar[str] = ""

    @property
    def node(self) -> Node:
        """The node whose agent calls."""
        node = self.request.auth
        assert isinstance(node, Node)  # noqa: S101 - what NodeAuthentication leaves there
        return node

    def relate(self, caller: Caller, operation: str | None) -> None:
        level = self.request.headers.get(LEVEL_HEADER, str(BASE))
        version = self.request.headers.get(VERSION_HEADER, "")
        if not _LEVEL.fullmatch(level):
            raise Invalid(f"{LEVEL_HEADER} must be a whole number from 1 to 9999.")
        if not _VERSION.fullmatch(version):
            raise Invalid(f"{VERSION_HEADER} must be at most 64 printable ASCII characters without spaces.")
        if self.node.was_silent:
            self.return_from_silence()
        record_heartbeat(self.node, level=int(level), version=version)

    def after_refusal(self, response: Response) -> None:
        """Record a report that the server could not read."""
        caller: Caller | None = getattr(self.request, "caller", None)
        if self.incident_kind and caller is not None and response.data.get("code") in _UNREADABLE:
            record_refused_report(
                self.node,
                self.incident_kind,
                operation=self.operation or "",
                status=response.status_code,
                error=response.data["error"],
                actor=caller.actor,
            )

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Response:
        if self.incident_kind and response.status_code == status.HTTP_200_OK and self.node.open_incidents:
            self._end_incidents()
        return super().finalize_response(request, response, *args, **kwargs)

    def _end_incidents(self) -> None:
        if self.incident_kind in self.node.open_incidents:
            close_refused_incident(self.node, self.incident_kind, actor=self.caller.actor)
        if NodeIncident.Kind.TWO_HOSTS in self.node.open_incidents:
            close_two_hosts_incident(self.node, actor=self.caller.actor)

    def return_from_silence(self) -> None:
        """Record that the node was offline, before the heartbeat of this call overwrites the evidence."""
        raise NotImplementedError
