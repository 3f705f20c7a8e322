"""A provider's node, organizations that buy, and the node's agent at one's hand."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from rest_framework.test import APIClient

from compute.models import Claim, Occupancy, SshKey, Workload
from nodes.models import GpuUnit, Node
from openrelay.identity.models import Organization
from reservations.services import booking, capacity
from tests import factories


@dataclass
class World:
    """Who is there, one API client a caller, and what the node's agent says."""

    node: Node
    provider: Organization
    tenant: Organization
    buyer: Organization
    keys: dict[Any, SshKey] = field(default_factory=dict)
    clients: dict[Any, APIClient] = field(default_factory=dict)
    sequence: int = 0

    def client(self, org: Organization) -> APIClient:
        """A client that calls as `org`, by a key that has everything."""
        if org.pk not in self.clients:
            client = APIClient()
            client.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.api_key(org)}")
            self.clients[org.pk] = client
        return self.clients[org.pk]

    def ask(self, org: Organization, headers: dict[str, str] | None = None, **body: Any) -> Any:
        """Ask for a VM of one GPU unless told otherwise; returns the answer."""
        if org.pk not in self.keys:
            self.keys[org.pk] = factories.ssh_key(org)
        data = {"name": "vm", "sshKeyIds": [str(self.keys[org.pk].pk)], "gpuCount": 1, **body}
        return self.client(org).post(
            f"/v1/orgs/{org.pk}/vms/create", {k: v for k, v in data.items() if v is not None}, headers=headers
        )

    def vm(self, org: Organization, **body: Any) -> Workload:
        """A VM of `org`, which must have been created."""
        answer = self.ask(org, **body)
        assert answer.status_code == 200, answer.content
        return Workload.objects.get(pk=answer.json()["id"])

    def terminate(self, org: Organization, made: Workload) -> Any:
        """POST terminate; returns the answer."""
        return self.client(org).post(f"/v1/vms/{made.pk}/terminate")

    def reserve(self, *units: int, node: Node | None = None, **terms: Any) -> Any:
        """Reserve units for the tenant, now and open-ended unless told otherwise."""
        return booking.reserve(
            caller=factories.operator(),
            node_id=(node or self.node).pk,
            unit_ids=[factories.address(unit) for unit in units],
            allowed_org_ids=[str(self.tenant.pk)],
            **terms,
        )

    def release(self, reservation: Any, *units: int) -> None:
        """Put units of a reservation on the spot market."""
        capacity.release(
            caller=factories.operator(),
            node_id=reservation.hold.node_id,
            reservation_id=reservation.pk,
            unit_ids=[factories.address(unit) for unit in units],
        )

    def units(self, made: Workload) -> list[int]:
        """The numbers of the units that the workload claims."""
        by_address = {factories.address(number): number for number in range(64)}
        claims = Claim.objects.filter(workload=made).values_list("unit__address", flat=True)
        return sorted(by_address[address] for address in claims)

    def agent(self, node: Node | None = None) -> APIClient:
        """A client that calls as the node's agent."""
        node = node or self.node
        if node.pk not in self.clients:
            client = APIClient()
            client.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.credential(node)}")
            self.clients[node.pk] = client
        return self.clients[node.pk]

    def work(self, node: Node | None = None) -> dict[str, dict[str, Any]]:
        """What the node is asked to do, by workload id."""
        answer = self.agent(node).get("/v1/agent/work")
        assert answer.status_code == 200, answer.content
        return {run["workloadId"]: run for run in answer.json()["runs"]}

    def says(self, *guests: tuple[Any, str], node: Node | None = None, **fields: Any) -> dict[str, Any]:
        """Have the agent report guests (a workload, or a run's id, and its state); returns the answer."""
        self.sequence += 1
        body = {
            "sequence": self.sequence,
            "guests": [{"runId": run_of(guest), "state": state} for guest, state in guests],
            **fields,
        }
        answer = self.agent(node).post("/v1/agent/reports", body)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def running(self, org: Organization, **body: Any) -> Workload:
        """A VM of `org` whose guest the agent reported running."""
        made = self.vm(org, **body)
        self.says((made, "running"), node=made.node)
        made.refresh_from_db()
        assert made.status == "running"
        return made


def run_of(guest: Any) -> str:
    """The id of a workload's latest run, or the id given."""
    return str(guest.runs.order_by("-number").first().pk) if isinstance(guest, Workload) else str(guest)


def state(made: Workload) -> tuple[str, str]:
    """The workload's status and statusReason now."""
    made.refresh_from_db()
    return made.status, made.status_reason


def refused(answer: Any, status: int, code: str, *words: str) -> str:
    """Assert that the answer is that error and says each of `words`; returns its sentence."""
    assert answer.status_code == status, answer.content
    body = answer.json()
    assert body["code"] == code, body
    for word in words:
        assert word in body["error"], body
    return body["error"]


def consistent() -> None:
    """Claims and occupancies agree with the workloads' states, however they came about."""
    for claim in Claim.objects.select_related("workload", "run"):
        assert claim.workload.status in ("pending", "deploying", "running", "interrupted")
        assert Occupancy.objects.open().filter(run=claim.run, unit=claim.unit).exists()
    for made in Workload.objects.filter(status__in=("pending", "deploying", "running", "interrupted")):
        units = GpuUnit.objects.filter(claims__workload=made)
        assert sum(unit.gpu_count for unit in units) == made.gpu_count


@pytest.fixture
def world(db: None) -> World:
    factories.platform()
    provider = factories.organization("Provider", is_provider=True)
    return World(
        node=factories.node(provider),
        provider=provider,
        tenant=factories.organization("Tenant"),
        buyer=factories.organization("Buyer"),
    )
