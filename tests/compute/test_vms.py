"""Reading, listing and ending VMs; SSH keys; evictions."""

import base64
import struct
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction

from compute.domain import states
from compute.models import Claim, SshKey, Workload
from compute.services.lifecycle.claims import claims_on
from compute.services.lifecycle.evict import evict
from compute.services.lifecycle.transitions import move
from nodes.services.locking import locked
from openrelay.audit.actor import SYSTEM
from openrelay.audit.models import AuditEvent
from openrelay.core import clock
from openrelay.core.errors import Conflict
from tests import factories
from tests.compute.conftest import World, refused, state

pytestmark = pytest.mark.django_db

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1yNLxDGnQ1uSVnUXuIcVwVCUwrjnKoNcxuFHM0dA4n"


def test_terminate_is_final_repeatable_and_audited_once(world: World) -> None:
    made = world.running(world.buyer)
    for _ in range(3):
        answer = world.terminate(world.buyer, made)
        assert (answer.status_code, answer.json()["status"]) == (200, "terminated")
        assert answer.json()["statusReason"] == "user_terminated"
    assert AuditEvent.objects.filter(event="vm.terminated").count() == 1
    assert not Claim.objects.exists()


@pytest.mark.parametrize("method", ["get", "post"])
def test_anothers_vm_is_not_there_whatever_one_may_do(world: World, method: str) -> None:
    made = world.vm(world.buyer)
    for client in (world.client(world.tenant), world.client(world.provider)):
        path = "" if method == "get" else "/terminate"
        real = getattr(client, method)(f"/v1/vms/{made.pk}{path}")
        invented = getattr(client, method)(f"/v1/vms/0192f3a0-0000-7000-8000-000000000000{path}")
        refused(real, 404, "NOT_FOUND")
        assert real.json() == invented.json()
    assert state(made)[0] == "deploying"


def test_ones_own_vm_without_the_action_is_403(world: World) -> None:
    made = world.vm(world.buyer)
    other = world.vm(world.tenant)
    client = world.client(world.buyer)
    client.credentials(
        HTTP_AUTHORIZATION=f"Bearer {factories.api_key(world.buyer, ['compute.read', 'self.read'])}"
    )
    assert client.get(f"/v1/vms/{made.pk}").json()["id"] == str(made.pk)
    answer = client.post(f"/v1/vms/{made.pk}/terminate")
    refused(answer, 403, "FORBIDDEN")
    assert answer.json()["permission"] == "compute.delete"
    refused(client.post(f"/v1/vms/{other.pk}/terminate"), 404, "NOT_FOUND")


