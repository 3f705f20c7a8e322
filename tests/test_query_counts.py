"""How many queries each operation costs: the same for ten rows as for a thousand, and never more than it did.

BUDGETS may only fall: a route that needs fewer than its budget fails here until the lower number is written.
"""

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange
from django.test import Client
from django.test.utils import CaptureQueriesContext

from compute.models import GpuPrice, OrgGpuPrice, SshKey, UsageSession, VmTemplate, Workload
from nodes.models import Gpu, GpuModel, GpuUnit, Hold, HoldAudience, HoldUnit, Location, Node, NodeHeartbeat
from openrelay.api.lists import PAGE_ROWS
from openrelay.audit.models import AuditEvent
from openrelay.core import clock
from openrelay.core.clock import Now
from openrelay.core.ids import new_id
from openrelay.identity.models import ApiKey, Membership, Organization, Role, User
from openrelay.identity.operations import OPERATIONS
from openrelay.identity.services.callers import forget_keys
from reservations.models import Reservation, ReservationManager
from tests import factories
from tests.reservations import makers
from tests.reservations.conftest import Fleet, fleet
from tests.test_permission_matrix import ROUTES

__all__ = ["fleet"]

pytestmark = pytest.mark.django_db

HOUR = dt.timedelta(hours=1)

# Reading the caller's key is one of them everywhere.
BUDGETS = {
    "list_node_reservations": 3,
    "get_node_reservation": 3,
    "list_reservation_units": 4,
    "list_org_reservations": 2,
    "list_org_vms": 2,
    "list_pods": 2,
    "list_pod_capacity": 4,
    "get_vm": 2,
    "get_vm_detail": 6,
    "get_vm_metrics": 3,
    "get_vm_ssh_keys": 4,
    "get_vm_logs": 3,
    "get_pod_logs": 3,
    "list_org_ssh_keys": 3,
    "list_org_api_keys": 3,
    "list_gpu_models": 2,
    "list_locations": 2,
    "list_vm_templates": 4,
    "get_pricing": 3,
    "get_vm_burn": 7,
    "get_gpu_availability": 4,
    "list_audit_events": 2,
    "list_roles": 3,
    "get_role": 3,
    "get_org": 2,
    "list_org_members": 2,
    "whoami": 2,
    "get_me": 2,
    "get_permission_catalog": 2,
    "get_effective_access": 3,
    "list_provider_nodes": 4,
    "get_provider_stats": 2,
    "get_provider_status": 3,
    "agent_work": 7,
}

CHANGES = {"reserve": 5, "amend": 15, "reaffirm": 17, "release": 11, "reclaim": 12, "cancel": 11}


# What fills each list with `number` rows


def reservations(fleet: Fleet, number: int) -> None:
    """Reservations of unit 0, one after the other."""
    at = clock.read()
    unit = GpuUnit.objects.get(node=fleet.node, address=factories.address(0))
    first = at + HOUR * 10 * number
    terms = [DateTimeTZRange(first + HOUR * n, first + HOUR * (n + 1)) for n in range(number)]
    holds = Hold.objects.bulk_create(
        Hold(id=new_id(), node=fleet.node, term=term, topology_gen=fleet.node.topology_gen) for term in terms
    )
    for org in (fleet.platform, fleet.tenant):
        HoldAudience.objects.bulk_create(HoldAudience(hold=hold, organization=org) for hold in holds)
    HoldUnit.objects.bulk_create(
        HoldUnit(
            hold=hold,
            node=fleet.node,
            unit=unit,
            term=hold.term,
            pinned_class=unit.alloc_class,
            pinned_model=unit.gpu_model,
            pinned_gpu_count=1,
        )
        for hold in holds
    )
    contracts = Reservation.objects.bulk_create(
        Reservation(
            hold=hold,
            starts_at=hold.term.lower,
            ends_at=hold.term.upper,
            created_by="operator",
            created_at=at,
            updated_at=at,
            pinned_at=at,
        )
        for hold in holds
    )
    ReservationManager.objects.bulk_create(
        ReservationManager(reservation=contract, organization=fleet.manager) for contract in contracts
    )


def units(fleet: Fleet, number: int) -> None:
    model = factories.gpu_model()
    rows = GpuUnit.objects.bulk_create(
        GpuUnit(
            node=fleet.node,
            address=f"{number:04x}:{n // 32:02x}:{n % 32:02x}.0",
            alloc_class="vfio-group",
            gpu_model=model,
            gpu_count=1,
        )
        for n in range(number)
    )
    Gpu.objects.bulk_create(Gpu(unit=row, address=row.address, failed_at=Now()) for row in rows)


