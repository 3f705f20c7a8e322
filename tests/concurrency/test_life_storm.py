"""Stops, restarts and ends of the same VMs by many at once: no unit twice, no 500, nobody waits for ever."""

import contextlib
import random
import threading
from collections import Counter
from typing import Any

import httpx
import pytest

from compute.models import Claim, Occupancy, Run, SshKey, Workload, WorkloadSshKey
from compute.services.access import attachments
from compute.services.placement import commit as placing
from compute.services.requests.create_vm import create_vm
from compute.services.requests.vm_request import VmRequest
from openrelay.api.idempotency import GuardedRequest
from openrelay.api.models import IdempotencyKey
from openrelay.audit.models import AuditEvent
from openrelay.core.errors import Invalid
from openrelay.core.idempotency import NO_GUARD
from tests import factories
from tests.compute.conftest import consistent
from tests.concurrency.conftest import Crowd, statuses, together
from tests.reservations.conftest import Fleet

UNITS = 8


class Agent:
    """The node's agent: it asks and reports again and again, as quickly as it can."""

    def __init__(self, crowd: Crowd) -> None:
        self.http = httpx.Client(
            base_url=crowd.http.base_url,
            timeout=60,
            headers={"Authorization": f"Bearer {factories.credential(crowd.fleet.node)}"},
        )
        self.done = threading.Event()
        self.alive: set[str] = set()
        self.sequence = 0
        self.faults: list[str] = []

    def turn(self) -> None:
        runs = self.http.get("/v1/agent/work").raise_for_status().json()["runs"]
        busy: dict[str, str] = {}
        for run in runs:
            for unit in run["units"]:
                if (
                    run["runId"] in self.alive
                    and busy.setdefault(unit["address"], run["runId"]) != run["runId"]
                ):
                    self.faults.append(f"two guests on {unit['address']}")
        said = []
        for run in runs:
            if run["desired"] == "gone":
                self.alive.discard(run["runId"])
                said.append({"runId": run["runId"], "state": "gone"})
            elif not run["waitsFor"]:
                self.alive.add(run["runId"])
                said.append({"runId": run["runId"], "state": "running"})
        self.sequence += 1
        body = {"sequence": self.sequence, "guests": said}
        answer = self.http.post("/v1/agent/reports", json=body)
        if answer.status_code != 200:
            self.faults.append(answer.text)

    def run(self) -> None:
        while not self.done.is_set():
            self.turn()
        for _ in range(3):
            self.turn()


def test_fifty_stops_and_restarts_at_once_on_eight_units(crowd: Crowd, fleet: Fleet) -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    chance = random.Random(seed)
    vms = [crowd.create("tenant").json()["id"] for _ in range(UNITS)]
    vms += [_stopped(crowd, fleet) for _ in range(4)]
    agent = Agent(crowd)
    thread = threading.Thread(target=agent.run)
    thread.start()
    told: Counter[int] = Counter()
    try:
        for _ in range(4):
            verbs = [
                (chance.choice(("stop", "restart", "restart", "reboot")), chance.choice(vms))
                for _ in range(50)
            ]
            answers = together(
                *(
                    lambda verb=verb, vm=vm: crowd.call("POST", f"/v1/vms/{vm}/{verb}", "tenant")
                    for verb, vm in verbs
                )
            )
            told.update(statuses(answers))
            _claims_are_right()
    finally:
        agent.done.set()
        thread.join()
    assert set(told) <= {200, 204, 409, 503}, told
    assert told[200] > 10, told
    assert agent.faults == []
    consistent()


def _stopped(crowd: Crowd, fleet: Fleet) -> str:
    """One more VM than there are units for: made while another makes room."""
    other = Workload.objects.filter(organization=fleet.tenant, status="deploying").first()
    assert other is not None
    assert crowd.call("POST", f"/v1/vms/{other.pk}/stop", "tenant").status_code == 200
    Occupancy.objects.filter(run__workload=other).update(closed_at=other.created_at, closed_by="agent")
    Run.objects.filter(workload=other).update(closed_at=other.created_at, observed="gone")
    made = crowd.create("tenant")
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


def _claims_are_right() -> None:
    """One claim a unit, and exactly one for each VM that is up."""
    rows = list(Claim.objects.values_list("unit_id", "workload_id", "workload__status"))
    assert len({unit for unit, _, _ in rows}) == len(rows) <= UNITS
    assert all(status in ("deploying", "running") for _, _, status in rows)


def test_one_of_many_restarts_starts_a_stopped_vm(crowd: Crowd, fleet: Fleet) -> None:
    vm = crowd.create("tenant").json()["id"]
    crowd.call("POST", f"/v1/vms/{vm}/stop", "tenant")
    answers = together(*[lambda: crowd.call("POST", f"/v1/vms/{vm}/restart", "tenant")] * 10)
    assert statuses(answers) == [200] + [409] * 9
    assert Run.objects.filter(workload_id=vm).count() == 2