def test_the_list_pages_filters_and_leaves_out_others(world: World) -> None:
    made = [world.vm(world.buyer, name=f"vm-{number}") for number in range(5)]
    world.vm(world.tenant)
    world.terminate(world.buyer, made[0])
    path = f"/v1/orgs/{world.buyer.pk}/vms"
    client = world.client(world.buyer)

    def names(**query: object) -> list[str]:
        answer = client.get(path, query)
        assert answer.status_code == 200, answer.content
        return [item["name"] for item in answer.json()["items"]]

    assert names() == [f"vm-{number}" for number in (4, 3, 2, 1, 0)]
    assert names(activeOnly="true") == [f"vm-{number}" for number in (4, 3, 2, 1)]
    assert names(status="terminated") == ["vm-0"]
    assert names(name="vm-2") == ["vm-2"]
    assert names(tier="spot") == []
    assert len(names(nodeId=str(world.node.pk))) == 5
    assert len(names(gpuModelId=str(factories.gpu_model().pk))) == 5
    walked, cursor = [], None
    while True:
        page = client.get(path, {"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        walked += [item["name"] for item in page["items"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert walked == names()
    for bad in ({"limit": 0}, {"cursor": "x"}, {"status": "flying"}, {"nodeId": "x"}, {"colour": "red"}):
        refused(client.get(path, bad), 400, "VALIDATION_ERROR")


def test_a_walk_sees_every_vm_of_one_moment_once_whatever_comes_between(world: World) -> None:
    first = world.vm(world.buyer)
    at = first.created_at

    def more(number: int) -> set[str]:
        made = [
            Workload(
                id=uuid4(),
                organization=world.buyer,
                name="of one moment",
                node=world.node,
                status="terminated",
                disk_size_gb=100,
                created_at=at,
                updated_at=at,
                terminated_at=at,
            )
            for _ in range(number)
        ]
        return {str(vm.pk) for vm in Workload.objects.bulk_create(made)}

    there = {str(first.pk)} | more(999)
    client, seen = world.client(world.buyer), []
    query: dict[str, Any] = {"limit": 97}
    while True:
        page = client.get(f"/v1/orgs/{world.buyer.pk}/vms", query).json()
        seen += [item["id"] for item in page["items"]]
        if "nextCursor" not in page:
            break
        query["cursor"] = page["nextCursor"]
        more(3)
    assert len(seen) == len(set(seen))
    assert there <= set(seen)


def test_the_list_costs_the_same_for_one_and_for_eight(world: World, django_assert_num_queries) -> None:  # type: ignore[no-untyped-def]
    client, path = world.client(world.buyer), f"/v1/orgs/{world.buyer.pk}/vms"
    world.vm(world.buyer)
    client.get(path)
    with django_assert_num_queries(1):
        client.get(path)
    for _ in range(7):
        world.vm(world.buyer)
    with django_assert_num_queries(1):
        assert len(client.get(path).json()["items"]) == 8


def test_an_eviction_ends_each_live_workload_once_and_skips_the_gone(world: World) -> None:
    first, second = world.running(world.buyer, tier="spot"), world.running(world.buyer, tier="spot")
    world.terminate(world.buyer, first)
    with locked(world.node.pk) as held:
        gone = evict(held, [first, second], reason=states.SPOT_RECLAIMED, actor=SYSTEM, note="wanted back")
        assert gone == [second]
        assert evict(held, [first, second], reason=states.SPOT_RECLAIMED, actor=SYSTEM) == []
    assert state(first)[1] == "user_terminated"
    assert state(second) == ("terminated", "spot_reclaimed_by_capacity_owner")
    event = AuditEvent.objects.get(event="vm.terminated", target_id=str(second.pk))
    assert (event.reason, event.organization_id) == ("wanted back", world.buyer.pk)
    assert event.before["status"] == "running"
    assert claims_on(world.node) == []


def test_a_change_is_of_the_state_and_the_node_that_were_read(world: World) -> None:
    made = world.running(world.buyer)
    world.says((made, "stopped"))
    made.refresh_from_db()
    elsewhere = factories.node(world.provider, 2)
    Workload.objects.filter(pk=made.pk).update(node=elsewhere)
    with pytest.raises(Conflict, match="changed meanwhile"), transaction.atomic():
        move(made, "deploying", reason="", actor=SYSTEM, at=clock.read())
    made.refresh_from_db()
    assert (made.status, made.node_id) == ("stopped", elsewhere.pk)


def test_the_table_of_states_is_what_the_design_says() -> None:
    assert states.sources(states.TERMINATED) == (
        "pending",
        "deploying",
        "running",
        "interrupted",
        "stopped",
        "failed",
    )
    assert states.may(states.RUNNING, states.RUNNING)
    assert not states.may(states.PENDING, states.RUNNING)
    assert not any(states.may(states.TERMINATED, target) for target in states.ALL)
    assert states.sources(states.DEPLOYING) == ("pending", "stopped", "failed")


def add_key(world: World, key: str) -> object:
    return world.client(world.buyer).post(
        f"/v1/orgs/{world.buyer.pk}/ssh-keys/create", {"name": "laptop", "publicKey": key}
    )


def blob(*parts: bytes) -> str:
    return base64.b64encode(b"".join(struct.pack(">I", len(part)) + part for part in parts)).decode()


def test_a_key_is_stored_in_canonical_form(world: World) -> None:
    answer = add_key(world, f"  {ED25519}   me@laptop  today \n")
    assert answer.status_code == 200, answer.content  # type: ignore[attr-defined]
    shown = answer.json()  # type: ignore[attr-defined]
    assert shown["publicKey"] == f"{ED25519} me@laptop today"
    assert shown["fingerprint"].startswith("SHA256:")
    refused(add_key(world, f"{ED25519} other"), 409, "KEY_EXISTS")
    assert SshKey.objects.count() == 1
    rsa = "ssh-rsa " + blob(b"ssh-rsa", b"\x01\x00\x01", b"\x00\xff" + b"\x01" * 255)
    assert add_key(world, rsa).status_code == 200  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "key",
    [
        "hello",
        "ssh-ed25519",
        "ssh-ed25519 !!!",
        "ssh-ed25519 " + blob(b"ssh-rsa", b"\x01"),
        "ssh-ed25519 " + blob(b"ssh-ed25519", b"short"),
        "ssh-rsa " + blob(b"ssh-rsa", b"\x01\x00\x01", b"\x00\xff" + b"\x01" * 127),
        "ssh-dss AAAA",
        'command="/bin/true" ' + ED25519,
        ED25519 + "\n" + ED25519,
        "ecdsa-sha2-nistp256 " + blob(b"ecdsa-sha2-nistp256", b"nistp384", b"\x04" + b"\x01" * 64),
    ],
)
def test_what_is_no_key_is_refused(world: World, key: str) -> None:
    refused(add_key(world, key), 400, "INVALID_KEY")
    assert not SshKey.objects.exists()


def test_the_key_list_says_where_each_is_in_use(world: World) -> None:
    world.vm(world.buyer, name="only-one")
    spare = factories.ssh_key(world.buyer)
    rows = world.client(world.buyer).get(f"/v1/orgs/{world.buyer.pk}/ssh-keys").json()
    used = {row["id"]: (row["attachedVmCount"], row["blockingVms"]) for row in rows}
    assert used == {str(spare.pk): (0, []), str(world.keys[world.buyer.pk].pk): (1, ["only-one"])}
    world.terminate(world.buyer, Workload.objects.get())
    rows = world.client(world.buyer).get(f"/v1/orgs/{world.buyer.pk}/ssh-keys").json()
    assert all(row["blockingVms"] == [] for row in rows)