def pods(fleet: Fleet, number: int) -> None:
    workloads(fleet, number)
    Workload.objects.filter(name__startswith="vm-").update(kind="pod", compute_class="on_demand")


def pod_nodes(fleet: Fleet, number: int) -> None:
    """Nodes for pods, each with a unit of a model of its own."""
    nodes(fleet, number)
    prices(fleet, number)
    rows = list(Node.objects.filter(hostname__startswith=f"many-{number}-"))
    Node.objects.filter(pk__in=[row.pk for row in rows]).update(runtime="runc")
    models = GpuModel.objects.filter(slug__startswith=f"model-{number}-")
    GpuPrice.objects.filter(gpu_model__in=models).update(tier="community")
    units = GpuUnit.objects.filter(node__in=rows)
    for unit, model in zip(units, models, strict=True):
        unit.gpu_model, unit.alloc_class = model, "device-request"
    GpuUnit.objects.bulk_update(units, ["gpu_model", "alloc_class"])


def nodes(fleet: Fleet, number: int) -> None:
    model = factories.gpu_model()
    rows = Node.objects.bulk_create(
        Node(organization=fleet.provider, hostname=f"many-{number}-{n}", ram_mb=1024 * 1024, cpu_cores=64)
        for n in range(number)
    )
    NodeHeartbeat.objects.bulk_create(NodeHeartbeat(node=row, seen_at=Now()) for row in rows)
    GpuUnit.objects.bulk_create(
        GpuUnit(
            node=row, address=factories.address(0), alloc_class="vfio-group", gpu_model=model, gpu_count=1
        )
        for row in rows
    )


def workloads(fleet: Fleet, number: int) -> None:
    at, model = clock.read(), factories.gpu_model()
    Workload.objects.bulk_create(
        Workload(
            organization=fleet.tenant,
            name=f"vm-{n}",
            status="stopped",
            node=fleet.node,
            gpu_model=model,
            gpu_count=1,
            disk_size_gb=100,
            created_by="key:test",
            created_at=at,
            updated_at=at,
        )
        for n in range(number)
    )


def ssh_keys(fleet: Fleet, number: int) -> None:
    SshKey.objects.bulk_create(
        SshKey(
            organization=fleet.tenant,
            name=f"key-{number}-{n}",
            public_key="ssh-ed25519 AAAA",
            fingerprint=f"SHA256:{number}-{n}",
            created_by="operator",
            created_at=clock.read(),
        )
        for n in range(number)
    )


def api_keys(fleet: Fleet, number: int) -> None:
    person = factories.user(fleet.tenant)
    ApiKey.objects.bulk_create(
        ApiKey(
            organization=fleet.tenant,
            name=f"key-{number}-{n}",
            sha256=f"{number:032}{n:032}",
            prefix="or_",
            created_by=person,
            created_at=Now(),
        )
        for n in range(number)
    )


def gpu_models(fleet: Fleet, number: int) -> None:
    GpuModel.objects.bulk_create(
        GpuModel(slug=f"model-{number}-{n}", name=f"Model {n}", manufacturer="acme", vram_gb=8)
        for n in range(number)
    )


def locations(fleet: Fleet, number: int) -> None:
    Location.objects.bulk_create(
        Location(slug=f"place-{number}-{n}", name=f"Place {n}", city="Oslo", country="NO", region="north")
        for n in range(number)
    )


def templates(fleet: Fleet, number: int) -> None:
    VmTemplate.objects.bulk_create(
        VmTemplate(slug=f"template-{number}-{n}", name=f"Template {n}", filename="a.img", os_type="debian")
        for n in range(number)
    )


def prices(fleet: Fleet, number: int) -> None:
    gpu_models(fleet, number)
    at = clock.read()
    models = GpuModel.objects.filter(slug__startswith=f"model-{number}-")
    values = [
        {"gpu_model": model, "tier": "spot", "cents_per_gpu_hour": 1, "updated_at": at} for model in models
    ]
    GpuPrice.objects.bulk_create(GpuPrice(**row) for row in values)
    OrgGpuPrice.objects.bulk_create(OrgGpuPrice(organization=fleet.tenant, **row) for row in values)


def sessions(fleet: Fleet, number: int) -> None:
    at, made = clock.read(), Workload.objects.filter(organization=fleet.tenant).latest("created_at")
    UsageSession.objects.bulk_create(
        UsageSession(
            workload=made,
            organization=fleet.tenant,
            node=fleet.node,
            node_owner=fleet.provider,
            tier="community",
            cents_per_hour=100,
            started_at=at - HOUR * (number * 10 + n + 1),
            ended_at=at - HOUR * (number * 10 + n),
        )
        for n in range(number)
    )


