"""The life of a VM by the published client, on the running server, with a real agent process."""

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
from django.core.management import call_command

from compute.models import Occupancy, Workload
from nodes.models import Node
from openrelay.audit.models import AuditEvent
from tests import factories
from tests.compute.conftest import consistent
from tests.compute.test_over_http import Agent, Site, eventually
from tests.compute.test_pods import pod_node
from tests.support.web import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def agent(server: Server, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(Site(server), tmp_path)
    agent.start()
    yield agent
    agent.kill()


class By:
    """The published client as one organization."""

    def __init__(self, sdk: ModuleType, site: Site) -> None:
        self.name = sdk.__name__
        self.models = importlib.import_module(f"{sdk.__name__}.models")
        self.client = sdk.AuthenticatedClient(base_url=site.server.url, token=site.secret)
        self.org = str(site.buyer.pk)

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        module = importlib.import_module(f"{self.name}.api.{name}")
        answer = module.sync_detailed(*args, client=self.client, **kwargs)
        if answer.status_code == 204:
            return 204
        assert answer.parsed is not None, (answer.status_code, answer.content)
        return answer.parsed

    def refused(self, name: str, *args: Any, **kwargs: Any) -> str:
        answer = self(name, *args, **kwargs)
        assert isinstance(answer, self.models.Error), answer
        return str(answer.code)

    def status(self, vm_id: str) -> str:
        return str(self("vms.get_vm", vm_id).status)


def given(model: Any) -> set[str]:
    """The fields that the answer had."""
    names = {field.name for field in attrs.fields(type(model))} - {"additional_properties"}
    return {name for name in names if type(getattr(model, name)).__name__ != "Unset"}


def is_(by: By, vm_id: str, status: str) -> Callable[[], bool]:
    return lambda: by.status(vm_id) == status


def test_a_vm_lives_by_the_published_client(agent: Agent, sdk: ModuleType) -> None:
    site, by = agent.site, By(sdk, agent.site)
    models = by.models
    body = models.CreateVmRequest(
        name="trainer",
        ssh_key_ids=[str(site.key.pk)],
        gpu_count=2,
        disk_size_gb=200,
        cloud_init="#!/bin/sh\ntrue",
        container_port=8080,
    )
    vm = by("vms.create_vm", by.org, body=body)
    assert not by("vms.get_vm_logs", vm.id).found
    eventually(is_(by, vm.id, "running"))
    eventually(lambda: by("vms.get_vm_detail", vm.id).ssh_ready)

    detail = by("vms.get_vm_detail", vm.id)
    assert given(detail) >= {
        "container_port",
        "disk_total_bytes",
        "disk_used_bytes",
        "gpu_info",
        "gpu_model_id",
        "guest_mem_mb",
        "guest_vcpu",
        "non_billable",
        "price_per_hour_cents",
        "public",
        "requested_guest_mem_mb",
        "ssh_command",
        "ssh_handle",
        "ssh_host",
        "ssh_port",
        "ssh_state_reason",
        "ssh_user",
        "started_at",
    }
    assert not given(detail) & {"terminated_at", "interrupted_at", "provisioning_stage", "volume_gb"}
    assert (detail.healthy, detail.ssh_state, detail.gpu_info.vram_gb) == (True, "ready", 80)
    assert detail.ssh_command == f"ssh {detail.ssh_handle}@{detail.ssh_host}"
    assert detail.ssh_handle == detail.ssh_handle.lower()
    assert detail.disk_total_bytes == 200 * 10**9
    metrics = by("vms.get_vm_metrics", vm.id, range_="6h")
    assert (metrics.accelerator.status, metrics.accelerator.reason) == (
        "unavailable",
        "accelerator_passthrough",
    )
    assert (metrics.step_seconds, metrics.point_count, metrics.gpus) == (300, 72, [])
    assert (metrics.end - metrics.start).total_seconds() == 6 * 3600

    eventually(lambda: "login:" in by("vms.get_vm_logs", vm.id).content)
    assert "cloud-init ran" in by("pods.get_pod_logs", vm.id).content
    assert by("vms.reboot_vm", vm.id) == 204
    eventually(lambda: "rebooting\nlogin:" in by("vms.get_vm_logs", vm.id).content)
    again = by("vms.restart_vm", vm.id)
    assert (again.status, again.status_reason) == ("running", "user_restarted")
    assert by("vms.set_vm_visibility", vm.id, body=models.SetVmVisibilityRequest(public=True)).public

    spare = factories.ssh_key(site.buyer)
    attach = models.AttachSshKeyRequest(ssh_key_id=str(spare.pk))
    assert [by("vms.attach_vm_ssh_key", vm.id, body=attach) for _ in range(2)] == [204, 204]
    attached = {item.id: item.attached for item in by("vms.get_vm_ssh_keys", vm.id)}
    assert attached == {str(spare.pk): True, str(site.key.pk): True}
    assert by("ssh_keys.delete_org_ssh_key", by.org, str(site.key.pk)) == 204
    assert by.refused("ssh_keys.delete_org_ssh_key", by.org, str(spare.pk)) == "KEY_IN_USE"
    assert by.refused("vms.detach_vm_ssh_key", vm.id, str(spare.pk)) == "VALIDATION_ERROR"

    stopped = by("vms.stop_vm", vm.id)
    assert (stopped.status, stopped.status_reason) == ("stopped", "user_stopped")
    assert by("vms.get_vm_detail", vm.id).ssh_state == "offline"
    grown = models.ResizeDiskRequest(new_size_gb=300)
    assert by("vms.resize_vm_disk", vm.id, body=grown) == 204
    assert by("vms.restart_vm", vm.id).status == "deploying"
    eventually(is_(by, vm.id, "running"))
    eventually(lambda: "disk of 300 GB" in by("vms.get_vm_logs", vm.id).content)
    # The disk is the same: what runs once a disk did not run again.
    assert "cloud-init" not in by("vms.get_vm_logs", vm.id).content
    assert by("vms.get_vm_burn", vm.id).rate_source == "locked"

    ended = by("vms.terminate_vm", vm.id)
    assert (ended.status, ended.status_reason) == ("terminated", "user_terminated")
    detail = by("vms.get_vm_detail", vm.id)
    assert (detail.healthy, "terminated_at" in given(detail)) == (False, True)
    assert by.refused("vms.restart_vm", vm.id) == "INVALID_STATE"
    eventually(lambda: not Occupancy.objects.open().exists())
    eventually(lambda: not _disks(agent))
    consistent()


def _disks(agent: Agent) -> dict[str, int]:
    memory = json.loads(agent.file.with_name("agents.guests.json").read_text())
    found: dict[str, int] = memory[str(agent.site.node.pk)]["disks"]
    return found


def test_what_goes_wrong_on_a_host_is_told_and_can_be_gone_over(agent: Agent, sdk: ModuleType) -> None:
    site, by = agent.site, By(sdk, agent.site)
    agent.write(failsBoots=True)
    vm = site.create().json()["id"]
    eventually(is_(by, vm, "failed"))
    assert by("vms.get_vm", vm).status_reason == "the guest did not boot"
    agent.write()
    assert by("vms.restart_vm", vm).status == "deploying"
    eventually(is_(by, vm, "running"))

    by("vms.stop_vm", vm)
    eventually(lambda: not Occupancy.objects.open().exists())
    agent.write(fillsDisk=True)
    eventually(lambda: Node.objects.get(pk=site.node.pk).disk_free_gb == 0)
    assert by.refused("vms.restart_vm", vm) == "VM_NODE_BUSY"
    assert by.status(vm) == "stopped"
    agent.write()
    eventually(lambda: Node.objects.get(pk=site.node.pk).disk_free_gb != 0)
    assert by("vms.restart_vm", vm).status == "deploying"
    eventually(is_(by, vm, "running"))

    # A command that is lost with the agent is carried out by its successor.
    agent.kill()
    by("vms.stop_vm", vm)
    agent.start()
    eventually(lambda: not Occupancy.objects.open().exists())
    assert by.status(vm) == "stopped"
    # And one that was stopped before the agent ever heard of it never starts.
    agent.kill()
    quick = site.create().json()["id"]
    by("vms.stop_vm", quick)
    agent.start()
    eventually(lambda: not Occupancy.objects.open().exists())
    assert by.status(quick) == "stopped"
    assert Workload.objects.get(pk=quick).started_at is None
    assert AuditEvent.objects.filter(target_id=quick).count() == 2
    consistent()


def test_an_organization_that_may_start_nothing_is_told_by_the_published_client(
    agent: Agent, sdk: ModuleType
) -> None:
    site, by = agent.site, By(sdk, agent.site)
    vm = site.create().json()["id"]
    eventually(is_(by, vm, "running"))
    by("vms.stop_vm", vm)
    eventually(lambda: not Occupancy.objects.open().exists())
    body = by.models.CreateVmRequest(name="vm", ssh_key_ids=[str(site.key.pk)], gpu_count=1)
    pod = by.models.CreatePodRequest(image="ghcr.io/acme/trainer:1.4", ssh_key_ids=[str(site.key.pk)])

    def refused() -> list[str]:
        return [
            by.refused("vms.create_vm", by.org, body=body),
            by.refused("vms.restart_vm", vm),
        ]

    call_command("set_org", site.buyer.slug, "--account-status=suspended")
    assert refused() == ["ACCOUNT_RESTRICTED"] * 2
    assert by("organizations.get_org", by.org).account_status == "suspended"
    call_command("set_org", site.buyer.slug, "--account-status=active", "--balance-cents=0")
    assert refused() == ["INSUFFICIENT_BALANCE"] * 2
    pod_node(site.provider)
    assert by.refused("pods.create_pod", body=pod) == "INSUFFICIENT_BALANCE"
    call_command("set_org", site.buyer.slug, "--balance-cents=100000")
    assert by("vms.restart_vm", vm).status == "deploying"
    assert by("vms.create_vm", by.org, body=body).status == "deploying"
    assert by("pods.create_pod", body=pod).status == "deploying"
