"""How an owner's nodes read: which are listed, their status, hardware, and what is reserved."""

import pytest
from django.core.management import CommandError, call_command

from nodes.models import Location, Node, NodeHeartbeat, ProviderApplication
from nodes.services.applications import decide_application
from openrelay.audit.actor import OPERATOR
from openrelay.core.clock import rfc3339
from openrelay.core.errors import Conflict, Invalid
from tests import factories
from tests.compute.conftest import World, refused
from tests.provider.conftest import Provider

pytestmark = pytest.mark.django_db


def silent(*nodes: Node) -> None:
    NodeHeartbeat.objects.filter(node__in=nodes).update(seen_at=None)


def test_a_node_reads_whole(provider: Provider, world: World) -> None:
    place = Location.objects.create(slug="osl", name="Oslo", city="Oslo", country="NO", region="north")
    Node.objects.filter(pk=world.node.pk).update(location=place, cpu_model="Xeon")
    (shown,) = provider.get("nodes")
    world.node.refresh_from_db()
    assert shown == {
        "id": str(world.node.pk),
        "hostname": world.node.hostname,
        "nodeType": "persistent",
        "runtime": "qemu",
        "status": "online",
        "tdxEnabled": False,
        "gpus": [{"gpuName": "NVIDIA H100 SXM5 80 GB", "vramGb": 80, "quantity": 8}],
        "cpuCores": 128,
        "cpuModel": "Xeon",
        "ramGb": 1024,
        "diskTotalGb": 16000,
        "diskFreeGb": 16000,
        "locationCity": "Oslo",
        "locationCountry": "NO",
        "terminateAt": None,
        "createdAt": rfc3339(world.node.created_at),
    }


def test_a_silent_node_is_offline_and_its_disk_unknown(provider: Provider, world: World, clock) -> None:  # type: ignore[no-untyped-def]
    clock.freeze()
    factories.online(world.node)
    clock.advance(89)
    assert provider.shown()["status"] == "online"
    clock.advance(2)
    shown = provider.shown()
    assert (shown["status"], shown["diskTotalGb"], shown["diskFreeGb"]) == ("offline", None, None)
    world.work()
    assert provider.shown()["status"] == "online"


def test_an_owners_hold_shows_before_silence_and_online_lifts_only_the_hold(
    provider: Provider, world: World
) -> None:
    silent(world.node)
    assert provider.set("maintenance").json()["status"] == "maintenance"
    assert provider.set("online").json()["status"] == "offline"


def test_lists_are_newest_first_and_narrowed_by_status_and_class(provider: Provider, world: World) -> None:
    spot = provider.interruptible()
    quiet, gone = factories.node(world.provider), factories.node(world.provider)
    factories.node(world.tenant)
    silent(quiet)
    provider.set("removed", gone)
    names = [quiet.hostname, spot.hostname, world.node.hostname]
    assert list(provider.nodes()) == names
    assert list(provider.nodes(includeRemoved="true")) == [gone.hostname, *names]
    assert list(provider.nodes(status="removed")) == [gone.hostname]
    assert list(provider.nodes(status="offline")) == [quiet.hostname]
    assert list(provider.nodes(**{"class": "interruptible"})) == [spot.hostname]
    assert list(provider.nodes(**{"class": "persistent", "status": "online"})) == [world.node.hostname]
    assert provider.nodes()[spot.hostname]["noticeSeconds"] == 30
    assert provider.get("stats") == {"totalNodes": 3, "onlineNodes": 2, "offlineNodes": 1, "activeTokens": 0}


@pytest.mark.parametrize("query", ["status=gone", "class=x", "includeRemoved=1", "page=5"])
def test_a_query_that_means_nothing_is_refused(provider: Provider, world: World, query: str) -> None:
    refused(world.client(world.provider).get(f"{provider.path}/nodes?{query}"), 400, "VALIDATION_ERROR")


