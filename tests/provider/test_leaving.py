"""Announced ends: offboarding, a node's own notice, the deadline and what may move it."""

import datetime as dt
from typing import Any

import pytest
from rest_framework.test import APIClient

from compute import tasks
from compute.models import UsageSession, Workload
from compute.services.lifecycle import interrupt
from nodes.models import Node
from openrelay.audit.models import AuditEvent
from openrelay.core.clock import rfc3339
from openrelay.core.errors import Invalid
from openrelay.identity.models import Organization
from tests import factories
from tests.compute.conftest import World, consistent, refused, state
from tests.provider.conftest import Provider, events

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(provider: Provider) -> Node:
    return provider.interruptible()


@pytest.fixture
def vm(provider: Provider, world: World, node: Node) -> Workload:
    """A VM that runs on the interruptible node."""
    made = world.running(world.provider, nodeId=str(node.pk))
    assert made.node_id == node.pk
    return made


def after(clock: Any, seconds: float) -> str:
    return rfc3339(clock.now() + dt.timedelta(seconds=seconds))


def leave_notices(world: World) -> None:
    Organization.objects.filter(pk=world.provider.pk).update(leave_notices_enabled=True)


def test_nothing_ends_before_the_deadline_and_all_does_at_it(
    provider: Provider, world: World, node: Node, vm: Workload, clock: Any
) -> None:
    at = clock.freeze()
    deadline = rfc3339(at + dt.timedelta(seconds=120))
    shown = provider.offboard(node, noticeSeconds=120).json()
    assert (shown["status"], shown["terminateAt"]) == ("draining", deadline)
    assert state(vm) == ("running", f"node leaving at {deadline}")
    refused(world.ask(world.provider, nodeId=str(node.pk)), 503, "INSUFFICIENT_GPU_CAPACITY")
    for _ in range(2):
        clock.advance(59.999)
        tasks.sweep_leaving_nodes()
        tasks.remove_leaving_node(str(node.pk))
        assert state(vm)[0] == "running"
    clock.advance(0.002)
    # The clock alone says so, whoever has worked.
    assert provider.shown(node)["status"] == "removed"
    refused(provider.set("online", node), 400, "NODE_DECOMMISSIONED")
    with pytest.raises(Invalid, match="was removed"):
        world.reserve(0, node=node)
    tasks.sweep_leaving_nodes()
    tasks.remove_leaving_node(str(node.pk))
    assert state(vm) == ("terminated", "node_removed")
    node.refresh_from_db()
    assert node.removed_at == clock.now()
    assert events(node)[-2:] == ["node.leaving", "node.removed"]
    assert events(vm)[-2:] == ["vm.node_leaving", "vm.terminated"]


def test_a_deadline_only_ever_moves_earlier(provider: Provider, node: Node, vm: Workload, clock: Any) -> None:
    at = clock.freeze()
    first = provider.offboard(node, noticeSeconds=600).json()["terminateAt"]
    written = AuditEvent.objects.count()
    for body in ({"noticeSeconds": 600}, {"noticeSeconds": 3600}, {"terminateAt": after(clock, 700)}):
        assert provider.offboard(node, **body).json()["terminateAt"] == first
    assert provider.notice(node, noticeSeconds=900).json()["terminateAt"] == first
    assert provider.set("online", node).json()["terminateAt"] == first
    assert AuditEvent.objects.count() == written
    earlier = rfc3339(at + dt.timedelta(seconds=30))
    assert provider.notice(node).json() == {
        "nodeId": str(node.pk),
        "status": "draining",
        "terminateAt": earlier,
    }
    assert state(vm)[1] == f"node leaving at {earlier}"


@pytest.mark.parametrize("body", [{}, {"noticeSeconds": 0}, {"terminateAt": "2020-01-01T00:00:00Z"}])
def test_no_deadline_and_a_past_one_are_now(
    provider: Provider, node: Node, vm: Workload, body: dict[str, Any]
) -> None:
    answer = provider.offboard(node, **body)
    assert answer.status_code == 200
    assert answer.json()["status"] == "removed"
    assert answer.json()["terminateAt"]
    assert state(vm) == ("terminated", "node_removed")
    refused(provider.offboard(node), 400, "NODE_DECOMMISSIONED")


@pytest.mark.parametrize(
    "body",
    [
        {"noticeSeconds": 1, "terminateAt": "2030-01-01T00:00:00Z"},
        {"noticeSeconds": -1},
        {"noticeSeconds": 86401},
        {"noticeSeconds": "60"},
        {"terminateAt": "2126-01-01T00:00:00Z"},
        {"terminateAt": "2030-01-01T00:00:00"},
        {"at": "now"},
    ],
)
def test_a_notice_that_cannot_be_is_refused(provider: Provider, node: Node, body: dict[str, Any]) -> None:
    refused(provider.offboard(node, **body), 400, "VALIDATION_ERROR")
    refused(provider.notice(node, **body), 400, "VALIDATION_ERROR")
    node.refresh_from_db()
    assert node.terminate_at is None


