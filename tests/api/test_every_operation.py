"""Every operation on VMs, pods, catalog, keys, roles and organizations by the published client."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from compute import tasks
from compute.models import Occupancy, Run, SshKey, Workload
from nodes.models import Location, Node
from openrelay.audit.actor import SYSTEM
from openrelay.identity.models import Organization
from openrelay.identity.operations import OPERATIONS
from openrelay.identity.services.memberships import add_member
from tests import factories
from tests.compute.conftest import consistent
from tests.compute.test_life_by_client import By, given, is_
from tests.compute.test_over_http import Agent, Site, eventually
from tests.compute.test_pods import pod_node
from tests.reservations.test_by_client import exact
from tests.support.web import Server

pytestmark = pytest.mark.slow

AREAS = ("vms", "pods", "catalog", "ssh_keys", "roles", "organizations")
# What the client has and this server does not offer.
NOT_SERVED = {
    "catalog.list_models",
    "organizations.add_org_member",
    "organizations.create_org",
    "organizations.create_verification_note",
    "organizations.leave_org_member",
    "organizations.list_org_invites",
    "organizations.record_org_device",
    "organizations.remove_org_member",
    "organizations.revoke_org_invite",
    "organizations.update_org",
    "organizations.update_org_member_role",
}
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJ0X0dk5mYq0o4mJ2bQyVnY1m0y8m3m6l1Zq2m4n6pR other"


def all_operations(sdk: ModuleType) -> set[str]:
    """Every operation function of the client's modules for these areas."""
    found = set()
    for area in AREAS:
        package = importlib.import_module(f"{sdk.__name__}.api.{area}")
        found |= {f"{area}.{module.name}" for module in pkgutil.iter_modules(package.__path__)}
    return found


class Driver(By):
    """The client, remembering what it was asked and checking the types of what it made of the answers."""

    def __init__(self, sdk: ModuleType, site: Site, token: str, driven: set[str]) -> None:
        super().__init__(sdk, site)
        self.client = sdk.AuthenticatedClient(
            base_url=site.server.url, token=token, raise_on_unexpected_status=True
        )
        self.driven = driven

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        found = super().__call__(name, *args, **kwargs)
        models = found if isinstance(found, list) else [found, *(getattr(found, "items", None) or ())]
        for model in models:
            if model != 204:
                exact(model)
        if not isinstance(found, self.models.Error):
            self.driven.add(name)
        return found


