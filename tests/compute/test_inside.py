"""What is known of the inside of a VM, which keys open it, and who does not come up."""

from typing import Any

import pytest

from compute.domain import states
from compute.models import GuestState, SshKey, WorkloadSshKey
from compute.services.lifecycle import overdue_starts
from compute.tasks import sweep_lost_nodes, sweep_stuck
from nodes.models import Location, Node, NodeHeartbeat
from openrelay.audit.models import AuditEvent
from openrelay.core.clock import Now
from tests import factories
from tests.compute.conftest import World, refused, run_of, state
from tests.compute.test_life_cycle import act, events, gpu_fails, stopped

pytestmark = pytest.mark.django_db

INVENTED = "0198c0de-0000-7000-8000-000000000000"


def says(world: World, made: Any, status: str, **inside: Any) -> Any:
    """Have the agent report the VM's guest, with what is known of its inside."""
    world.sequence += 1
    guest = {"runId": run_of(made), "state": status, **inside}
    answer = world.agent().post("/v1/agent/reports", {"sequence": world.sequence, "guests": [guest]})
    assert answer.status_code == 200, answer.content
    return answer.json()


def shown(world: World, made: Any) -> dict[str, Any]:
    answer = world.client(made.organization).get(f"/v1/vms/{made.pk}/detail")
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


# Console


def test_the_console_is_the_latest_runs_and_outlives_it(world: World) -> None:
    made = world.vm(world.buyer)
    path = f"/api/nomad/vms/{made.pk}/logs"
    client = world.client(world.buyer)
    nothing = client.get(path).json()
    assert (nothing["found"], nothing["content"]) == (False, None)
    assert nothing["message"]
    says(world, made, "running", console="one\n\x1b[31mtwo\x1b[0m\r\n\x07three")
    assert client.get(path).json() == {"found": True, "content": "one\ntwo\nthree"}
    before = AuditEvent.objects.count()
    says(world, made, "running", console="four")
    assert client.get(path).json()["content"] == "four"
    assert AuditEvent.objects.count() == before
    act(world, made, "stop")
    says(world, made, "gone")
    assert client.get(f"/api/nomad/pods/{made.pk}/logs").json()["content"] == "four"
    act(world, made, "restart")
    assert client.get(path).json()["content"] == "four"
    says(world, made, "starting", console="five")
    assert client.get(path).json()["content"] == "five"


def test_a_console_is_bounded_and_only_of_the_nodes_own_runs(world: World) -> None:
    made = world.vm(world.buyer)
    world.sequence += 1
    guest = {"runId": run_of(made), "state": "running", "console": "x" * 65_537}
    body = {"sequence": world.sequence, "guests": [guest]}
    refused(world.agent().post("/v1/agent/reports", body), 400, "VALIDATION_ERROR", "console")
    other = factories.node(world.provider, 1)
    body["guests"][0]["console"] = "not mine"
    assert world.agent(other).post("/v1/agent/reports", body).status_code == 200
    assert not GuestState.objects.exists()


@pytest.mark.parametrize("kind", ["vms", "pods"])
def test_a_console_is_not_there_for_others_nor_without_the_permission(world: World, kind: str) -> None:
    made = world.running(world.buyer)
    path = f"/api/nomad/{kind}/{made.pk}/logs"
    told = [
        world.client(world.tenant).get(path),
        world.client(world.buyer).get(f"/api/nomad/{kind}/{INVENTED}/logs"),
        world.client(world.buyer).get(f"/api/nomad/{kind}/x/logs"),
    ]
    poor = factories.api_key(world.buyer, ["catalog.read"])
    world.client(world.buyer).credentials(HTTP_AUTHORIZATION=f"Bearer {poor}")
    told.append(world.client(world.buyer).get(path))
    assert {answer.status_code for answer in told} == {404}
    assert len({answer.content for answer in told}) == 1


# Detail


