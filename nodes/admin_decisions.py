"""Console pages on which operators reissue or revoke the credentials of a node's agent."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse

from nodes.models import Node
from nodes.services.enrolment import (
    OPERATORS_ACTION,
    reissue_credential_as_operator,
    revoke_credentials_as_operator,
)
from openrelay.console.base import FactsAdmin
from openrelay.console.deciding import Decision, decide
from openrelay.console.forms import ReasonForm
from openrelay.identity.admin_decisions import pages_of
from openrelay.identity.caller import Caller

_AUDIT_NOTE = "The audit log keeps who did it, and why."


class NodeDecisions:
    """The decision pages of a node: reissue or revoke the credentials of its agent.

    Other apps add their own decision pages about a node to `PAGES`.
    """

    PAGES = {
        "nodes_node_reissue": "Issue a new credential",
        "nodes_node_revoke": "Revoke the credentials",
    }

    def __init__(self, admin: FactsAdmin) -> None:
        self.admin = admin

    def urls(self) -> list[URLPattern]:
        views = {"reissue": self.reissue, "revoke": self.revoke}
        return pages_of(self.admin, views, lambda pk: ("node", pk), OPERATORS_ACTION)

    def reissue(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Replace the credentials of the node's agent, and show the new one once."""
        node = Node.objects.filter(pk=pk).first()
        if node is None:
            return missing_node_response(request)

        def take(caller: Caller, fields: dict[str, Any]) -> str:
            return reissue_credential_as_operator(caller=caller, node_id=pk, reason=fields["reason"])

        removed = node.removed_at is not None
        node_url = reverse("admin:nodes_node_change", args=[pk])
        decision = Decision(
            title="Issue credential",
            question=(
                f"{node.hostname} was removed. Enrol it again for a new credential."
                if removed
                else f"Issue a new credential for the agent of {node.hostname}?"
            ),
            effects=()
            if removed
            else (
                "The new credential is shown once, on the next page.",
                *_revocation_effects(node),
                "What runs there goes on. The node counts as offline until its agent has the new credential.",
                _AUDIT_NOTE,
            ),
            verb="Issue the credential",
            action=OPERATORS_ACTION,
            target_type="node",
            target_id=pk,
            take=take,
            done=f"The new credential of {node.hostname}",
            back_url=node_url,
            done_url=node_url,
        )
        return decide(request, self.admin, decision, reason_form(request))

    def revoke(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Revoke the credentials of the node's agent."""
        node = Node.objects.filter(pk=pk).first()
        if node is None:
            return missing_node_response(request)

        def take(caller: Caller, fields: dict[str, Any]) -> None:
            revoke_credentials_as_operator(caller=caller, node_id=pk, reason=fields["reason"])

        revoked = _revocation_effects(node)
        node_url = reverse("admin:nodes_node_change", args=[pk])
        decision = Decision(
            title="Revoke credentials",
            question=(
                f"Revoke the credentials of the agent of {node.hostname}?"
                if revoked
                else f"The agent of {node.hostname} has no credential to revoke."
            ),
            effects=(
                *revoked,
                "The agent cannot report until it has a new credential: the node goes offline, and what runs "
                "there becomes interrupted.",
                "No unit is freed: guests may still run.",
                _AUDIT_NOTE,
            )
            if revoked
            else (),
            verb="Revoke",
            action=OPERATORS_ACTION,
            target_type="node",
            target_id=pk,
            take=take,
            done=f"The credentials of {node.hostname} are revoked.",
            back_url=node_url,
            done_url=node_url,
        )
        return decide(request, self.admin, decision, reason_form(request))


def reason_form(request: HttpRequest) -> ReasonForm:
    """Build the form that asks for the reason, bound on POST."""
    return ReasonForm(request.POST if request.method == "POST" else None)


def missing_node_response(request: HttpRequest) -> HttpResponse:
    """Redirect to the list of nodes with the message that the node does not exist."""
    messages.error(request, "There is no such node.")
    return HttpResponseRedirect(reverse("admin:nodes_node_changelist"))


def _revocation_effects(node: Node) -> list[str]:
    """Describe the effect of revocation on the node's current credentials."""
    prefixes = sorted(node.credentials.filter(revoked_at=None).values_list("prefix", flat=True))
    if not prefixes:
        return []
    return [f"{', '.join(f'{prefix}…' for prefix in prefixes)}: refused with 401 from now on."]
