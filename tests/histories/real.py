"""The platform itself under test: real routes, keys and rows, its clock at one's hand."""

import base64
import datetime as dt
import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.test import Client

from compute import tasks as compute_tasks
from compute.models import Occupancy, ResourceSize, Run, SshKey, VmTemplate, Workload
from compute.services.access.ssh_keys import create_key
from compute.services.billing.prices import set_price
from nodes.models import FabricAddress, GpuModel, Location, Node, NodeHeartbeat
from nodes.services.fabrics import set_fabric, set_node_fabric
from openrelay.audit.actor import SYSTEM
from openrelay.core import clock
from openrelay.core.clock import Now
from openrelay.identity.accounts import ACTIVE, SUSPENDED
from openrelay.identity.models import Organization, User
from openrelay.identity.services.memberships import add_member, change_role, remove_member
from openrelay.identity.services.organizations import set_switches
from reservations import tasks as reservations_tasks
from tests import factories
from tests.histories import facts
from tests.support.travel import Clock

ORGS = ("platform", "provider", "manager", "tenant", "buyer")
# The last is for pods: AMD's, which agents have to be of a level for.
MODELS = ("nvidia-h100-sxm5-80gb", "nvidia-a100-sxm4-40gb", "amd-mi300x-192gb")
VRAM = dict(zip(MODELS, (80, 40, 192), strict=True))
AMD = frozenset({MODELS[2]})
REGIONS = ("north", "south", "east")  # the last has no nodes
NOWHERE = "nowhere"
TEMPLATES = {
    "plain": facts.Template(),
    "gpus": facts.Template(needs_gpu=True),
    "first": facts.Template(models=frozenset({MODELS[0]})),
    "amd": facts.Template(models=AMD, needs_gpu=True),
    "withdrawn": facts.Template(offered=False),
}
ADDRESSES = 2
PRICES = {"community": 200, "verified": 250, "spot": 90}
INVENTED = "0198c0de-0000-7000-8000-000000000000"
Runs = Mapping[str, Mapping[str, Any]]
_clients: list[Client] = []
_NUMBERS = {factories.address(number): number for number in range(32)}


def address(number: int) -> str:
    return factories.address(number)


def numbers(addresses: list[str]) -> frozenset[int]:
    return frozenset(_NUMBERS[text] for text in addresses)


def placed(runs: Runs) -> dict[tuple[str, int], facts.Placed]:
    """The runs by workload and number."""
    return {
        (row["workload"], row["number"]): facts.Placed(run_id, row["node"], row["units"])
        for run_id, row in runs.items()
    }


def public_key(number: int) -> str:
    """An SSH key, the same for the same number."""
    parts = (b"ssh-ed25519", bytes([number]) * 32)
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} key-{number}"


