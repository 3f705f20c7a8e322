"""What the console is shown with: operators, and reservations on a node that changed under them."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from nodes.models import Node
from openrelay.core import clock
from openrelay.identity.models import Organization, User
from reservations.models import Reservation
from reservations.services.booking import reserve
from tests import factories
from tests.reservations import makers

PASSWORD = "correct horse battery"


@dataclass
class World:
    """Who and what there is."""

    platform: Organization
    provider: Organization
    tenant: Organization
    other: Organization
    operator: User
    viewer: User
    outsider: User
    node: Node

    def reserve(self, *units: int, ref: str = "CT-1", **fields: Any) -> Reservation:
        """A reservation of those units for the tenant, ending in 30 days unless told otherwise."""
        fields.setdefault("ends_at", clock.read() + timedelta(days=30))
        return reserve(
            caller=factories.operator(),
            node_id=self.node.pk,
            unit_ids=[factories.address(unit) for unit in units],
            allowed_org_ids=fields.pop("audience", [str(self.tenant.pk)]),
            contract_ref=ref,
            reason=fields.pop("reason", "Training run of the spring"),
            **fields,
        )

    def change(self) -> None:
        """Unit 2 comes back with another model and two GPUs, unit 7 is lost, unit 8 is new."""
        factories.gpu_model("nvidia-h200-sxm-141gb", name="NVIDIA H200 SXM 141 GB", vram_gb=141)
        units = [factories.unit_report(number) for number in (0, 1, 3, 4, 5, 6, 8)]
        units.append(factories.unit_report(2, gpus=2, model="nvidia-h200-sxm-141gb"))
        factories.inventory(self.node, units)

    def workload(self, org: Organization, *units: int, **fields: Any) -> Any:
        """A running workload on those units."""
        return makers.workload(self.node, org, units, tier=fields.pop("tier", "community"), **fields)


def build() -> World:
    """Operators, a viewer, an outsider, and an online node of eight units."""
    platform = factories.platform()
    provider = factories.organization("North Provider", is_provider=True)
    tenant = factories.organization("Acme Research")
    return World(
        platform=platform,
        provider=provider,
        tenant=tenant,
        other=factories.organization("Bystander Labs"),
        operator=factories.user(platform, "owner", email="ops@example.com"),
        viewer=factories.user(platform, "viewer", email="viewer@example.com"),
        outsider=factories.user(tenant, "owner", email="tenant@example.com"),
        node=factories.node(provider),
    )