def events(fleet: Fleet, number: int) -> None:
    AuditEvent.objects.bulk_create(
        AuditEvent(
            created_at=Now(),
            actor="operator",
            organization=fleet.tenant,
            event="vm.created",
            target_type="vm",
            target_id=str(n),
            before={"a": 1},
            after={"a": 2},
        )
        for n in range(number)
    )


def memberships(fleet: Fleet, number: int) -> None:
    orgs = Organization.objects.bulk_create(
        Organization(name="Org", slug=f"{number}-{n}", short_id=f"{number}-{n}", created_at=Now())
        for n in range(number)
    )
    Membership.objects.bulk_create(
        Membership(
            user=User.objects.latest("created_at"),
            organization=org,
            role="viewer",
            invited_at=Now(),
            joined_at=Now(),
        )
        for org in orgs
    )


def roles(fleet: Fleet, number: int) -> None:
    maker = factories.user(fleet.tenant)
    members(fleet, number)
    Role.objects.bulk_create(
        Role(
            organization=fleet.tenant,
            name=f"Role {number} {n}",
            permissions=["compute.read"],
            created_by=maker,
            created_at=Now(),
            updated_by=maker,
            updated_at=Now(),
        )
        for n in range(number)
    )


def members(fleet: Fleet, number: int) -> None:
    own = factories.role(fleet.tenant, factories.user(fleet.tenant))
    people = User.objects.bulk_create(
        User(email=f"many-{number}-{n}@example.com", created_at=Now()) for n in range(number)
    )
    Membership.objects.bulk_create(
        Membership(
            user=person,
            organization=fleet.tenant,
            custom_role=own,
            invited_at=Now(),
            joined_at=Now(),
        )
        for person in people
    )


def nothing(fleet: Fleet, number: int) -> None:
    pass


FILLERS: dict[str, tuple[str, Callable[[Fleet, int], None]]] = {
    "list_node_reservations": ("platform", reservations),
    "get_node_reservation": ("platform", reservations),
    "list_reservation_units": ("provider", units),
    "list_org_reservations": ("tenant", reservations),
    "list_org_vms": ("tenant", workloads),
    "list_pods": ("tenant", pods),
    "list_pod_capacity": ("tenant", pod_nodes),
    "get_vm": ("tenant", workloads),
    "get_vm_detail": ("tenant", workloads),
    "get_vm_metrics": ("tenant", workloads),
    "get_vm_ssh_keys": ("tenant", ssh_keys),
    "get_vm_logs": ("tenant", workloads),
    "get_pod_logs": ("tenant", workloads),
    "list_org_ssh_keys": ("tenant", ssh_keys),
    "list_org_api_keys": ("tenant", api_keys),
    "list_gpu_models": ("tenant", gpu_models),
    "list_locations": ("tenant", locations),
    "list_vm_templates": ("tenant", templates),
    "get_pricing": ("tenant", prices),
    "get_vm_burn": ("tenant", sessions),
    "get_gpu_availability": ("tenant", nodes),
    "list_audit_events": ("tenant", events),
    "list_roles": ("tenant", roles),
    "get_role": ("tenant", roles),
    "get_org": ("tenant", members),
    "list_org_members": ("tenant", members),
    "whoami": ("tenant", nothing),
    "get_me": ("session", memberships),
    "get_permission_catalog": ("tenant", nothing),
    "get_effective_access": ("tenant", nothing),
    "list_provider_nodes": ("provider", nodes),
    "get_provider_stats": ("provider", nodes),
    "get_provider_status": ("provider", nothing),
    "agent_work": ("node", units),
}
READS = [route for route in ROUTES if route.method == "GET" and not OPERATIONS[route.operation].public]


# Lists that are answered whole, with the queries of each further page of PAGE_ROWS rows.
WHOLE = {
    "list_node_reservations": 1,
    "list_org_reservations": 1,
    "list_provider_nodes": 3,
    "list_org_ssh_keys": 2,
    "list_org_api_keys": 1,
    "list_org_members": 1,
}


def test_every_read_has_a_budget() -> None:
    assert {route.operation for route in READS} == FILLERS.keys() == BUDGETS.keys()


