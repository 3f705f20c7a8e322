"""A small fleet: a provider's node of eight units, and how operator, owner, tenant and others call."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from rest_framework.test import APIClient

from nodes.models import Node
from openrelay.identity.models import Organization
from tests import factories


@dataclass
class Fleet:
    """Who is there, and one API client a caller."""

    node: Node
    platform: Organization
    provider: Organization
    tenant: Organization
    outsider: Organization
    manager: Organization
    clients: dict[str, APIClient] = field(default_factory=dict)

    def client(self, name: str) -> APIClient:
        """A client that calls as `platform`, `provider`, `tenant`, `manager` or `outsider`, by a key that
        has everything."""
        if name not in self.clients:
            client = APIClient()
            client.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.api_key(getattr(self, name))}")
            self.clients[name] = client
        return self.clients[name]

    @property
    def path(self) -> str:
        """The reservations of the node."""
        return f"/v1/nodes/{self.node.pk}/reservations"

    def reserve(self, *units: int, by: str = "platform", **body: Any) -> Any:
        """Reserve those units for the tenant; returns the answer."""
        data = {
            "unitIds": [factories.address(unit) for unit in units],
            "allowedOrgIds": [str(self.tenant.pk)],
            **body,
        }
        return self.client(by).post(self.path, data, format="json")

    def reserved(self, *units: int, **body: Any) -> dict[str, Any]:
        """Reserve those units for the tenant, which must succeed; returns the reservation."""
        answer = self.reserve(*units, **body)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def get(self, rest: str = "", by: str = "platform") -> Any:
        """GET a path below the node's reservations; returns the answer."""
        return self.client(by).get(f"{self.path}{rest}")

    def read(self, reservation: dict[str, Any]) -> dict[str, Any]:
        """The reservation as it reads now."""
        answer = self.get(f"/{reservation['id']}")
        assert answer.status_code == 200, answer.content
        return answer.json()

    def units(self) -> dict[str, dict[str, Any]]:
        """The node's unit list by unit id."""
        answer = self.get("/units")
        assert answer.status_code == 200, answer.content
        return {unit["id"]: unit for unit in answer.json()}

    def reports(self, units: Any, **fields: Any) -> Any:
        """Have the node report those units next; returns what became of the report."""
        return factories.inventory(self.node, units, **fields)

    def reclaim_spot(self, by: str = "provider", **body: Any) -> Any:
        """POST reclaim-spot on the node in the caller's own organization; returns the answer."""
        org = getattr(self, by)
        return self.client(by).post(
            f"/v1/orgs/{org.pk}/provider/nodes/{self.node.pk}/reclaim-spot", body, format="json"
        )

    def act(self, verb: str, reservation: dict[str, Any], by: str = "platform", **body: Any) -> Any:
        """POST to the reservation's `verb`; returns the answer."""
        return self.client(by).post(f"{self.path}/{reservation['id']}/{verb}", body, format="json")

    def amend(self, reservation: dict[str, Any], by: str = "platform", **body: Any) -> Any:
        """PATCH the reservation; returns the answer."""
        return self.client(by).patch(f"{self.path}/{reservation['id']}", body, format="json")


def refused(answer: Any, status: int, code: str, *words: str) -> str:
    """Assert that the answer is that error and says each of `words`; returns its sentence."""
    assert answer.status_code == status, answer.content
    body = answer.json()
    assert body["code"] == code, body
    for word in words:
        assert word in body["error"], body
    return body["error"]


@pytest.fixture
def fleet(db: None) -> Fleet:
    platform = factories.platform()
    provider = factories.organization("Provider", is_provider=True)
    return Fleet(
        node=factories.node(provider),
        platform=platform,
        provider=provider,
        tenant=factories.organization("Tenant"),
        outsider=factories.organization("Outsider"),
        manager=factories.organization("Manager"),
    )
