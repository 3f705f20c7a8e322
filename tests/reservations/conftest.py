"""A small fleet: a provider's node of eight units, a tenant, an outsider, an operator, and how each calls."""

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
    clients: dict[str, APIClient] = field(default_factory=dict)

    def client(self, name: str) -> APIClient:
        """A client that calls as `platform`, `provider`, `tenant` or `outsider`, by a key with everything."""
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

    def act(self, verb: str, reservation: dict[str, Any], by: str = "platform", **body: Any) -> Any:
        """POST to the reservation's `verb`; returns the answer."""
        return self.client(by).post(f"{self.path}/{reservation['id']}/{verb}", body, format="json")

    def amend(self, reservation: dict[str, Any], by: str = "platform", **body: Any) -> Any:
        """PATCH the reservation; returns the answer."""
        return self.client(by).patch(f"{self.path}/{reservation['id']}", body, format="json")


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
    )
