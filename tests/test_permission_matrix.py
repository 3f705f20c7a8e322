"""Every operation, for every kind of caller: who gets in, and what the others are told.

A route without a row here fails, so that nobody adds one without saying whom it is for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from openrelay.audit.models import AuditEvent
from openrelay.core import clock
from openrelay.identity.models import ApiKey
from openrelay.identity.operations import OPERATIONS
from tests import factories
from tests.reservations import makers
from tests.reservations.conftest import Fleet, fleet

__all__ = ["fleet"]

pytestmark = pytest.mark.django_db

IN = "in"
INVENTED = "0198c0de-0000-7000-8000-000000000000"

# Keys have every permission; the members are people with a role, by session.
KEYS = ("operator", "owner", "manager", "tenant", "outsider")
MEMBERS = (
    "operator_viewer",
    "owner_viewer",
    "owner_member",
    "tenant_viewer",
    "tenant_admin",
    "tenant_billing",
)
CALLERS = (*KEYS, *MEMBERS)
VIEWERS = ("operator_viewer", "owner_viewer", "tenant_viewer")
BILLING = ("tenant_billing",)
READERS = tuple(name for name in CALLERS if name not in BILLING)


def row(*let_in: str, rest: int, **others: Any) -> dict[str, Any]:
    """Who gets in, what the rest are answered, and who is answered otherwise."""
    return {**dict.fromkeys(CALLERS, rest), **dict.fromkeys(let_in, IN), **others}


def everyone_but(*names: str, rest: int, **others: Any) -> dict[str, Any]:
    return row(*(name for name in CALLERS if name not in names), rest=rest, **others)


TENANTS_OWN = ("tenant", "tenant_admin")
SESSIONS_ONLY = {name: 403 for name in KEYS}

MATRIX: dict[str, dict[str, Any]] = {
    # Under a node: what is not for a caller is not there.
    "list_node_reservations": row("operator", "owner", "manager", rest=404),
    "get_node_reservation": row("operator", "owner", "manager", rest=404),
    "list_reservation_units": row("operator", "owner", "manager", rest=404),
    "create_node_reservation": row("operator", rest=404),
    "update_node_reservation": row("operator", rest=404),
    "cancel_node_reservation": row("operator", rest=404),
    "release_reservation_units": row("operator", "owner", "manager", rest=404),
    "reclaim_reservation_units": row("operator", "owner", "manager", rest=404),
    # In one's own organization.
    "list_org_reservations": everyone_but(*BILLING, rest=403),
    "reclaim_spot_workloads": row(
        "owner",
        "manager",
        rest=403,
        operator=404,
        tenant=404,
        tenant_admin=404,
        outsider=404,
    ),
    "list_provider_nodes": everyone_but(*BILLING, rest=403),
    "get_provider_stats": everyone_but(*BILLING, rest=403),
    "get_provider_status": everyone_but(*BILLING, rest=403),
    "apply_for_provider": everyone_but(*VIEWERS, *BILLING, "owner_member", rest=403),
    # A node is its owner's alone to change; the managing organization's is another's.
    "update_provider_node": row(
        "owner", rest=403, operator=404, manager=404, tenant=404, tenant_admin=404, outsider=404
    ),
    "offboard_provider_node": row(
        "owner", rest=403, operator=404, manager=404, tenant=404, tenant_admin=404, outsider=404
    ),
    "create_vm": everyone_but(*VIEWERS, *BILLING, rest=403),
    "list_org_vms": everyone_but(*BILLING, rest=403),
    "create_pod": everyone_but(*VIEWERS, *BILLING, rest=403),
    "list_pods": everyone_but(*BILLING, rest=403),
    "list_pod_capacity": everyone_but(*BILLING, rest=403),
    "list_org_ssh_keys": everyone_but(*BILLING, rest=403),
    "create_org_ssh_key": everyone_but(*VIEWERS, *BILLING, rest=403),
    "list_org_api_keys": everyone_but(*BILLING, rest=403),
    "create_org_api_key": row("tenant_admin", rest=403),
    "update_org_api_key": row("tenant_admin", rest=403),
    "revoke_org_api_key": row(*TENANTS_OWN, rest=403, operator=404, owner=404, manager=404, outsider=404),
    # A workload: first whose it is, then the action.
    "get_vm": row("tenant", "tenant_viewer", "tenant_admin", rest=404, tenant_billing=403),
    "terminate_vm": row(*TENANTS_OWN, rest=404, tenant_viewer=403, tenant_billing=403),
    **dict.fromkeys(
        ("get_vm_detail", "get_vm_metrics", "get_vm_ssh_keys"),
        row("tenant", "tenant_viewer", "tenant_admin", rest=404, tenant_billing=403),
    ),
    **dict.fromkeys(
        (
            "stop_vm",
            "restart_vm",
            "reboot_vm",
            "resize_vm_disk",
            "set_vm_visibility",
            "attach_vm_ssh_key",
            "detach_vm_ssh_key",
        ),
        row(*TENANTS_OWN, rest=404, tenant_viewer=403, tenant_billing=403),
    ),
    # A console is not there for who may not read it.
    **dict.fromkeys(
        ("get_vm_logs", "get_pod_logs"), row("tenant", "tenant_viewer", "tenant_admin", rest=404)
    ),
    "delete_org_ssh_key": row(*TENANTS_OWN, rest=404, **dict.fromkeys((*VIEWERS, *BILLING), 403)),
    "list_gpu_models": everyone_but(rest=403),
    "get_vm_burn": row("tenant", "tenant_viewer", "tenant_admin", rest=404, tenant_billing=403),
    "list_locations": everyone_but(rest=403),
    "list_vm_templates": everyone_but(rest=403),
    "get_pricing": everyone_but(rest=403),
    "get_gpu_availability": everyone_but(*BILLING, rest=403),
    # Oneself.
    "whoami": everyone_but(rest=403),
    "get_me": row(*MEMBERS, rest=403),
    "get_permission_catalog": everyone_but(rest=403),
    "get_effective_access": everyone_but(rest=403),
    "check_access": everyone_but(*BILLING, rest=403),
    "list_roles": everyone_but(*BILLING, rest=403),
    "get_role": everyone_but(*BILLING, rest=403),
    "create_role": row("tenant_admin", rest=403),
    "update_role": row("tenant_admin", rest=403),
    "delete_role": row("tenant_admin", rest=403),
    "get_org": everyone_but(rest=403),
    "delete_org": row("tenant_admin", rest=403),
    "list_org_members": everyone_but(rest=403),
    "list_audit_events": everyone_but(*BILLING, rest=403),
    # For a node's own credential.
    "agent_work": row(rest=401),
    "agent_report": row(rest=401),
    "agent_inventory": row(rest=401),
    # Under /v1/nodes/, where who is no node is told that there is nothing.
    "node_termination_notice": row(rest=404),
}


@dataclass(frozen=True)
class Route:
    path: str
    method: str
    operation: str


def _patterns(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for pattern in resolver.url_patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield path, pattern.callback
        else:
            yield from _patterns(pattern, path)


ROUTES = [
    Route(path, method, operation)
    for path, callback in _patterns(get_resolver())
    if path.startswith(("v1/", "api/")) and hasattr(callback, "view_class")
    for method, operation in callback.view_class.operations.items()
]


class World:
    """The fleet with a reservation in force, a tenant's workload, and everybody's credential."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.reservation = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
        self.workload = makers.workload(fleet.node, fleet.tenant, [1], tier=makers.ORDINARY)
        orgs = {"operator": fleet.platform, "owner": fleet.provider}
        self.orgs = {
            name: orgs.get(name.partition("_")[0]) or getattr(fleet, name.partition("_")[0])
            for name in CALLERS
        }
        self.secrets = {name: factories.api_key(self.orgs[name]) for name in KEYS}
        for name in MEMBERS:
            person = factories.user(self.orgs[name], role=name.partition("_")[2])
            self.secrets[name] = factories.session(person, self.orgs[name])
        self.secrets["dead"] = factories.api_key(fleet.platform, revoked_at=clock.read())
        self.secrets["node"] = factories.credential(fleet.node)
        self.client = Client(raise_request_exception=False)
        self.tenants_ssh_key = factories.ssh_key(fleet.tenant).pk
        self.tenants_key = ApiKey.objects.filter(organization=fleet.tenant).latest("created_at").pk

        maker = factories.user(fleet.tenant)
        self.tenants_role = factories.role(fleet.tenant, maker).pk

    def url(self, route: Route, org: Any) -> str:
        names = {
            "<str:node_id>": self.fleet.node.pk,
            "<str:reservation_id>": self.reservation["id"],
            "<str:vm_id>": self.workload.pk,
            "<str:pod_id>": self.workload.pk,
            "<str:key_id>": self.tenants_ssh_key if "ssh-keys" in route.path else self.tenants_key,
            "<str:role_id>": self.tenants_role if route.method != "GET" else "viewer",
            "<str:org_id>": org,
        }
        path = "/" + route.path
        for name, value in names.items():
            path = path.replace(name, str(value))
        assert "<" not in path, f"{path} names something that this test does not know"
        return path

    def send(self, route: Route, who: str | None, org: Any) -> Any:
        """Send the request with a body that nobody can take, and undo whatever it does all the same."""
        headers = {"Authorization": f"Bearer {self.secrets[who]}"} if who else {}
        body = b"" if route.method == "GET" else b"{"
        with transaction.atomic():
            answer = self.client.generic(
                route.method, self.url(route, org), body, "application/json", headers=headers
            )
            answer.refusals = AuditEvent.objects.filter(event="request.refused").count()
            transaction.set_rollback(True)
        assert answer.status_code < 500, answer.content
        assert answer.status_code == 204 or answer.headers["Content-Type"] == "application/json"
        return answer