class Real:
    """Organizations with a key each, people who own the tenant and one who helps there, and nodes."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.now = clock.read().replace(microsecond=0)
        self.clock.freeze(self.now)
        platform = factories.platform()
        rest = {name: factories.organization(name.title()) for name in ORGS if name != "platform"}
        self.orgs: dict[str, Organization] = {"platform": platform, **rest}
        self.names = {str(org.pk): name for name, org in self.orgs.items()}
        self.ssh_keys = {str(self._ssh_key(org, 0).pk): name for name, org in self.orgs.items()}
        self.secrets = {name: factories.api_key(org) for name, org in self.orgs.items()}
        tenant = self.orgs["tenant"]
        factories.user(tenant)  # who stays when the others go
        boss, helper = factories.user(tenant), factories.user(tenant, role="viewer")
        self.people: dict[str, User] = {"boss": boss, "helper": helper}
        self.sign_in()
        self.key_ids: dict[str, str] = {}
        self.models = {
            slug: factories.gpu_model(
                slug,
                name=f"Model {slug}",
                manufacturer="AMD" if slug in AMD else "nvidia",
                vram_gb=VRAM[slug],
            )
            for slug in MODELS
        }
        self.sizes = dict(ResourceSize.objects.values_list("slug", "cents_per_hour"))
        self.levels: dict[str, int] = {}
        self.places, self.templates = self._places(), self._templates()
        self.fabric = set_fabric("fabric", name="Fabric", networks=["10.40.0.0/30"], actor=SYSTEM)
        self.slugs = {str(model.pk): slug for slug, model in self.models.items()}

    def sign_in(self) -> None:
        """The tenant's people sign in anew: sessions last for hours, and histories for weeks."""
        for name, person in self.people.items():
            self.secrets[name] = factories.session(person, self.orgs["tenant"])

    def _ssh_key(self, org: Organization, number: int) -> SshKey:
        owner = factories.caller(org)
        return create_key(caller=owner, name=f"key-{number}", public_key=public_key(number))

    def _places(self) -> dict[str, Location]:
        """A location a region."""
        made = [
            Location(slug=region, name=region.title(), city=region.title(), country="NO", region=region)
            for region in REGIONS
        ]
        return dict(zip(REGIONS, Location.objects.bulk_create(made), strict=True))

    def _templates(self) -> dict[str, VmTemplate]:
        made = VmTemplate.objects.bulk_create(
            VmTemplate(
                slug=name,
                name=name,
                filename=f"{name}.qcow2",
                os_type="ubuntu",
                requires_gpu=template.needs_gpu,
                offered=template.offered,
                manufacturer="AMD" if template.models == AMD else "",
            )
            for name, template in TEMPLATES.items()
        )
        for row in made:
            if not row.manufacturer and (suited := TEMPLATES[row.slug].models):
                row.gpu_models.set([self.models[slug] for slug in suited])
        return {row.slug: row for row in made}

    def given_by_size(self) -> dict[str, facts.Given]:
        """What VMs without GPUs get, by the table of sizes."""
        return {row.slug: facts.Given(row.ram_mb, row.vcpu, disk=0) for row in ResourceSize.objects.all()}

    def travel(self, seconds: float) -> dt.datetime:
        """Move the clock on, which stands still between two steps."""
        self.now += dt.timedelta(seconds=seconds)
        self.clock.freeze(self.now)
        return self.now

    def node(
        self,
        owner: str,
        runtime: str,
        interruptible: bool,
        units: dict[int, facts.Unit],
        host: facts.Host,
        region: str | None,
    ) -> str:
        """A node that was enrolled there and has reported its host and units."""
        made = Node.objects.create(
            organization=self.orgs[owner],
            hostname=f"node-{len(self.secrets)}",
            runtime=runtime,
            node_class=Node.Class.INTERRUPTIBLE if interruptible else Node.Class.PERSISTENT,
            location=self.places[region] if region is not None else None,
        )
        NodeHeartbeat.objects.create(node=made, seen_at=Now())
        name = str(made.pk)
        self.secrets[name] = factories.credential(made)
        status, body = self.inventory(name, units, host, sequence=1, complete=True)
        assert status == 200, body
        return name

    # Requests

    def ask(
        self, method: str, path: str, who: str, body: Any = None, key: str | None = None
    ) -> tuple[int, Any]:
        """One request by the credential of that name; its status and body, None for none."""
        headers = {"Authorization": f"Bearer {self.secrets[who]}"}
        if who in self.levels:
            headers["OpenRelay-Agent-Level"] = str(self.levels[who])
        if key is not None:
            headers["Idempotency-Key"] = key
        # A client is one thread's; making one loads the middleware anew.
        client = _clients.pop() if _clients else Client(raise_request_exception=False)
        answer = client.generic(
            method,
            path,
            "" if body is None else json.dumps(body),
            content_type="application/json",
            headers=headers,
        )
        _clients.append(client)
        facts.require(answer.status_code != 500, f"{method} {path} by {who} of {body}: 500")
        return answer.status_code, json.loads(answer.content) if answer.content else None

    def read(self, path: str, who: str = "platform") -> Any:
        """What GET answers, which has to be 200."""
        status, body = self.ask("GET", path, who)
        facts.require(status == 200, f"GET {path} by {who}: {status} {body}")
        return body

    def org_path(self, org: str, rest: str) -> str:
        return f"/v1/orgs/{self.orgs[org].pk}/{rest}"

    def org_ids(self, orgs: Any) -> list[str]:
        return sorted(str(self.orgs[org].pk) for org in orgs)

    def create_body(self, wish: facts.Wish) -> dict[str, Any]:
        """The body of the request that asks for it."""
        body: dict[str, Any] = {"sshKeyIds": [wish.ssh_key]}
        rest: dict[str, Any] = {
            "gpuCount": wish.count or None,
            "gpuModelId": str(self.models[wish.model].pk) if wish.model else None,
        }
        if wish.kind == facts.POD:
            body |= {"image": "ghcr.io/acme/trainer:1"}
            rest |= {"volumeGb": wish.disk, "shmSizeGb": wish.shared}
        else:
            body |= {"name": "vm", "tier": wish.tier}
            rest |= {
                "guestMemMb": wish.memory,
                "diskSizeGb": wish.disk,
                "resourceSize": wish.size or None,
                "nodeId": wish.node,
                "preferredRegions": list(wish.regions) or None,
                "allowFallback": wish.fallback or None,
                "templateId": self._template_id(wish.template),
            }
        return body | {name: value for name, value in rest.items() if value is not None}

    def _template_id(self, name: str | None) -> str | None:
        if name is None:
            return None
        return str(self.templates[name].pk) if name in self.templates else INVENTED

    def inventory(
        self, node: str, units: dict[int, facts.Unit], host: facts.Host, *, sequence: int, complete: bool
    ) -> tuple[int, Any]:
        """The node's agent reports its hardware; of its host it tells what is known."""
        listed = []
        for number, unit in sorted(units.items()):
            row = factories.unit_report(
                number, gpus=unit.gpus, model=unit.model, allocClass=unit.klass, sellable=unit.sellable
            )
            row["gpus"][0]["healthy"] = unit.healthy
            listed.append(row)
        figures = {
            "ramMb": host.ram,
            "cpuCores": host.cpus,
            "diskTotalGb": host.disk,
            "diskFreeGb": host.empty,
        }
        told = {name: figure for name, figure in figures.items() if figure is not None}
        body = {"sequence": sequence, "complete": complete, "units": listed, "host": told}
        return self.ask("POST", "/v1/agent/inventory", node, body)

    # What happens by itself, and at the server

    def sweep(self) -> None:
        compute_tasks.sweep_lost_nodes()
        compute_tasks.sweep_interrupted()
        compute_tasks.sweep_leaving_nodes()
        compute_tasks.sweep_accounts()
        compute_tasks.sweep_teardowns()
        compute_tasks.sweep_stuck()
        reservations_tasks.announce_all_due()

    def set_price(self, model: str, tier: str, cents: int) -> None:
        slug = GpuModel.objects.get(slug=model)
        set_price(actor=SYSTEM, gpu_model=slug, tier=tier, cents_per_gpu_hour=cents)

    def set_member(self, name: str, role: str | None, *, before: bool) -> None:
        """A person's place in the tenant is that role, built-in or not, or none; `before` is whether they had
        one. Who comes back signs in anew.
        """
        where = {"user_id": self.people[name].pk, "organization_id": self.orgs["tenant"].pk}
        if role is None:
            if before:
                remove_member(actor=SYSTEM, **where)
        elif before:
            change_role(actor=SYSTEM, role=role, **where)
        else:
            add_member(actor=SYSTEM, role=role, **where)
            self.secrets[name] = factories.session(self.people[name], self.orgs["tenant"])

    def set_infiniband(self, org: str, on: bool) -> None:
        set_switches(actor=SYSTEM, organization_id=self.orgs[org].pk, infiniband_enabled=on)

    def suspend(self, org: str, on: bool) -> None:
        set_switches(
            actor=SYSTEM,
            organization_id=self.orgs[org].pk,
            account_status=SUSPENDED if on else ACTIVE,
        )

    def enable_reservations(self, org: str, on: bool) -> None:
        set_switches(actor=SYSTEM, organization_id=self.orgs[org].pk, reservations_enabled=on)

    def set_balance(self, org: str, cents: int | None) -> None:
        set_switches(actor=SYSTEM, organization_id=self.orgs[org].pk, balance_cents=cents)

    def join(self, node: str, on: bool) -> None:
        set_node_fabric(UUID(node), self.fabric if on else None, actor=SYSTEM)

    # What is written down

    def leases(self) -> dict[str, str]:
        """Who has an address of the fabric, and on which node."""
        rows = FabricAddress.objects.exclude(holder=None).values_list("holder", "node_id")
        return {str(holder): str(node) for holder, node in rows}

    def runs(self) -> Runs:
        """Every run there is."""
        units: dict[Any, set[int]] = {}
        for run_id, where in Occupancy.objects.values_list("run_id", "unit__address"):
            units.setdefault(run_id, set()).add(_NUMBERS[where])
        return {
            str(row.pk): {
                "workload": str(row.workload_id),
                "node": str(row.node_id),
                "number": row.number,
                "units": frozenset(units.get(row.pk, ())),
                "wanted": row.desired == Run.Desired.RUNNING,
                "observed": row.observed,
                "open": row.closed_at is None,
                "reboots": row.reboots,
            }
            for row in Run.objects.all()
        }

    def workloads(self) -> dict[str, dict[str, Any]]:
        """Every workload there is."""
        return {
            str(row.pk): {
                "status": row.status,
                "reason": row.status_reason,
                "node": str(row.node_id),
                "public": row.public,
                "given": facts.Given(row.guest_mem_mb, row.guest_vcpu, row.disk_size_gb, row.shm_mb),
                "requested": row.requested_guest_mem_mb,
                "template": row.template.slug if row.template else None,
                "keys": {str(key.pk) for key in row.ssh_keys.all()},
            }
            for row in Workload.objects.select_related("template").prefetch_related("ssh_keys")
        }
