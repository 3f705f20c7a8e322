"""The provider's operations: its nodes, what it wants of them, and becoming a provider."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from compute.api.notice_serializers import TerminationNotice
from compute.services.lifecycle import drain
from nodes.models import Node, ProviderApplication
from nodes.services import applications
from openrelay.api.lists import answer_list
from openrelay.api.views import OrgView
from openrelay.core.errors import NotFound
from openrelay.identity.caller import Caller
from openrelay.identity.models import Organization
from reservations.api import presenters, provider_serializers
from reservations.api.views import id_or_nowhere
from reservations.services import provider_nodes


class ProviderNodes(OrgView):
    """The organization's own nodes."""

    operations = {"GET": "list_provider_nodes"}

    def get(self, request: Request, org_id: str) -> HttpResponseBase:
        """List the organization's nodes, the newest first."""
        query = self.read_query(provider_serializers.NodesQuery)
        page = {name: query.pop(name) for name in ("limit", "cursor")}
        return answer_list(
            provider_nodes.provider_nodes(self.caller.organization_id, **query),
            lambda rows: presenters.provider_nodes(provider_nodes.with_contents(rows)),
            request=request,
            **page,
        )


class OwnNodeView(OrgView):
    """A path of one node; another organization's is not there."""

    node: Node

    def relate(self, caller: Caller, operation: str | None) -> None:
        node = Node.objects.filter(
            organization_id=caller.organization_id, pk=id_or_nowhere(self.kwargs["node_id"])
        ).first()
        if node is None:
            raise NotFound()
        self.node = node

    def answer(self) -> dict[str, Any]:
        """The node as it is now."""
        found = provider_nodes.provider_node(self.caller.organization_id, self.node.pk)
        return presenters.provider_node(found)


class OneProviderNode(OwnNodeView):
    """One node of the organization's own."""

    operations = {"PATCH": "update_provider_node"}

    def patch(self, request: Request, org_id: str, node_id: str) -> Response:
        """Set what the owner wants of the node."""
        data = self.read(provider_serializers.UpdateNode)
        drain.set_status(caller=self.caller, node_id=self.node.pk, status=data["status"])
        return Response(self.answer())


class OffboardNode(OwnNodeView):
    """The announced end of an interruptible node."""

    operations = {"POST": "offboard_provider_node"}

    def post(self, request: Request, org_id: str, node_id: str) -> Response:
        """Have an interruptible node removed at a deadline, or now."""
        data = self.read(TerminationNotice)
        drain.offboard(caller=self.caller, node_id=self.node.pk, notice=drain.Notice(**data))
        return Response(self.answer())


class ProviderStats(OrgView):
    """How many nodes there are."""

    operations = {"GET": "get_provider_stats"}

    def get(self, request: Request, org_id: str) -> Response:
        """Count the organization's nodes."""
        counted = provider_nodes.stats(self.caller.organization_id)
        return Response(presenters.provider_stats(counted))


class ProviderStatus(OrgView):
    """Whether the organization is a provider."""

    operations = {"GET": "get_provider_status"}

    def get(self, request: Request, org_id: str) -> Response:
        """Say whether the organization is a provider, and what became of its application."""
        organization = Organization.objects.get(pk=self.caller.organization_id)
        latest = ProviderApplication.objects.filter(organization=organization).first()
        return Response(presenters.provider_status(organization, latest))


class ProviderApply(OrgView):
    """Becoming a provider."""

    operations = {"POST": "apply_for_provider"}

    def post(self, request: Request, org_id: str) -> Response:
        """Ask for the organization to become a provider."""
        data = self.read(provider_serializers.ApplyForProvider)
        applications.submit_application(caller=self.caller, note=data["note"])
        return Response(status=204)