@pytest.fixture
def agent(server: Server, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(Site(server), tmp_path)
    agent.start()
    yield agent
    agent.kill()


def test_what_is_served_is_what_the_table_says(sdk: ModuleType) -> None:
    operations = all_operations(sdk)
    assert operations >= NOT_SERVED
    served = {name for name in operations if name.partition(".")[2] in OPERATIONS}
    assert operations - served == NOT_SERVED


def test_every_operation_is_driven_by_the_published_client(agent: Agent, sdk: ModuleType) -> None:
    site, driven = agent.site, set[str]()
    place = Location.objects.create(
        slug="osl", name="Oslo", city="Oslo", country="NO", region="north", latitude=59.9, longitude=10.7
    )
    Node.objects.update(location=place)
    Organization.objects.filter(pk=site.buyer.pk).update(balance_cents=100_000)
    by = Driver(sdk, site, site.secret, driven)
    _catalog(by, place)
    _cpu_vm(by)
    _gpu_vm(by)
    _pod(by, site)
    _keys(by)
    person = factories.user(site.buyer)
    _people(Driver(sdk, site, factories.session(person, site.buyer), driven), person)
    eventually(lambda: not Occupancy.objects.open().exclude(node__runtime="runc").exists())
    consistent()
    # What nobody drives here is missing from this test.
    _end(Driver(sdk, site, factories.session(person, site.buyer), driven))
    assert all_operations(sdk) - NOT_SERVED - driven == set()
    assert driven <= all_operations(sdk)


def _catalog(by: Driver, place: Location) -> None:
    (location,) = by("catalog.list_locations")
    assert given(location) == {"city", "country", "id", "latitude", "longitude", "name", "region"}
    assert (location.id, location.region, location.latitude) == (str(place.pk), "north", 59.9)
    templates = by("catalog.list_vm_templates")
    cuda = next(row for row in templates if row.slug == "ubuntu-24-04-cuda")
    (model,) = by("catalog.list_gpu_models")
    assert given(model) >= {"created_at", "form_factor", "manufacturer", "vram_gb"}
    assert (cuda.requires_gpu, cuda.compatible_gpu_model_ids, cuda.driver_version) == (
        True,
        [model.id],
        "570",
    )
    assert next(row for row in templates if row.is_default).compatible_gpu_model_ids is None
    pricing = by("catalog.get_pricing")
    assert {row.tier: row.price_per_hour_cents for row in pricing.gpu} == {
        "community": 200,
        "spot": 90,
        "verified": 250,
    }
    assert (pricing.vm_disk.min_gb, pricing.vm_disk.max_gb) == (10, 1_000_000)
    for row in [*pricing.gpu, *pricing.cpu, pricing.vm_disk]:
        exact(row)
    smallest = pricing.cpu[0]
    assert (smallest.resource_size, smallest.vcpu, smallest.ram_mb) == ("cpu-small", 2, 4096)
    public = by("catalog.get_public_pricing")
    assert (public.gpu[0].id, public.gpu[0].community_cents, public.model) == (model.id, 200, [])
    assert public.generated_at.tzinfo is not None
    (found,) = by("catalog.get_gpu_availability")
    assert (found.vm.free_gpus, found.gpu_model_id) == (8, model.id)


def _cpu_vm(by: Driver) -> None:
    """A VM without GPUs, from its creation to its end."""
    models = by.models
    body = models.CreateVmRequest(
        name="builder",
        ssh_key_ids=[str(SshKey.objects.get().pk)],
        resource_size="cpu-medium",
        disk_size_gb=50,
        preferred_regions=["north"],
        cloud_init="#!/bin/sh\ntrue",
    )
    vm = by("vms.create_vm", by.org, body=body)
    assert (vm.resource_size, vm.gpu_count, vm.price_per_hour_cents) == ("cpu-medium", 0, 8)
    assert not given(vm) & {"gpu_model_id", "gpu_model_name", "gpu_manufacturer"}
    eventually(is_(by, vm.id, "running"))
    detail = by("vms.get_vm_detail", vm.id)
    assert (detail.resource_size, detail.guest_vcpu, detail.guest_mem_mb) == ("cpu-medium", 4, 8192)
    assert (detail.node_info.location, detail.healthy) == ("Oslo", True)
    assert not given(detail) & {"gpu_info", "gpu_model_id"}
    burn = by("vms.get_vm_burn", vm.id)
    assert (burn.rate_basis, burn.rate_source, burn.price_per_hour_cents) == ("cpu", "locked", 8)
    assert (burn.disk_billed, burn.non_billable, burn.org_burn_per_hour_cents) == (False, False, 8)
    assert burn.projected_runway_hours > 12_000
    assert given(burn) >= {"accrued_session_cents", "session_started_at", "org_available_cents"}
    assert not given(burn) & {"gpu_count", "per_gpu_cents"}
    (found,) = by("catalog.get_gpu_availability")
    assert (found.vm.free_gpus, found.vm.offers[0].free.vcpu) == (7, 124)
    by("vms.stop_vm", vm.id)
    eventually(lambda: not Run.objects.open().exists())
    assert by("vms.resize_vm_disk", vm.id, body=models.ResizeDiskRequest(new_size_gb=80)) == 204
    assert by("vms.restart_vm", vm.id).status == "deploying"
    eventually(is_(by, vm.id, "running"))
    assert by("vms.reboot_vm", vm.id) == 204
    eventually(lambda: "rebooting\nlogin:" in (by("vms.get_vm_logs", vm.id).content or ""))
    assert by("vms.terminate_vm", vm.id).status_reason == "user_terminated"
    eventually(lambda: not Run.objects.open().exists())
    refused = {
        "VALIDATION_ERROR": {"resource_size": "huge"},
        "RESOURCE_SIZE_NOT_APPLICABLE": {"resource_size": "cpu-small", "gpu_count": 1},
        "VM_SHAPE_NOT_PLACEABLE": {"resource_size": "cpu-small", "disk_size_gb": 20_000},
        "UNKNOWN_NODE": {"resource_size": "cpu-small", "node_id": by.org},
    }
    for code, fields in refused.items():
        asked = models.CreateVmRequest(name="no", ssh_key_ids=body.ssh_key_ids, **fields)
        assert by.refused("vms.create_vm", by.org, body=asked) == code


def _gpu_vm(by: Driver) -> None:
    models = by.models
    key = str(SshKey.objects.get().pk)
    vm = by("vms.create_vm", by.org, body=models.CreateVmRequest(name="t", ssh_key_ids=[key], gpu_count=2))
    eventually(is_(by, vm.id, "running"))
    burn = by("vms.get_vm_burn", vm.id)
    assert (burn.rate_basis, burn.gpu_count, burn.per_gpu_cents) == ("gpu", 2, 200)
    listed = by("vms.list_org_vms", by.org, limit=1)
    assert ([row.id for row in listed.items], "next_cursor" in given(listed)) == ([vm.id], True)
    rest = by("vms.list_org_vms", by.org, cursor=listed.next_cursor)
    assert [row.name for row in rest.items] == ["builder"]
    assert by("vms.list_org_vms", by.org, active_only=True).items[0].id == vm.id
    assert by("vms.get_vm", vm.id).status == "running"
    assert by("vms.get_vm_metrics", vm.id).point_count == 60
    assert by("vms.set_vm_visibility", vm.id, body=models.SetVmVisibilityRequest(public=True)).public
    other = by("ssh_keys.create_org_ssh_key", by.org, body=_key(by, "other", OTHER_KEY))
    attach = models.AttachSshKeyRequest(ssh_key_id=other.id)
    assert by("vms.attach_vm_ssh_key", vm.id, body=attach) == 204
    assert {item.id: item.attached for item in by("vms.get_vm_ssh_keys", vm.id)} == {
        key: True,
        other.id: True,
    }
    assert by("vms.detach_vm_ssh_key", vm.id, other.id) == 204
    assert by("vms.terminate_vm", vm.id).status == "terminated"


def _pod(by: Driver, site: Site) -> None:
    node = pod_node(site.provider)
    Node.objects.filter(pk=node.pk).update(location=Location.objects.get())
    body = by.models.CreatePodRequest(
        image="ghcr.io/acme/trainer:1.4", ssh_key_ids=[str(site.key.pk)], http_port=8080
    )
    (capacity,) = by("pods.list_pod_capacity").items
    assert capacity.free_units == capacity.total_units > 0
    pod = by("pods.create_pod", body=body)
    assert [row.id for row in by("pods.list_pods").items] == [pod.id]
    assert not by("pods.get_pod_logs", pod.id).found
    assert by("vms.get_vm_burn", pod.id).rate_basis == "gpu"


def _end(by: Driver) -> None:
    """The organization is deleted, and what it has left ends."""
    (pod,) = by("pods.list_pods").items
    assert by("organizations.delete_org", by.org) == 204
    assert by.refused("organizations.get_org", by.org) == "UNAUTHORIZED"
    tasks.sweep_accounts()
    ended = Workload.objects.get(pk=pod.id)
    assert (ended.status, ended.status_reason) == ("terminated", "auto_stopped_organization_deleted")
    assert not Workload.objects.active().exists()


def _key(by: Driver, name: str, line: str) -> Any:
    return by.models.CreateSshKeyRequest(name=name, public_key=line)


def _keys(by: Driver) -> None:
    listed = {row.name: row for row in by("ssh_keys.list_org_ssh_keys", by.org)}
    assert given(listed["other"]) >= {"attached_vm_count", "blocking_vms"}
    assert by("ssh_keys.delete_org_ssh_key", by.org, listed["other"].id) == 204
    assert len(by("ssh_keys.list_org_ssh_keys", by.org)) == len(listed) - 1


def _people(by: Driver, person: Any) -> None:
    """The organization, its members and its own roles, by a person who is signed in."""
    models = by.models
    assert by("organizations.get_org", by.org).name == "Buyer"
    (member,) = by("organizations.list_org_members", by.org)
    assert (member.user_id, member.role, member.status) == (str(person.pk), "owner", "active")
    asked = models.CreateRoleRequest(
        name="Night", permissions=["compute.operate"], ip_ranges=["192.0.2.0/24"]
    )
    role = by("roles.create_role", body=asked)
    assert given(role) >= {"created_at", "created_by", "ip_ranges", "member_count", "permissions"}
    changed = by("roles.update_role", role.id, body=models.UpdateRoleRequest(name="Night shift"))
    assert (changed.name, by("roles.get_role", role.id).name) == ("Night shift", "Night shift")
    assert role.id in {row.id for row in by("roles.list_roles")}
    other = factories.user(factories.organization())
    add_member(actor=SYSTEM, user_id=other.pk, organization_id=by.org, role=role.id)
    in_use = by("roles.delete_role", role.id)
    assert isinstance(in_use, models.RoleInUse)
    assert in_use.code == "ROLE_IN_USE"
    spare = by("roles.create_role", body=models.CreateRoleRequest(name="Spare", permissions=["compute.read"]))
    assert by("roles.delete_role", spare.id) == 204