def test_the_detail_follows_the_vm_through_its_life(world: World) -> None:
    place = Location.objects.create(
        slug="fra-1", name="Frankfurt 1", city="Frankfurt", country="DE", region="eu"
    )
    Node.objects.update(location=place)
    made = world.vm(world.buyer, gpuCount=2, guestMemMb=120_000, diskSizeGb=300)
    found = shown(world, made)
    assert (found["status"], found["provisioningStage"], found["sshState"]) == (
        "deploying",
        "scheduled",
        "booting",
    )
    assert (found["healthy"], found["sshReady"], "startedAt" in found) == (False, False, False)
    assert (found["guestMemMb"], found["requestedGuestMemMb"], found["diskSizeGb"]) == (120_000, 120_000, 300)
    assert found["guestVcpu"] == 32
    assert found["nodeInfo"] == {"location": "Frankfurt 1"}
    assert found["gpuInfo"] == {
        "name": "NVIDIA H100 SXM5 80 GB",
        "manufacturer": "NVIDIA",
        "vramGb": 80,
        "pricePerHourCents": 200,
    }
    says(world, made, "running")
    assert (shown(world, made)["sshState"], shown(world, made)["healthy"]) == ("booting", True)
    says(world, made, "running", sshReady=True, diskTotalBytes=300, diskUsedBytes=7)
    found = shown(world, made)
    assert (found["sshState"], found["sshReady"]) == ("ready", True)
    assert (found["diskTotalBytes"], found["diskUsedBytes"]) == (300, 7)
    assert found["nonBillable"] is False
    handle = found["sshHandle"]
    act(world, made, "reboot")
    assert shown(world, made)["sshState"] == "booting"
    gpu_fails(world, 0)
    assert shown(world, made)["healthy"] is False
    act(world, made, "stop")
    found = shown(world, made)
    assert (found["sshState"], found["sshHandle"]) == ("offline", handle)
    assert "terminatedAt" not in found
    world.terminate(world.buyer, made)
    found = shown(world, made)
    assert (found["healthy"], found["sshState"]) == (False, "offline")
    assert "terminatedAt" in found
    assert "provisioningStage" not in found


def test_memory_that_was_not_asked_for_is_shown_as_it_came(world: World) -> None:
    found = shown(world, world.vm(world.buyer))
    assert found["requestedGuestMemMb"] == found["guestMemMb"] > 53_248


def test_endpoints_have_names_where_a_domain_routes_to_them(world: World, settings: Any) -> None:
    made = world.running(world.buyer, containerPort=8080)
    assert "endpointUrl" not in shown(world, made)
    settings.ENDPOINT_DOMAIN, settings.SSH_GATEWAY_HOST, settings.SSH_GATEWAY_PORT = (
        "run.test",
        "ssh.test",
        2222,
    )
    found = shown(world, made)
    assert found["endpointUrl"] == f"https://{found['sshHandle']}.run.test"
    assert found["sshCommand"] == f"ssh -p 2222 {found['sshHandle']}@ssh.test"
    assert "endpointUrl" not in shown(world, world.running(world.buyer))


@pytest.mark.parametrize(
    ("range_", "step", "points"), [("1h", 60, 60), ("6h", 300, 72), ("24h", 900, 96), ("7d", 3600, 168)]
)
def test_a_vms_gpus_cannot_be_read_by_its_host(world: World, range_: str, step: int, points: int) -> None:
    made = world.running(world.buyer)
    found = world.client(world.buyer).get(f"/v1/vms/{made.pk}/metrics", {"range": range_}).json()
    assert (found["stepSeconds"], found["pointCount"], found["gpus"]) == (step, points, [])
    assert found["accelerator"]["status"] == "unavailable"
    assert found["accelerator"]["reason"] == "accelerator_passthrough"
    bad = world.client(world.buyer).get(f"/v1/vms/{made.pk}/metrics", {"range": "2h"})
    refused(bad, 400, "VALIDATION_ERROR", "range")


# Keys


def attach(world: World, made: Any, key: Any) -> Any:
    return act(world, made, "ssh-keys", sshKeyId=str(key))


def detach(world: World, made: Any, key: Any) -> Any:
    return world.client(made.organization).delete(f"/v1/vms/{made.pk}/ssh-keys/{key}")


def test_keys_are_attached_and_detached_safely_repeated_and_reach_the_node(world: World) -> None:
    made = world.running(world.buyer)
    first, second = world.keys[world.buyer.pk], factories.ssh_key(world.buyer)
    SshKey.objects.filter(pk=second.pk).update(public_key="ssh-ed25519 SECOND")
    assert [attach(world, made, second.pk).status_code for _ in range(2)] == [204, 204]
    assert "ssh-ed25519 SECOND" in world.work()[str(made.pk)]["spec"]["sshKeys"]
    listed = world.client(world.buyer).get(f"/v1/vms/{made.pk}/ssh-keys").json()
    assert [(row["id"], row["attached"], row["crossOrg"]) for row in listed] == [
        (str(second.pk), True, False),
        (str(first.pk), True, False),
    ]
    assert [detach(world, made, first.pk).status_code for _ in range(2)] == [204, 204]
    refused(detach(world, made, second.pk), 400, "VALIDATION_ERROR", second.name, "only key")
    assert events(made)[2:] == ["vm.ssh_key_attached", "vm.ssh_key_detached"]