def test_a_persistent_node_is_not_offboarded(provider: Provider, world: World) -> None:
    refused(provider.offboard(world.node, noticeSeconds=60), 409, "INVALID_STATE", "persistent")
    refused(provider.offboard(world.node, by=world.tenant), 404, "NOT_FOUND")


def test_a_persistent_nodes_notice_needs_its_organization_and_a_deadline(
    provider: Provider, world: World, clock: Any
) -> None:
    clock.freeze()
    refused(provider.notice(noticeSeconds=600), 409, "FEATURE_DISABLED")
    leave_notices(world)
    for body in ({}, {"noticeSeconds": 299}, {"terminateAt": after(clock, 7 * 86400 + 1)}):
        refused(provider.notice(**body), 400, "VALIDATION_ERROR", "deadline")
    vm = world.running(world.buyer)
    answer = provider.notice(noticeSeconds=7 * 86400)
    assert answer.status_code == 200
    assert answer.json()["terminateAt"] == after(clock, 7 * 86400)
    assert provider.shown()["status"] == "draining"
    assert state(vm)[0] == "running"
    refused(world.ask(world.buyer), 503, "INSUFFICIENT_GPU_CAPACITY")
    assert provider.notice(noticeSeconds=300).json()["terminateAt"] == after(clock, 300)


def test_what_comes_to_run_on_a_leaving_node_is_told(provider: Provider, world: World, clock: Any) -> None:
    clock.freeze()
    node = provider.interruptible()
    vm = world.vm(world.provider, nodeId=str(node.pk))
    provider.offboard(node, noticeSeconds=600)
    assert state(vm) == ("deploying", "")
    world.says((vm, "running"), node=node)
    assert state(vm) == ("running", f"node leaving at {after(clock, 600)}")


def test_a_stopped_vm_deploys_elsewhere_from_its_nodes_end_on_whoever_has_worked(
    provider: Provider, world: World, node: Node, vm: Workload, clock: Any
) -> None:
    clock.freeze()
    api = world.client(world.provider)
    assert api.post(f"/v1/vms/{vm.pk}/stop").status_code == 200
    provider.offboard(node, noticeSeconds=600)
    refused(api.post(f"/v1/vms/{vm.pk}/restart"), 503, "VM_NODE_BUSY", "no new work")
    clock.advance(600)
    factories.online(node, world.node)
    answer = api.post(f"/v1/vms/{vm.pk}/restart")
    assert answer.status_code == 200, answer.content
    tasks.sweep_leaving_nodes()
    assert state(vm) == ("deploying", "user_restarted")
    assert vm.node_id == world.node.pk


@pytest.mark.parametrize("status", ["deploying", "running", "interrupted"])
def test_what_is_on_a_node_at_its_end_is_not_saved_by_stopping_it_before_a_task_has_ended_it(
    provider: Provider, world: World, clock: Any, status: str
) -> None:
    clock.freeze()
    node = provider.interruptible()
    api = world.client(world.provider)
    vm = world.vm(world.provider, nodeId=str(node.pk))
    if status != "deploying":
        world.says((vm, "running"), node=node)
    provider.offboard(node, noticeSeconds=600)
    if status == "interrupted":
        clock.advance(200)
        assert interrupt.interrupt_lost(node.pk) == [vm]
    clock.advance(599 if status != "interrupted" else 399)
    assert state(vm)[0] == status
    clock.advance(1)
    factories.online(node)
    for verb in ("stop", "reboot", "restart"):
        refused(api.post(f"/v1/vms/{vm.pk}/{verb}"), 409, "INVALID_STATE", "vm")
    assert state(vm)[0] == status
    tasks.sweep_leaving_nodes()
    assert state(vm) == ("terminated", "node_removed")


@pytest.mark.parametrize("word", ["stopped", "failed", "gone", "never-started"])
@pytest.mark.parametrize("was", ["deploying", "running", "interrupted"])
def test_what_ends_by_itself_once_its_nodes_end_has_come_ends_with_its_node(
    provider: Provider, world: World, clock: Any, was: str, word: str
) -> None:
    clock.freeze()
    node = provider.interruptible()
    vm = world.vm(world.provider, nodeId=str(node.pk))
    if was != "deploying":
        world.says((vm, "running"), node=node)
    if was == "interrupted":
        clock.advance(200)
        assert interrupt.interrupt_lost(node.pk) == [vm]
    provider.offboard(node, noticeSeconds=60)
    clock.advance(60)
    world.says((vm, word), node=node)
    assert state(vm) == ("terminated", "node_removed")
    assert events(vm)[-1] == "vm.terminated"
    tasks.sweep_leaving_nodes()
    assert state(vm) == ("terminated", "node_removed")
    assert events(vm).count("vm.terminated") == 1
    consistent()