def test_every_route_has_a_row() -> None:
    served = {route.operation for route in ROUTES if not OPERATIONS[route.operation].public}
    assert served - MATRIX.keys() == set(), "say in MATRIX whom these operations are for"
    assert len(ROUTES) > 20


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_who_gets_in_and_what_the_others_are_told(route: Route, fleet: Fleet) -> None:
    if OPERATIONS[route.operation].public:
        pytest.skip("open to all")
    world, expected = World(fleet), MATRIX[route.operation]
    for who in CALLERS:
        org = world.orgs[who].pk
        answer = world.send(route, who, org)
        told = answer.status_code if answer.status_code in (401, 403, 404, 405) else IN
        assert told == expected[who], f"{who}: {answer.status_code} {answer.content!r}"
        if told != IN:
            assert set(answer.json()) <= {"error", "code", "permission", "deniedBy"}
            # What was tried and refused is on record, whoever it was; a look is not.
            assert answer.refusals == (route.method != "GET" and told != 401), who
    assert world.send(route, None, fleet.tenant.pk).status_code == 401
    dead = world.send(route, "dead", fleet.platform.pk)
    agents = OPERATIONS[route.operation].node
    unheard_of = agents and not OPERATIONS[route.operation].hidden
    assert (dead.status_code, dead.json()["code"]) == (
        401,
        "UNAUTHORIZED" if unheard_of else "REVOKED_API_KEY",
    )
    node = world.send(route, "node", fleet.provider.pk)
    assert (node.status_code in (401, 403)) != agents


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if "org_id" in route.path], ids=lambda route: route.operation
)
def test_another_organizations_path_is_refused_before_anything_is_looked_up(
    route: Route, fleet: Fleet
) -> None:
    world = World(fleet)
    for who in CALLERS:
        own = world.orgs[who].pk
        others = [org.pk for org in (fleet.platform, fleet.provider, fleet.tenant) if org.pk != own]
        answers = [world.send(route, who, org) for org in (*others, INVENTED, "x", str(own).upper())]
        assert {answer.status_code for answer in answers} == {403}, who
        assert len({answer.content for answer in answers}) == 1
        assert "permission" not in answers[0].json()