def test_a_vm_whose_node_is_gone_deploys_on_one_node_only(crowd: Crowd, fleet: Fleet) -> None:
    vm = crowd.create("tenant").json()["id"]
    crowd.call("POST", f"/v1/vms/{vm}/stop", "tenant")
    for _ in range(3):
        factories.node(fleet.provider, 2)
    node = f"/v1/orgs/{fleet.provider.pk}/provider/nodes/{fleet.node.pk}"
    assert crowd.call("PATCH", node, "provider", status="removed").status_code == 200
    calls: list[Any] = [lambda: crowd.call("POST", f"/v1/vms/{vm}/restart", "tenant")] * 6
    calls += [lambda: crowd.call("POST", f"/v1/vms/{vm}/terminate", "tenant")]
    told = statuses(together(*calls))
    assert set(told) <= {200, 409}
    workload = Workload.objects.get(pk=vm)
    assert Claim.objects.filter(workload_id=vm).count() == (workload.status == "deploying")
    assert Run.objects.wanted().filter(workload_id=vm).count() == (workload.status == "deploying")


def test_a_vm_keeps_a_key_whoever_takes_keys_away(crowd: Crowd, fleet: Fleet) -> None:
    for _ in range(5):
        vm = crowd.create("tenant").json()["id"]
        keys = [factories.ssh_key(fleet.tenant) for _ in range(2)]
        for key in keys:
            crowd.call("POST", f"/v1/vms/{vm}/ssh-keys", "tenant", sshKeyId=str(key.pk))
        first = crowd.keys["tenant"]
        answers = together(
            lambda vm=vm, key=first: crowd.call("DELETE", f"/v1/vms/{vm}/ssh-keys/{key.pk}", "tenant"),
            lambda vm=vm, key=keys[0]: crowd.call("DELETE", f"/v1/vms/{vm}/ssh-keys/{key.pk}", "tenant"),
            lambda key=keys[1]: crowd.call(
                "DELETE", f"/v1/orgs/{fleet.tenant.pk}/ssh-keys/{key.pk}", "tenant"
            ),
        )
        assert statuses(answers)[:2] == [204, 204]
        assert statuses(answers)[2] in (400, 409)
        assert WorkloadSshKey.objects.filter(workload_id=vm).count() == 1
        crowd.call("POST", f"/v1/vms/{vm}/terminate", "tenant")


def test_two_keys_deleted_at_once_leave_one_of_them(
    crowd: Crowd, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = crowd.create("tenant").json()["id"]
    first, second = crowd.keys["tenant"], factories.ssh_key(fleet.tenant)
    crowd.call("POST", f"/v1/vms/{vm}/ssh-keys", "tenant", sshKeyId=str(second.pk))
    both_have_looked = threading.Barrier(2)
    look = attachments.blocked_names

    def slowly(keys: Any) -> Any:
        found = look(keys)
        # Whoever has to wait for the other never comes here meanwhile.
        with contextlib.suppress(threading.BrokenBarrierError):
            both_have_looked.wait(1)
        return found

    monkeypatch.setattr(attachments, "blocked_names", slowly)
    by = factories.caller(fleet.tenant)
    told = together(
        lambda: attachments.delete_key(caller=by, ssh_key_id=first.pk),
        lambda: attachments.delete_key(caller=by, ssh_key_id=second.pk),
    )
    assert [outcome for outcome in told if outcome is not None and outcome.code == "KEY_IN_USE"], told
    assert WorkloadSshKey.objects.filter(workload_id=vm).count() == 1


def test_a_key_that_is_deleted_while_vms_are_made_with_it_fails_them_cleanly(
    crowd: Crowd, fleet: Fleet
) -> None:
    for _ in range(5):
        key = factories.ssh_key(fleet.tenant)
        create = {"name": "vm", "sshKeyIds": [str(key.pk)], "gpuCount": 1, "diskSizeGb": 20}
        path = f"/v1/orgs/{fleet.tenant.pk}"
        answers = together(
            lambda path=path, create=create: crowd.call("POST", f"{path}/vms/create", "tenant", **create),
            lambda path=path, key=key: crowd.call("DELETE", f"{path}/ssh-keys/{key.pk}", "tenant"),
        )
        made, deleted = (answer.status_code for answer in answers)
        assert (made, deleted) in ((200, 409), (400, 204)), [answer.text for answer in answers]
        assert SshKey.objects.filter(pk=key.pk).exists() == (made == 200)


@pytest.mark.parametrize("key", [None, "once"])
def test_a_key_that_was_deleted_before_its_vm_is_written_is_named_in_a_400(
    crowd: Crowd, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    keys = [factories.ssh_key(fleet.tenant) for _ in range(2)]
    by = factories.caller(fleet.tenant)
    look = placing.decide

    def deleted_meanwhile(*args: Any, **kwargs: Any) -> Any:
        (failed,) = together(lambda: attachments.delete_key(caller=by, ssh_key_id=keys[1].pk))
        assert failed is None
        return look(*args, **kwargs)

    monkeypatch.setattr(placing, "decide", deleted_meanwhile)
    request = VmRequest(name="vm", ssh_key_ids=[str(each.pk) for each in keys], gpu_count=1, disk_size_gb=20)
    guard = (
        GuardedRequest(fleet.tenant.pk, key, "same", lambda made: {"id": str(made.pk)}) if key else NO_GUARD
    )
    with pytest.raises(Invalid, match="sshKeyIds names a key that was deleted"):
        create_vm(caller=by, request=request, guard=guard)
    assert not Workload.objects.exists()
    assert not AuditEvent.objects.filter(event="vm.created").exists()
    assert not IdempotencyKey.objects.exists()