def test_the_reservation_summary_is_there_while_units_are_reserved(
    provider: Provider,
    world: World,
    clock,  # type: ignore[no-untyped-def]
) -> None:
    at = clock.now()
    assert "reservation" not in provider.shown()
    later = world.reserve(5, starts_at=at.replace(year=at.year + 1))
    assert "reservation" not in provider.shown()
    first, second = world.reserve(0, 1, 2), world.reserve(3)
    world.release(first, 0)
    summary = provider.shown()["reservation"]
    assert (summary["reservedUnitCount"], summary["releasedUnitCount"]) == (3, 1)
    assert {row["id"] for row in summary["reservations"]} == {str(first.pk), str(second.pk)}
    assert str(later.pk) not in str(summary)


def test_whether_one_is_a_provider_and_what_became_of_ones_application(world: World) -> None:
    client, path = world.client(world.tenant), f"/v1/orgs/{world.tenant.pk}/provider"
    nothing = {"isProvider": False, "applicationStatus": None, "applicationSubmittedAt": None}
    assert client.get(f"{path}/status").json() == nothing
    for body in ({}, {"note": ""}, {"note": "  "}, {"note": 1}, {"note": "x", "more": 1}):
        refused(client.post(f"{path}/apply", body), 400, "VALIDATION_ERROR")
    assert client.post(f"{path}/apply", {"note": "We have GPUs."}).status_code == 204
    shown = client.get(f"{path}/status").json()
    assert (shown["isProvider"], shown["applicationStatus"]) == (False, "pending")
    refused(client.post(f"{path}/apply", {"note": "Still."}), 400, "VALIDATION_ERROR", "pending")
    refused(
        world.client(world.provider).post(f"/v1/orgs/{world.provider.pk}/provider/apply", {"note": "x"}),
        400,
        "VALIDATION_ERROR",
        "already",
    )


@pytest.mark.parametrize("approve", [True, False])
def test_operators_decide_once_and_an_approved_organization_is_a_provider(
    world: World, approve: bool
) -> None:
    client, path = world.client(world.tenant), f"/v1/orgs/{world.tenant.pk}/provider"
    client.post(f"{path}/apply", {"note": "We have GPUs."})
    made = ProviderApplication.objects.get()
    decide_application(actor=OPERATOR, application_id=made.pk, approve=approve)
    with pytest.raises(Conflict):
        decide_application(actor=OPERATOR, application_id=made.pk, approve=not approve)
    shown = client.get(f"{path}/status").json()
    assert shown["isProvider"] == approve
    assert shown["applicationStatus"] == ("approved" if approve else "rejected")
    again = client.post(f"{path}/apply", {"note": "Again."})
    assert again.status_code == (400 if approve else 204)


def test_a_failed_gpu_is_withdrawn_and_shown_and_its_workload_runs_on(world: World) -> None:
    vm = world.running(world.buyer)
    (number,) = world.units(vm)
    broken = factories.unit_report(number)
    broken["gpus"][0] |= {"healthy": False, "failure": "Xid 79"}
    rest = [factories.unit_report(n) for n in range(8) if n != number]
    generation = world.node.topology_gen
    factories.inventory(world.node, [broken, *rest])
    vm.refresh_from_db()
    assert (vm.status, world.node.topology_gen) == ("running", generation)
    units = world.client(world.provider).get(f"/v1/nodes/{world.node.pk}/reservations/units").json()
    shown = {unit["id"]: unit for unit in units}
    address = factories.address(number)
    assert (shown[address]["sellableGpus"], shown[address]["reservable"]) == (0, False)
    assert address in shown[address]["notReservableReason"]
    assert shown[address]["claimedBy"] == f"vm:{vm.pk}"
    world.terminate(world.buyer, vm)
    world.says((vm, "gone"))
    refused(world.ask(world.buyer, gpuCount=8), 400, "GPU_COUNT_NOT_ALLOCATABLE", "7.")
    with pytest.raises(Invalid, match=address):
        world.reserve(number)
    factories.inventory(world.node, [factories.unit_report(n) for n in range(8)])
    world.vm(world.buyer, gpuCount=8)


def test_operators_decide_at_the_server(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandError):
        call_command("decide_provider", world.tenant.slug, "approve")
    world.client(world.tenant).post(f"/v1/orgs/{world.tenant.pk}/provider/apply", {"note": "We have GPUs."})
    call_command("decide_provider", world.tenant.slug, "approve", "--reason", "met them")
    assert capsys.readouterr().out == f"{world.tenant.slug}: approved\n"
