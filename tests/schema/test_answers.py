"""What the service really answers is what the schema says, in success and in refusal."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from rest_framework.test import APIClient

from nodes.models import Node
from openrelay.audit.actor import SYSTEM
from openrelay.core.ids import new_id
from openrelay.identity.models import Organization
from openrelay.identity.services.memberships import add_member
from tests import factories
from tests.compute.test_pods import pod_node
from tests.schema.reading import check, operation_of, operations

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1yNLxDGnQ1uSVnUXuIcVwVCUwrjnKoNcxuFHM0dA4n"


@dataclass
class Caller:
    """Someone whose every answer is held against the schema."""

    token: str
    answered: set[str] = field(default_factory=set)

    def __call__(self, method: str, path: str, body: Any = None, status: int = 200, **headers: Any) -> Any:
        client = APIClient()
        if self.token:
            client.credentials(HTTP_AUTHORIZATION=f"Bearer {self.token}")
        call = getattr(client, method.lower())
        response = call(path, headers=headers) if body is None else call(path, body, headers=headers)
        assert response.status_code == status, response.content
        plain = path.partition("?")[0]
        check(method, plain, response)
        if status < 400:
            self.answered.add(operation_of(method, plain)["operationId"])
        return response.json() if response.content else None


@dataclass
class World:
    """A node of eight units, and callers of several kinds."""

    node: Node
    provider_org: Organization
    tenant_org: Organization
    answered: set[str] = field(default_factory=set)

    def caller(self, token: str) -> Caller:
        return Caller(token, self.answered)

    def key(self, org: Organization) -> Caller:
        return self.caller(factories.api_key(org))


@pytest.fixture
def world(db: None) -> World:
    provider = factories.organization("Provider", is_provider=True, reservations_enabled=True)
    tenant = factories.organization("Tenant", reservations_enabled=True)
    return World(factories.node(provider), provider, tenant)


def test_every_operation_answers_as_the_schema_says(world: World) -> None:
    platform, provider = factories.platform(), world.provider_org
    operator, owner, tenant = world.key(platform), world.key(provider), world.key(world.tenant_org)
    agent = world.caller(factories.credential(world.node))
    _reservations(world, operator, owner, tenant, agent)
    _compute(world, tenant, agent)
    _pods(world, tenant)
    _identity(world, tenant)
    _provider(world, owner, tenant, agent)
    nobody = world.caller("")
    nobody("GET", "/livez")
    nobody("GET", "/v1/public/pricing")
    check("GET", "/readyz", APIClient().get("/readyz"))
    everything = {operation["operationId"] for _, _, operation in operations()}
    assert everything - world.answered == {"readyz"}


def _reservations(world: World, operator: Caller, owner: Caller, tenant: Caller, agent: Caller) -> None:
    org, path = world.tenant_org.pk, f"/v1/nodes/{world.node.pk}/reservations"
    first, second, third = (factories.address(number) for number in (0, 1, 2))
    asked = {"unitIds": [first, second], "allowedOrgIds": [str(org)], "contractRef": "A-1", "reason": "why"}
    made = operator("POST", path, asked, **{"Idempotency-Key": "one"})
    assert operator("POST", path, asked, **{"Idempotency-Key": "one"}) == made
    operator("POST", path, {**asked, "reason": "other"}, status=422, **{"Idempotency-Key": "one"})
    one = f"{path}/{made['id']}"
    for caller in (operator, owner):
        caller("GET", path)
        caller("GET", one)
        caller("GET", f"{path}/units")
    tenant("GET", f"/v1/orgs/{org}/reservations")
    owner("POST", f"{one}/release", {"unitIds": [second]})
    key = tenant("POST", f"/v1/orgs/{org}/ssh-keys/create", {"name": "k", "publicKey": PUBLIC_KEY})
    spot = {"name": "spot", "sshKeyIds": [key["id"]], "gpuCount": 1, "tier": "spot"}
    buyer = factories.organization("Buyer")
    theirs = {**spot, "sshKeyIds": [str(factories.ssh_key(buyer).pk)]}
    vms = [world.key(buyer)("POST", f"/v1/orgs/{buyer.pk}/vms/create", theirs) for _ in range(7)]
    tenant("POST", f"/v1/orgs/{org}/vms/create", {**spot, "nodeId": str(world.node.pk)})
    owner("GET", f"{path}/units")
    would = owner("POST", f"{one}/reclaim", {"unitIds": [second], "dryRun": True})
    did = owner("POST", f"{one}/reclaim", {"unitIds": [second], "reason": "back"})
    assert (would["wouldTerminate"], would["wouldSkip"]) == (did["terminated"], did["skipped"])
    gone = world.key(buyer)("GET", f"/v1/vms/{vms[0]['id']}")
    assert gone["status"] in ("deploying", "terminated")
    spots = f"/v1/orgs/{world.provider_org.pk}/provider/nodes/{world.node.pk}/reclaim-spot"
    owner("POST", spots, {"dryRun": True})
    owner("POST", spots, {"unitIds": [third]})
    operator("PATCH", one, {"endsAt": "2090-01-01T00:00:00Z", "managingOrgIds": [str(buyer.pk)]})

    # Refusals, each in the shape and with a code that its operation announces.
    ghost = f"{path}/{new_id()}"
    operator("POST", path, {**asked, "unitIds": [first]}, status=409)
    operator("POST", path, {**asked, "unitIds": ["0000:ff:00.0"]}, status=400)
    nobodys = {"unitIds": [third], "allowedOrgIds": [str(new_id())]}
    operator("POST", path, nobodys, status=400)
    operator("POST", path, {"unitIds": 5}, status=400)
    operator("GET", ghost, status=404)
    operator("PATCH", ghost, {"endsAt": ""}, status=404)
    operator("POST", f"{one}/release", {"unitIds": [third]}, status=400)
    owner("POST", spots, {"unitIds": ["0000:ff:00.0"]}, status=400)
    tenant("POST", spots, {}, status=403)
    world.caller("")("GET", path, status=401)
    world.caller("or_no")("GET", path, status=401)

    report = factories.report([factories.unit_report(number) for number in range(1, 8)], sequence=5)
    agent("POST", "/v1/agent/inventory", report)
    agent("POST", "/v1/agent/inventory", {**report, "sequence": 6, "units": []})
    assert operator("GET", one)["status"] == "needs-review"
    operator("PATCH", one, {"reaffirm": True}, status=409)
    operator("POST", f"{one}/release", {"unitIds": [second]}, status=409)
    operator("GET", f"{path}/units")
    operator("POST", f"{one}/cancel")
    operator("POST", f"{one}/cancel", status=409)


def _pods(world: World, tenant: Caller) -> None:
    """Pods on a node of their own."""
    node = pod_node(world.provider_org, 2)
    agent = world.caller(factories.credential(node))
    asked = {"image": "ghcr.io/acme/a:1", "sshKeyIds": [str(factories.ssh_key(world.tenant_org).pk)]}
    tenant("GET", "/v1/pods/capacity")
    made = tenant("POST", "/v1/pods", {**asked, "volumeGb": 60}, **{"Idempotency-Key": "pod"})
    tenant("POST", "/v1/pods", {**asked, "gpuCount": 9}, status=400)
    tenant("POST", "/v1/pods", {**asked, "shmSizeGb": 9999}, status=400)
    tenant("POST", "/v1/pods", {**asked, "computeClass": "interruptible"}, status=400)
    tenant("POST", "/v1/pods", {**asked, "gpuCount": 2}, status=503)
    run = next(iter(agent("GET", "/v1/agent/work")["runs"]))["runId"]
    guest = {"runId": run, "state": "running", "diskUsedBytes": 5, "console": "hello"}
    agent("POST", "/v1/agent/reports", {"sequence": 1, "guests": [guest]})
    tenant("GET", "/v1/pods")
    tenant("GET", "/v1/pods?limit=0", status=400)
    tenant("GET", f"/v1/vms/{made['id']}/detail")
    tenant("GET", f"/api/nomad/pods/{made['id']}/logs")
    tenant("POST", f"/v1/vms/{made['id']}/stop")
    tenant("POST", f"/v1/vms/{made['id']}/restart", status=409)
    tenant("POST", f"/v1/vms/{made['id']}/terminate")


def _provider(world: World, owner: Caller, tenant: Caller, agent: Caller) -> None:
    """What owners do with their nodes, and a node of itself; last, for the node is removed."""
    path = f"/v1/orgs/{world.provider_org.pk}/provider"
    Organization.objects.filter(pk=world.provider_org.pk).update(is_provider=True, leave_notices_enabled=True)
    for query in ("", "?includeRemoved=true", "?status=removed", "?class=persistent"):
        owner("GET", f"{path}/nodes{query}")
    owner("GET", f"{path}/nodes?class=odd", status=400)
    owner("GET", f"{path}/stats")
    owner("GET", f"{path}/status")
    owner("POST", f"{path}/apply", {"note": "more"}, status=400)
    theirs = f"/v1/orgs/{world.tenant_org.pk}/provider"
    tenant("POST", f"{theirs}/apply", {"note": "GPUs"}, status=204)
    tenant("GET", f"{theirs}/status")
    node = f"{path}/nodes/{world.node.pk}"
    tenant("PATCH", f"{theirs}/nodes/{world.node.pk}", {"status": "online"}, status=404)
    owner("PATCH", node, {"status": "busy"}, status=400)
    owner("PATCH", node, {"status": "maintenance"})
    owner("PATCH", node, {"status": "online"})
    owner("POST", f"{node}/offboard", {}, status=409)
    agent("POST", "/v1/nodes/termination-notice", {"noticeSeconds": 1}, status=400)
    agent("POST", "/v1/nodes/termination-notice", {"noticeSeconds": 3600})
    Organization.objects.filter(pk=world.provider_org.pk).update(leave_notices_enabled=False)
    agent("POST", "/v1/nodes/termination-notice", {"noticeSeconds": 3600}, status=409)
    tenant("POST", "/v1/nodes/termination-notice", {}, status=404)
    spot = factories.node(world.provider_org, 1, node_class="interruptible", notice_seconds=30)
    owner("POST", f"{path}/nodes/{spot.pk}/offboard", {"noticeSeconds": 60})
    owner("PATCH", node, {"status": "removed"})
    owner("PATCH", node, {"status": "online"}, status=400)


def _compute(world: World, tenant: Caller, agent: Caller) -> None:
    org = world.tenant_org.pk
    tenant("POST", f"/v1/orgs/{org}/ssh-keys/create", {"name": "k", "publicKey": PUBLIC_KEY}, status=409)
    tenant("POST", f"/v1/orgs/{org}/ssh-keys/create", {"name": "k", "publicKey": "ssh-ed25519 A"}, status=400)
    (key,) = tenant("GET", f"/v1/orgs/{org}/ssh-keys")
    create = f"/v1/orgs/{org}/vms/create"
    vm = {"name": "vm", "sshKeyIds": [key["id"]], "gpuCount": 1}
    tenant("POST", create, {**vm, "nodeId": str(new_id())}, status=400)
    tenant("POST", create, {**vm, "gpuCount": 4000}, status=400)
    tenant("POST", create, {**vm, "guestMemMb": 2**30}, status=400)
    tenant("POST", create, {**vm, "resourceSize": "large"}, status=400)
    tenant("POST", create, {**vm, "gpuCount": 7}, status=503)
    tenant("POST", f"/v1/orgs/{new_id()}/vms/create", vm, status=403)
    listed = tenant("GET", f"/v1/orgs/{org}/vms?activeOnly=true&limit=1")
    tenant("GET", f"/v1/orgs/{org}/vms?limit=0", status=400)
    tenant("GET", f"/v1/vms/{new_id()}", status=404)
    for run in agent("GET", "/v1/agent/work")["runs"]:
        guest = {"runId": run["runId"], "state": "running" if run["desired"] == "running" else "gone"}
        agent("POST", "/v1/agent/reports", {"sequence": 1 + run["number"], "guests": [guest]})
    agent("POST", "/v1/agent/reports", {"sequence": 1, "guests": []})
    agent("POST", "/v1/agent/reports", {"sequence": 99, "guests": [{"runId": "no"}]}, status=400)
    tenant("GET", "/v1/agent/work", status=401)
    _life(world, tenant, agent, f"/v1/vms/{listed['items'][0]['id']}", str(key["id"]))
    tenant("POST", f"/v1/vms/{listed['items'][0]['id']}/terminate")
    tenant("GET", "/v1/gpu-models")
    tenant("GET", "/v1/gpu-availability")
    tenant("GET", f"/v1/vms/{listed['items'][0]['id']}/burn")
    for name in ("locations", "vm-templates", "pricing"):
        tenant("GET", f"/v1/{name}")


def _life(world: World, tenant: Caller, agent: Caller, path: str, key_id: str) -> None:
    """A VM that runs, is rebooted, stopped, grown and started again."""
    agent("POST", "/v1/agent/inventory", factories.report(8, sequence=20))
    logs = [f"/api/nomad/{kind}/{path.rpartition('/')[2]}/logs" for kind in ("vms", "pods")]
    for log in logs:
        assert not tenant("GET", log)["found"]
    run = next(row for row in agent("GET", "/v1/agent/work")["runs"] if row["workloadId"] in path)
    inside = {"sshReady": True, "console": "hello", "diskTotalBytes": 10**11, "diskUsedBytes": 10**9}
    guest = {"runId": run["runId"], "state": "running", **inside}
    agent("POST", "/v1/agent/reports", {"sequence": 200, "guests": [guest], "disks": [run["workloadId"]]})
    assert tenant("GET", logs[0]) == {"found": True, "content": "hello"}
    tenant("GET", f"{logs[0].replace('-', '')}", status=404)
    assert tenant("GET", f"{path}/detail")["sshState"] == "ready"
    tenant("GET", f"{path}/metrics?range=7d")
    tenant("GET", f"{path}/metrics?range=2h", status=400)
    tenant("POST", f"{path}/reboot", status=204)
    tenant("POST", f"{path}/restart")
    tenant("POST", f"{path}/visibility", {"public": True})
    tenant("POST", f"{path}/resize-disk", {"newSizeGb": 300}, status=409)
    tenant("POST", f"{path}/stop")
    tenant("POST", f"{path}/stop", status=409)
    tenant("POST", f"{path}/resize-disk", {"newSizeGb": 300}, status=204)
    tenant("POST", f"{path}/resize-disk", {"newSizeGb": 10**6}, status=400)
    tenant("POST", f"{path}/restart")
    tenant("GET", f"{path}/detail")
    spare = factories.ssh_key(world.tenant_org)
    tenant("POST", f"{path}/ssh-keys", {"sshKeyId": str(new_id())}, status=404)
    tenant("DELETE", f"{path}/ssh-keys/{key_id}", status=400)
    tenant("DELETE", f"/v1/orgs/{world.tenant_org.pk}/ssh-keys/{key_id}", status=409)
    tenant("POST", f"{path}/ssh-keys", {"sshKeyId": str(spare.pk)}, status=204)
    tenant("GET", f"{path}/ssh-keys")
    tenant("DELETE", f"{path}/ssh-keys/{spare.pk}", status=204)
    tenant("DELETE", f"/v1/orgs/{world.tenant_org.pk}/ssh-keys/{spare.pk}", status=204)


def _identity(world: World, tenant: Caller) -> None:
    org = world.tenant_org
    person = factories.user(org)
    signed_in = world.caller(factories.session(person, org))
    for caller in (tenant, signed_in):
        caller("GET", "/v1/whoami")
        caller("GET", "/v1/authz/catalog")
        caller("GET", "/v1/authz/effective")
        caller("GET", "/v1/audit-events?limit=3")
    signed_in("GET", "/v1/me")
    signed_in("GET", f"/v1/orgs/{org.pk}")
    provider = world.provider_org
    with_nodes = world.caller(factories.session(factories.user(provider), provider))
    with_nodes("DELETE", f"/v1/orgs/{provider.pk}", status=409)
    tenant("DELETE", f"/v1/orgs/{org.pk}", status=403)
    brief = factories.organization("Brief")
    leaver = world.caller(factories.session(factories.user(brief), brief))
    leaver("DELETE", f"/v1/orgs/{brief.pk}", status=204)
    leaver("DELETE", f"/v1/orgs/{brief.pk}", status=401)
    asked = {"name": "Night shift", "permissions": ["compute.operate"], "description": "d"}
    narrowing = {"ipRanges": ["192.0.2.0/24"], "endpoints": ["e"], "models": ["m"]}
    role = signed_in("POST", "/v1/roles", {**asked, **narrowing})
    signed_in("POST", "/v1/roles", asked, status=409)
    signed_in("POST", "/v1/roles", {"name": "x", "permissions": ["reservation.manage"]}, status=403)
    tenant("POST", "/v1/roles", asked, status=403)
    signed_in("PATCH", f"/v1/roles/{role['id']}", {"name": "Night", "ipRanges": []})
    signed_in("PATCH", f"/v1/roles/{role['id']}", {}, status=400)
    signed_in("PATCH", "/v1/roles/viewer", {"name": "Night"}, status=403)
    other = factories.organization()
    add_member(actor=SYSTEM, user_id=factories.user(other).pk, organization_id=org.pk, role=role["id"])
    signed_in("GET", f"/v1/orgs/{org.pk}/members")
    signed_in("GET", "/v1/roles")
    signed_in("GET", "/v1/roles/owner")
    signed_in("GET", f"/v1/roles/{new_id()}", status=404)
    signed_in("DELETE", f"/v1/roles/{role['id']}", status=409)
    spare = signed_in("POST", "/v1/roles", {**asked, "name": "Spare"})
    signed_in("GET", f"/v1/roles/{spare['id']}")
    signed_in("DELETE", f"/v1/roles/{spare['id']}", status=204)
    tenant("GET", "/v1/me", status=403)
    keys = f"/v1/orgs/{org.pk}/api-keys"
    budget = {"limitNanoUsd": 10**9, "period": "monthly"}
    made = signed_in(
        "POST",
        f"{keys}/create",
        {
            "name": "ci",
            "note": "for tests",
            "permissions": ["compute.read"],
            "restrictions": {"ipRanges": ["192.0.2.0/24"]},
            "budget": budget,
            "expiresInSeconds": 3600,
        },
    )
    escalating = {"name": "more", "permissions": ["reservation.manage"]}
    signed_in("POST", f"{keys}/create", escalating, status=403)
    tenant("POST", f"{keys}/create", {"name": "ci"}, status=403)
    narrowed = world.caller(made["key"])
    narrowed("GET", "/v1/whoami", status=403)
    asked = {"action": "compute.create", "principalType": "api_key", "principalId": made["id"]}
    signed_in("POST", "/v1/authz/check", asked)
    signed_in("POST", "/v1/authz/check", {**asked, "action": "compute.read", "sourceIp": "192.0.2.1"})
    signed_in("POST", "/v1/authz/check", {**asked, "principalId": str(new_id())}, status=404)
    signed_in("GET", f"/v1/authz/effective?principalType=api_key&principalId={made['id']}")
    signed_in("PATCH", f"{keys}/{made['id']}", {"budget": {**budget, "period": "daily"}})
    signed_in("PATCH", f"{keys}/{made['id']}", {"name": "no"}, status=400)
    signed_in("DELETE", f"{keys}/{made['id']}", status=204)
    signed_in("DELETE", f"{keys}/{new_id()}", status=404)
    narrowed("GET", "/v1/whoami", status=401)
    signed_in("GET", keys)
