"""Compute on the running server: by the published client, by a real agent process, and by many at once."""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from django.db import IntegrityError, connection

from compute.models import Claim, Occupancy, Run, Workload
from openrelay.audit.models import AuditEvent
from tests import factories
from tests.compute.conftest import consistent
from tests.support.web import ROOT, Server

INVENTORY = {"runtime": "qemu", "host": factories.report(0, sequence=1)["host"]}


class Site:
    """A node on the running server, with an organization that buys there."""

    def __init__(self, server: Server, units: int = 8) -> None:
        factories.platform()
        self.server = server
        self.provider = factories.organization("Provider", is_provider=True)
        self.buyer = factories.organization("Buyer")
        self.key = factories.ssh_key(self.buyer)
        self.node = factories.node(self.provider, units)
        self.credential = factories.credential(self.node)
        self.secret = factories.api_key(self.buyer)
        self.http = httpx.Client(
            base_url=server.url, headers={"Authorization": f"Bearer {self.secret}"}, timeout=60
        )

    def create(self, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
        data = {"name": "vm", "sshKeyIds": [str(self.key.pk)], "gpuCount": 1, **body}
        return self.http.post(f"/v1/orgs/{self.buyer.pk}/vms/create", json=data, headers=headers)

    def report(self, sequence: int, *guests: tuple[str, str]) -> httpx.Response:
        return httpx.post(
            f"{self.server.url}/v1/agent/reports",
            headers={"Authorization": f"Bearer {self.credential}"},
            json={"sequence": sequence, "guests": [{"runId": run, "state": state} for run, state in guests]},
            timeout=60,
        )


def at_once(calls: list[Callable[[], httpx.Response]]) -> list[httpx.Response]:
    """Make every call in a thread of its own, all let go together."""
    gate = threading.Barrier(len(calls))
    answers: list[httpx.Response | None] = [None] * len(calls)

    def run(index: int) -> None:
        gate.wait()
        answers[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answer for answer in answers if answer is not None]


def eventually(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


def test_fifty_creates_on_eight_units_give_eight_vms(server: Server) -> None:
    site = Site(server)
    answers = at_once([site.create] * 50)
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [200] * 8 + [503] * 42
    assert {answer.json()["code"] for answer in answers if answer.status_code == 503} == {
        "INSUFFICIENT_GPU_CAPACITY"
    }
    assert Claim.objects.count() == 8
    assert Workload.objects.count() == 8
    consistent()


def test_creates_over_several_nodes_never_refuse_while_there_is_room(server: Server) -> None:
    site = Site(server, units=4)
    for _ in range(3):
        factories.node(site.provider, 4)
    answers = at_once([site.create] * 16)
    assert [answer.status_code for answer in answers] == [200] * 16, [a.text for a in answers]
    assert Claim.objects.count() == 16


def test_one_key_sent_six_times_at_once_makes_one_vm(server: Server) -> None:
    site = Site(server)
    headers = {"Idempotency-Key": "six"}
    answers = at_once([lambda: site.create(headers)] * 6)
    made = {answer.json()["id"] for answer in answers if answer.status_code == 200}
    assert len(made) == 1
    others = [answer for answer in answers if answer.status_code != 200]
    assert {answer.status_code for answer in others} <= {409}
    assert all(answer.headers["Retry-After"] for answer in others)
    assert Workload.objects.count() == 1
    assert site.create(headers).json()["id"] in made


@pytest.mark.parametrize("word", ["failed", "stopped", "gone"])
def test_a_users_end_and_the_agents_word_free_a_unit_once(server: Server, word: str) -> None:
    site = Site(server)
    for round_ in range(6):
        vm_id = site.create().json()["id"]
        run = Run.objects.get(workload_id=vm_id)
        answers = at_once(
            [
                lambda vm_id=vm_id: site.http.post(f"/v1/vms/{vm_id}/terminate"),
                lambda run=run, round_=round_: site.report(round_ + 1, (str(run.pk), word)),
            ]
        )
        assert [answer.status_code for answer in answers] == [200, 200], [a.text for a in answers]
        assert Workload.objects.get(pk=vm_id).status == "terminated"
        assert AuditEvent.objects.filter(event="vm.terminated", target_id=vm_id).count() == 1
    assert not Claim.objects.exists()
    assert not Occupancy.objects.open().exists()


def test_without_the_nodes_lock_the_database_still_gives_a_unit_once(server: Server) -> None:
    """The control of the race above: both see the unit free, and only the constraint is left."""
    site = Site(server, units=2)
    first, second = (site.create().json()["id"] for _ in range(2))
    unit_id = Claim.objects.get(workload_id=first).unit_id
    Claim.objects.all().delete()
    gate, lost = threading.Barrier(2), []

    def claim(vm_id: str) -> None:
        try:
            free = not Claim.objects.filter(unit_id=unit_id).exists()
            gate.wait()
            assert free
            run = Run.objects.get(workload_id=vm_id)
            Claim.objects.create(
                unit_id=unit_id, workload_id=vm_id, run=run, node_id=site.node.pk, created_at=run.created_at
            )
        except IntegrityError:
            lost.append(vm_id)
        finally:
            connection.close()

    threads = [threading.Thread(target=claim, args=(vm_id,)) for vm_id in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lost) == 1
    assert Claim.objects.filter(unit_id=unit_id).count() == 1


class Agent:
    """The real agent process of a site's node."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.file = folder / "agents.json"
        self.process: subprocess.Popen[bytes] | None = None
        self.write()

    def write(self, units: int = 8, **entry: Any) -> None:
        inventory = {**INVENTORY, "units": [factories.unit_report(number) for number in range(units)]}
        entries = [
            {
                "nodeId": str(self.site.node.pk),
                "credential": self.site.credential,
                "baseUrl": self.site.server.url,
                "inventory": inventory,
                "bootSeconds": 0.2,
                "stopSeconds": 0.2,
                **entry,
            }
        ]
        fresh = self.file.with_suffix(".tmp")
        fresh.write_text(json.dumps(entries))
        os.replace(fresh, self.file)

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "simulated_agent", "--credentials", str(self.file)]
            + ["--interval", "0.2"],
            cwd=ROOT,
            env=self.site.server.env,
            start_new_session=True,
        )

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture
def agent(server: Server, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(Site(server), tmp_path)
    agent.start()
    yield agent
    agent.kill()


def test_the_agents_life_with_its_vms_and_after_its_own_death(agent: Agent, sdk: ModuleType) -> None:
    site = agent.site
    client = sdk.AuthenticatedClient(base_url=site.server.url, token=site.secret)

    def call(name: str, *args: Any, **kwargs: Any) -> Any:
        module = importlib.import_module(f"{sdk.__name__}.api.{name}")
        return module.sync(*args, client=client, **kwargs)

    def status(vm_id: str) -> str:
        return call("vms.get_vm", vm_id).status

    models = importlib.import_module(f"{sdk.__name__}.models")
    body = models.CreateVmRequest(name="first", ssh_key_ids=[str(site.key.pk)], gpu_count=8)
    first = call("vms.create_vm", str(site.buyer.pk), body=body)
    assert isinstance(first, models.VmSummary)
    assert (first.gpu_count, first.status, first.price_per_hour_cents) == (8, "deploying", 1600)
    eventually(lambda: status(first.id) == "running")

    agent.kill()
    ended = call("vms.terminate_vm", first.id)
    assert (ended.status, ended.status_reason) == ("terminated", "user_terminated")
    refusal = call("vms.create_vm", str(site.buyer.pk), body=body)
    assert isinstance(refusal, models.Error)
    assert refusal.code == "INSUFFICIENT_GPU_CAPACITY"

    agent.start()
    eventually(lambda: not Occupancy.objects.open().exists())
    second = call("vms.create_vm", str(site.buyer.pk), body=body)
    eventually(lambda: status(second.id) == "running")
    page = call("vms.list_org_vms", str(site.buyer.pk), active_only=True)
    assert [item.id for item in page.items] == [second.id]

    (found,) = call("catalog.get_gpu_availability")
    assert (found.vm.free_gpus, found.vm.total_gpus, found.vm.tile_lattice) == (0, 8, list(range(1, 9)))
    assert len(found.vm.offers) == 1
    (model,) = call("catalog.list_gpu_models")
    assert model.id == found.gpu_model_id

    agent.write(units=7)
    eventually(lambda: call("catalog.get_gpu_availability")[0].vm.total_gpus == 7)
    assert status(second.id) == "running"

    key = call(
        "ssh_keys.create_org_ssh_key",
        str(site.buyer.pk),
        body=models.CreateSshKeyRequest(
            name="laptop",
            public_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1yNLxDGnQ1uSVnUXuIcVwVCUwrjnKoNcxuFHM0dA4n me",
        ),
    )
    listed = call("ssh_keys.list_org_ssh_keys", str(site.buyer.pk))
    assert {item.id for item in listed} == {key.id, str(site.key.pk)}


def test_a_second_process_for_the_same_nodes_says_so_and_goes(agent: Agent) -> None:
    eventually(lambda: agent.file.with_name("agents.guests.lock").exists())
    second = subprocess.run(
        [sys.executable, "manage.py", "simulated_agent", "--credentials", str(agent.file)],
        cwd=ROOT,
        env=agent.site.server.env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1
    assert "played already" in second.stderr


def test_guests_that_do_not_boot_fail_their_vms(agent: Agent) -> None:
    agent.write(failsBoots=True)
    time.sleep(0.5)
    vm_id = agent.site.create().json()["id"]
    eventually(lambda: Workload.objects.get(pk=vm_id).status == "failed")
    assert Workload.objects.get(pk=vm_id).status_reason == "the guest did not boot"
    eventually(lambda: not Occupancy.objects.open().exists())