class Reading:
    """What each read is asked of on a fleet, and by whom."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.reservation = fleet.reserved(1)
        self.workload = makers.workload(fleet.node, fleet.tenant, [2])
        self.role = factories.role(fleet.tenant, factories.user(fleet.tenant))
        self.secrets: dict[str, str] = {}

    def secret(self, who: str) -> str:
        """A credential of an organization of the fleet, of its node, or a session in its tenant."""
        if who not in self.secrets:
            if who == "session":
                self.secrets[who] = factories.session(factories.user(self.fleet.tenant), self.fleet.tenant)
            elif who == "node":
                self.secrets[who] = factories.credential(self.fleet.node)
            else:
                self.secrets[who] = factories.api_key(getattr(self.fleet, who))
        return self.secrets[who]

    def of(self, route: Any, **query: object) -> tuple[int, bytes]:
        """Ask it, its key unknown to the process; returns how many queries that took, and the answer."""
        who, _ = FILLERS[route.operation]
        org = getattr(self.fleet, who, self.fleet.tenant) if who != "node" else self.fleet.tenant
        path = "/" + route.path
        for name, value in {
            "node_id": self.fleet.node.pk,
            "reservation_id": self.reservation["id"],
            "org_id": org.pk,
            "vm_id": self.workload.pk,
            "pod_id": self.workload.pk,
            "role_id": self.role.pk,
        }.items():
            path = path.replace(f"<str:{name}>", str(value))
        forget_keys()
        # What is asked on a connection beside the request's would be missed; in a transaction nothing is.
        with transaction.atomic(), CaptureQueriesContext(connection) as queries:
            answer = Client().get(path, query, headers={"Authorization": f"Bearer {self.secret(who)}"})
            content = b"".join(answer) if answer.streaming else answer.content
        assert answer.status_code == 200, content
        return len(queries), content


def further_pages(operation: str, content: bytes) -> int:
    """The queries that a list answered whole makes for the rows after its first page."""
    if operation not in WHOLE:
        return 0
    pages = (len(json.loads(content)) - 1) // PAGE_ROWS
    # And one that reads the ids of their rows.
    return WHOLE[operation] * pages + bool(pages)


@pytest.mark.parametrize("route", READS, ids=lambda route: route.operation)
def test_a_read_costs_the_same_for_ten_rows_as_for_a_thousand(route: Any, fleet: Fleet) -> None:
    _, fill = FILLERS[route.operation]
    reading = Reading(fleet)
    fill(fleet, 10)
    reading.of(route)  # the first use of a key within a minute is noted
    few, small = reading.of(route)
    fill(fleet, 1000)
    NodeHeartbeat.objects.update(seen_at=Now())
    many, large = reading.of(route)
    expected = few + further_pages(route.operation, large)
    assert many == expected, f"{route.operation}: {few} queries for 10 rows, {many} for 1,000"
    if route.operation.startswith("list_"):
        assert len(large) > len(small)
    budget = BUDGETS[route.operation]
    assert few <= budget, f"{route.operation} costs {few} queries; it may cost {budget}"
    assert few == budget, f"{route.operation} costs only {few} queries now; write that into BUDGETS"


@pytest.mark.parametrize("change", ["reserve", "amend", "reaffirm", "release", "reclaim", "cancel"])
def test_a_change_of_a_reservation_costs_the_same_for_one_unit_as_for_seven(
    change: str, fleet: Fleet
) -> None:
    def costs(first: int, numbers: range) -> int:
        addresses = [factories.address(number) for number in numbers]
        made = fleet.reserved(*numbers) if change != "reserve" else {}
        if change == "reclaim":
            fleet.act("release", made, unitIds=addresses)
        elif change == "reaffirm":
            fleet.reports(8 + first)
        act = {
            "reserve": lambda: fleet.reserve(*numbers),
            "amend": lambda: fleet.amend(made, endsAt="2127-01-01T00:00:00Z"),
            "reaffirm": lambda: fleet.amend(made, reaffirm=True),
            "release": lambda: fleet.act("release", made, unitIds=addresses),
            "reclaim": lambda: fleet.act("reclaim", made, unitIds=addresses),
            "cancel": lambda: fleet.act("cancel", made),
        }[change]
        fleet.get()  # the key is remembered for a second from here on
        with CaptureQueriesContext(connection) as queries:
            answer = act()
        assert answer.status_code == 200, answer.content
        return len(queries)

    one, seven = costs(1, range(1)), costs(2, range(1, 8))
    assert one == seven
    budget = CHANGES[change]
    assert seven <= budget, f"{change} costs {seven} queries; it may cost {budget}"
    assert seven == budget, f"{change} costs only {seven} queries now; write that into CHANGES"