@pytest.mark.parametrize("word", ["starting", "running"])
def test_nothing_comes_to_run_once_its_nodes_end_has_come(
    provider: Provider, world: World, clock: Any, word: str
) -> None:
    clock.freeze()
    node = provider.interruptible()
    vm = world.vm(world.provider, nodeId=str(node.pk))
    provider.offboard(node, noticeSeconds=60)
    clock.advance(60)
    world.says((vm, word), node=node)
    assert state(vm) == ("deploying", "")
    assert not UsageSession.objects.exists()


def test_what_is_given_up_once_its_nodes_end_has_come_ends_with_its_node(
    provider: Provider, world: World, clock: Any
) -> None:
    clock.freeze()
    Organization.objects.filter(pk=world.provider.pk).update(leave_notices_enabled=True)
    vm = world.running(world.provider, nodeId=str(world.node.pk))
    clock.advance(200)
    assert interrupt.interrupt_lost(world.node.pk) == [vm]
    provider.notice(noticeSeconds=7 * 86400 - 60)
    clock.advance(7 * 86400)
    assert interrupt.expire_interrupted(vm.pk)
    assert state(vm) == ("terminated", "node_removed")


def test_a_second_before_its_nodes_end_a_workload_may_be_stopped(
    provider: Provider, world: World, node: Node, vm: Workload, clock: Any
) -> None:
    clock.freeze()
    provider.offboard(node, noticeSeconds=600)
    clock.advance(599)
    factories.online(node)
    api = world.client(world.provider)
    assert api.post(f"/v1/vms/{vm.pk}/stop").status_code == 200
    clock.advance(1)
    tasks.sweep_leaving_nodes()
    assert state(vm) == ("stopped", "node_removed")
    # Whoever would rather end what is ending may.
    other = provider.interruptible()
    going = world.vm(world.provider, nodeId=str(other.pk))
    provider.offboard(other, noticeSeconds=60)
    clock.advance(60)
    assert api.post(f"/v1/vms/{going.pk}/terminate").status_code == 200
    assert state(going) == ("terminated", "user_terminated")


@pytest.mark.parametrize("what", ["a failed VM", "a stopped pod"])
def test_what_ends_with_its_node_is_not_started_elsewhere_before_a_task_has_ended_it(
    provider: Provider, world: World, clock: Any, what: str
) -> None:
    clock.freeze()
    node = provider.interruptible()
    if what == "a stopped pod":
        host = {"cpuCores": 128, "ramMb": 1024 * 1024, "diskTotalGb": 16000, "diskFreeGb": 16000}
        for pod_node in (node, factories.node(world.provider, 0)):
            units = [factories.unit_report(n, allocClass="device-request") for n in range(2)]
            factories.inventory(pod_node, units, runtime="runc", host=host)
        Node.objects.filter(pk=pod_node.pk).update(owner_hold="maintenance")
        body = {"image": "ghcr.io/acme/trainer:1.4", "sshKeyIds": [str(factories.ssh_key(world.provider).pk)]}
        answer = world.client(world.provider).post("/v1/pods", body)
        made = Workload.objects.get(pk=answer.json()["id"])
        Node.objects.filter(pk=pod_node.pk).update(owner_hold="")
        assert world.client(world.provider).post(f"/v1/vms/{made.pk}/stop").status_code == 200
        world.says((made, "gone"), node=node)
    else:
        made = world.vm(world.provider, nodeId=str(node.pk))
        world.says((made, "failed"), node=node)
    assert made.node_id == node.pk
    provider.offboard(node, noticeSeconds=60)
    clock.advance(60)
    factories.online(*Node.objects.all())
    for _ in range(2):
        answer = world.client(world.provider).post(f"/v1/vms/{made.pk}/restart")
        refused(answer, 409, "INVALID_STATE")
        tasks.sweep_leaving_nodes()
    assert state(made) == ("terminated", "node_removed")


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
def test_for_who_is_no_node_there_is_nothing(world: World, method: str) -> None:
    for org in (factories.platform(), world.provider, world.tenant):
        answer = getattr(world.client(org), method)("/v1/nodes/termination-notice", {"noticeSeconds": 60})
        refused(answer, 404, "NOT_FOUND", "There is no such thing here")
    assert APIClient().post("/v1/nodes/termination-notice").status_code == 401
    assert world.agent().get("/v1/nodes/termination-notice").status_code == 405
    assert not Node.objects.exclude(terminate_at=None).exists()