def test_another_organizations_key_is_not_there(world: World) -> None:
    made = world.running(world.buyer)
    theirs = factories.ssh_key(world.tenant)
    told = [attach(world, made, key) for key in (theirs.pk, INVENTED, "x")]
    told += [detach(world, made, key) for key in (theirs.pk, INVENTED, "x")]
    assert {answer.status_code for answer in told} == {404}
    assert len({answer.content for answer in told}) == 1
    path = f"/v1/orgs/{world.buyer.pk}/ssh-keys"
    told = [world.client(world.buyer).delete(f"{path}/{key}") for key in (theirs.pk, INVENTED, "x")]
    assert {answer.status_code for answer in told} == {404}
    assert SshKey.objects.filter(pk=theirs.pk).exists()
    foreign = world.client(world.buyer).delete(f"/v1/orgs/{world.tenant.pk}/ssh-keys/{theirs.pk}")
    assert foreign.status_code == 403


def test_no_key_is_attached_to_what_is_terminated(world: World) -> None:
    made = world.running(world.buyer)
    world.terminate(world.buyer, made)
    refused(attach(world, made, world.keys[world.buyer.pk].pk), 400, "VALIDATION_ERROR", "terminated")


def test_a_key_is_deleted_everywhere_but_not_where_it_is_the_only_one(world: World) -> None:
    alone, both = world.vm(world.buyer, name="alone"), world.vm(world.buyer, name="both")
    ended = world.vm(world.buyer, name="ended")
    world.terminate(world.buyer, ended)
    key, spare = world.keys[world.buyer.pk], factories.ssh_key(world.buyer)
    attach(world, both, spare.pk)
    path = f"/v1/orgs/{world.buyer.pk}/ssh-keys/{key.pk}"
    answer = world.client(world.buyer).delete(path)
    refused(answer, 409, "KEY_IN_USE", "alone")
    assert answer.json()["blockingVms"] == ["alone"]
    assert WorkloadSshKey.objects.filter(ssh_key=key).count() == 3
    attach(world, alone, spare.pk)
    answer = world.client(world.buyer).delete(path)
    assert (answer.status_code, answer.content) == (204, b"")
    assert {row.ssh_key_id for row in WorkloadSshKey.objects.all()} == {spare.pk}
    event = AuditEvent.objects.get(event="ssh_key.deleted")
    assert event.before["vmIds"] == sorted([str(alone.pk), str(both.pk)])
    assert world.client(world.buyer).delete(path).status_code == 404


# Who does not come up


def test_a_vm_that_does_not_come_up_is_reported_once_and_keeps_what_it_has(world: World, clock: Any) -> None:
    made = world.vm(world.buyer)
    assert overdue_starts.stuck_ids() == []
    clock.advance(901)
    for _ in range(2):
        sweep_stuck()
    event = AuditEvent.objects.get(event="vm.deploy_overdue")
    assert (event.target_id, event.actor, event.organization_id) == (str(made.pk), "system", world.buyer.pk)
    assert state(made)[0] == "deploying"
    assert world.units(made) == [0]
    factories.online(world.node)
    world.says((made, "running"))
    assert state(made)[0] == "running"


def test_the_time_to_come_up_begins_anew_with_a_restart(world: World, clock: Any) -> None:
    made = stopped(world)
    clock.advance(5000)
    factories.online(world.node)
    assert act(world, made, "restart").status_code == 200
    sweep_stuck()
    assert not AuditEvent.objects.filter(event="vm.deploy_overdue").exists()
    clock.advance(901)
    sweep_stuck()
    assert AuditEvent.objects.filter(event="vm.deploy_overdue").count() == 1


# The table of restarts, for what is neither running nor stopped nor failed


@pytest.mark.parametrize("verb", ["restart", "reboot", "resize-disk"])
def test_an_interrupted_vm_is_left_to_its_node(world: World, clock: Any, verb: str) -> None:
    made = world.running(world.buyer)
    clock.advance(91)
    sweep_lost_nodes()
    assert state(made) == ("interrupted", states.NODE_LOST)
    body = {"newSizeGb": 900} if verb == "resize-disk" else {}
    refused(act(world, made, verb, **body), 409, "INVALID_STATE", "interrupted")
    assert act(world, made, "stop").status_code == 200
    found = shown(world, made)
    assert (found["status"], "interruptedAt" in found) == ("stopped", True)
    NodeHeartbeat.objects.update(seen_at=Now())
    world.says((made, "running"))
    assert state(made)[0] == "stopped"
    assert world.work()[str(made.pk)]["desired"] == "gone"
