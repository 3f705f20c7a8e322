"""One audit event for each object that a tenant changes, in the transaction that changed it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core import serializers

from compute.models import Claim, Occupancy, Run, SshKey, UsageSession, Workload, WorkloadSshKey
from openrelay.api.models import IdempotencyKey
from openrelay.audit.models import AuditEvent
from tests import factories
from tests.compute.conftest import World, refused
from tests.compute.test_life_cycle import act
from tests.reservations.test_auditing import full_audit_log

pytestmark = pytest.mark.django_db

FACTS = (Workload, WorkloadSshKey, Run, Claim, Occupancy, UsageSession, SshKey, IdempotencyKey)


def everything() -> str:
    """All that is stored, audit apart."""
    return "".join(serializers.serialize("json", model.objects.order_by("pk")) for model in FACTS)


class Scene:
    """VMs of the buyer, one running and one stopped, with GPUs and without; spot ones on released units; and
    each change that tenants make.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        world.release(world.reserve(0, 1, 2), 0, 1, 2)
        self.spot = [world.running(world.buyer, tier="spot") for _ in range(3)]
        self.running, self.stopped = world.running(world.buyer), world.running(world.buyer)
        cpu: dict[str, Any] = {"gpuCount": None, "resourceSize": "cpu-small"}
        self.cpu_running, self.cpu_stopped = (world.running(world.buyer, **cpu) for _ in range(2))
        for made in (self.stopped, self.cpu_stopped):
            assert act(world, made, "stop").status_code == 200
            world.says((made, "gone"))
        self.extra = factories.ssh_key(world.buyer)
        self.spare = factories.ssh_key(world.buyer)
        assert self.keys(self.running, self.extra).status_code == 204
        world.client(world.tenant)
        world.keys[world.tenant.pk] = factories.ssh_key(world.tenant)
        self.stood = set(Workload.objects.values_list("pk", flat=True))
        self.events = set(AuditEvent.objects.values_list("pk", flat=True))

    def keys(self, made: Workload, key: SshKey) -> Any:
        path = f"/v1/vms/{made.pk}/ssh-keys"
        return self.world.client(self.world.buyer).post(path, {"sshKeyId": str(key.pk)})

    def named(self, **body: Any) -> Any:
        return self.world.ask(self.world.tenant, nodeId=str(self.world.node.pk), **body)

    def new_events(self) -> list[str]:
        """What was audited since, each as event and what it is of."""
        names = {str(getattr(self, name).pk): name for name in ("running", "stopped", "extra", "spare")}
        names |= {str(getattr(self, name).pk): name for name in ("cpu_running", "cpu_stopped")}
        names |= {str(made.pk): "spot" for made in self.spot}
        names |= {
            str(pk): "new" for pk in Workload.objects.exclude(pk__in=self.stood).values_list("pk", flat=True)
        }
        events = AuditEvent.objects.exclude(pk__in=self.events)
        return sorted(f"{event.event} {names.get(event.target_id, event.target_type)}" for event in events)


def on(verb: str, name: str, **body: Any) -> Callable[[World, Scene], Any]:
    """One of the operations on one of the scene's VMs."""
    return lambda world, scene: act(world, getattr(scene, name), verb, **body)


