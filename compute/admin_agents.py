"""What operators decide about a node's agent in the console: to forget the order of its reports."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse

from compute.services.agents.agent_reset import reset_agent_as_operator
from nodes.admin_decisions import NodeDecisions, missing_node_response, reason_form
from nodes.models import Node
from nodes.services.enrolment import OPERATORS_ACTION
from openrelay.console.base import FactsAdmin
from openrelay.console.deciding import Decision, decide
from openrelay.identity.admin_decisions import pages_of
from openrelay.identity.caller import Caller

PAGES = {"compute_agentstate_reset": "Reset the order of reports"}
NodeDecisions.PAGES.update(PAGES)


class AgentDecisions:
    """The page of a node's agent: its order of reports is forgotten."""

    def __init__(self, admin: FactsAdmin) -> None:
        self.admin = admin

    def urls(self) -> list[URLPattern]:
        return pages_of(self.admin, {"reset": self.reset}, lambda pk: ("node", pk), OPERATORS_ACTION)

    def reset(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Forget the order of a node's reports; `pk` is the node's."""
        node = Node.objects.filter(pk=pk).first()
        if node is None:
            return missing_node_response(request)

        def take(caller: Caller, fields: dict[str, Any]) -> None:
            reset_agent_as_operator(caller=caller, node_id=pk, reason=fields["reason"])

        here = reverse("admin:nodes_node_change", args=[pk])
        decision = Decision(
            title="Reset order of reports",
            question=f"Forget the order of the reports of {node.hostname}?",
            effects=(
                "The next inventory and the next report of guests are taken, whatever their sequence.",
                "Until then an old report that arrives late is taken too.",
                "Hardware, guests and what runs stay as they are.",
                "The audit log keeps who did it, and why.",
            ),
            verb="Forget the order",
            action=OPERATORS_ACTION,
            target_type="node",
            target_id=pk,
            take=take,
            done=f"The next report of each kind of {node.hostname} is taken.",
            back_url=here,
            done_url=here,
        )
        return decide(request, self.admin, decision, reason_form(request))