CHANGES: dict[str, tuple[Callable[[World, Scene], Any], list[str]]] = {
    "create": (lambda world, scene: world.ask(world.buyer), ["vm.created new"]),
    "create_once": (
        lambda world, scene: world.ask(world.buyer, {"Idempotency-Key": "once"}),
        ["vm.created new"],
    ),
    "create_cpu": (
        lambda world, scene: world.ask(world.buyer, gpuCount=None, resourceSize="cpu-small"),
        ["vm.created new"],
    ),
    "create_cpu_named": (
        lambda world, scene: scene.named(gpuCount=None, resourceSize="cpu-small"),
        ["vm.created new"],
    ),
    "preempt": (
        lambda world, scene: scene.named(gpuCount=3),
        ["vm.created new", *["vm.terminated spot"] * 3],
    ),
    "stop": (on("stop", "running"), ["vm.stopped running"]),
    "stop_cpu": (on("stop", "cpu_running"), ["vm.stopped cpu_running"]),
    "restart_running": (on("restart", "running"), ["vm.rebooted running"]),
    "restart_stopped": (on("restart", "stopped"), ["vm.restarted stopped"]),
    "restart_cpu_stopped": (on("restart", "cpu_stopped"), ["vm.restarted cpu_stopped"]),
    "reboot": (on("reboot", "running"), ["vm.rebooted running"]),
    "resize": (on("resize-disk", "stopped", newSizeGb=150), ["vm.disk_resized stopped"]),
    "show": (on("visibility", "running", public=True), ["vm.visibility_changed running"]),
    "terminate": (on("terminate", "running"), ["vm.terminated running"]),
    "terminate_stopped": (on("terminate", "stopped"), ["vm.terminated stopped"]),
    "terminate_cpu": (on("terminate", "cpu_running"), ["vm.terminated cpu_running"]),
    "attach": (lambda world, scene: scene.keys(scene.running, scene.spare), ["vm.ssh_key_attached running"]),
    "detach": (
        lambda world, scene: world.client(world.buyer).delete(
            f"/v1/vms/{scene.running.pk}/ssh-keys/{scene.extra.pk}"
        ),
        ["vm.ssh_key_detached running"],
    ),
    "delete_key": (
        lambda world, scene: world.client(world.buyer).delete(
            f"/v1/orgs/{world.buyer.pk}/ssh-keys/{scene.spare.pk}"
        ),
        ["ssh_key.deleted spare"],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_and_its_events_are_both_there_or_neither(world: World, change: str) -> None:
    scene = Scene(world)
    make, expected = CHANGES[change]
    clients = world.client(world.buyer), world.client(world.tenant)
    before = everything()

    for client in clients:
        client.raise_request_exception = False
    with full_audit_log():
        assert make(world, scene).status_code == 500
    assert everything() == before
    assert scene.new_events() == []

    for client in clients:
        client.raise_request_exception = True
    answer = make(world, scene)
    assert answer.status_code in (200, 204), answer.content
    assert everything() != before
    assert scene.new_events() == sorted(expected)
    requests = AuditEvent.objects.exclude(pk__in=scene.events).values_list("request_id", flat=True)
    assert len(set(requests)) == 1


def test_another_organizations_things_are_not_there_whatever_is_asked_of_them(world: World) -> None:
    """Bodies that their owner could send, by a key of others that may do anything in their own."""
    scene = Scene(world)
    outsider = world.client(factories.organization("Outsider"))
    before = everything()
    vm, key = f"/v1/vms/{scene.running.pk}", str(scene.extra.pk)
    attempts = [
        outsider.post(f"/v1/vms/{made.pk}/{verb}", body)
        for made, verb, body in (
            (scene.running, "stop", {}),
            (scene.cpu_running, "stop", {}),
            (scene.stopped, "restart", {}),
            (scene.cpu_stopped, "restart", {}),
            (scene.running, "reboot", {}),
            (scene.stopped, "resize-disk", {"newSizeGb": 150}),
            (scene.running, "visibility", {"public": True}),
            (scene.running, "ssh-keys", {"sshKeyId": str(scene.spare.pk)}),
            (scene.cpu_running, "terminate", {}),
            (scene.running, "terminate", {}),
        )
    ]
    attempts.append(outsider.delete(f"{vm}/ssh-keys/{key}"))
    for answer in attempts:
        refused(answer, 404, "NOT_FOUND")
    assert len({answer.content for answer in attempts}) == 1
    refused(outsider.delete(f"/v1/orgs/{world.buyer.pk}/ssh-keys/{key}"), 403, "FORBIDDEN")
    assert everything() == before
    new = AuditEvent.objects.exclude(pk__in=scene.events)
    assert [event.event for event in new] == ["request.refused"] * (len(attempts) + 1)
