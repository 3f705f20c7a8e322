"""Every operation on a provider's nodes by the published client, on the running server."""

import datetime as dt
import importlib
from types import ModuleType
from typing import Any

import httpx
import pytest

from nodes.models import Location, Node
from openrelay.core.clock import rfc3339
from tests import factories
from tests.compute.conftest import World
from tests.provider.conftest import Provider
from tests.reservations.test_by_client import exact, present
from tests.support.web import Server

ALWAYS = {
    "created_at",
    "cpu_cores",
    "cpu_model",
    "disk_free_gb",
    "disk_total_gb",
    "gpus",
    "hostname",
    "id",
    "location_city",
    "location_country",
    "node_type",
    "ram_gb",
    "runtime",
    "status",
    "tdx_enabled",
    "terminate_at",
}


class ByClient:
    """The published client as the provider."""

    def __init__(self, server: Server, sdk: ModuleType, org: Any) -> None:
        self.models = importlib.import_module("openrelay_sdk.models")
        self.org = str(org.pk)
        self.client = sdk.AuthenticatedClient(
            base_url=server.url, token=factories.api_key(org), raise_on_unexpected_status=True
        )

    def call(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """What the client makes of the answer, its types checked against its own annotations."""
        module = importlib.import_module(f"openrelay_sdk.api.provider.{operation}")
        answer = module.sync_detailed(self.org, *args, client=self.client, **kwargs)
        for model in answer.parsed if isinstance(answer.parsed, list) else [answer.parsed]:
            if model is not None:
                exact(model)
        return answer

    def node(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        found = self.call(operation, *args, **kwargs).parsed
        assert isinstance(found, self.models.ProviderNode), found
        assert present(found) >= ALWAYS
        return found

    def error(self, code: str, operation: str, *args: Any, **kwargs: Any) -> None:
        found = self.call(operation, *args, **kwargs).parsed
        assert isinstance(found, self.models.Error), found
        assert found.code == code, found


@pytest.mark.django_db(transaction=True)
def test_a_provider_looks_after_its_nodes(
    server: Server, sdk: ModuleType, world: World, provider: Provider
) -> None:
    place = Location.objects.create(slug="osl", name="Oslo", city="Oslo", country="NO", region="north")
    spot = provider.interruptible(2)
    factories.inventory(
        spot, 2, host={"cpuCores": 8, "ramMb": 65536, "diskTotalGb": 900, "diskFreeGb": 800, "tdx": True}
    )
    Node.objects.update(location=place, cpu_model="Xeon")
    client = ByClient(server, sdk, world.provider)
    models, node = client.models, str(world.node.pk)
    reservation = world.reserve(0, 1)
    world.release(reservation, 0)

    listed = client.call("list_provider_nodes").parsed
    assert [row.id for row in listed] == [str(spot.pk), node]
    newest, oldest = listed
    assert (newest.node_type, newest.notice_seconds, newest.tdx_enabled) == ("interruptible", 30, True)
    assert "notice_seconds" not in present(oldest)
    assert (oldest.reservation.reserved_unit_count, oldest.reservation.released_unit_count) == (1, 1)
    (summary,) = oldest.reservation.reservations
    assert summary.id == str(reservation.pk)
    assert "reservation" not in present(newest)
    assert len(client.call("list_provider_nodes", class_="interruptible").parsed) == 1
    stats = client.call("get_provider_stats").parsed
    assert (stats.total_nodes, stats.online_nodes, stats.offline_nodes, stats.active_tokens) == (2, 2, 0, 0)
    status = client.call("get_provider_status").parsed
    assert (status.is_provider, status.application_status) == (True, None)

    def update(to: str) -> Any:
        return client.node("update_provider_node", node, body=models.UpdateProviderNodeBody(status=to))

    vm = world.running(world.provider, nodeId=node)
    for wanted in ("maintenance", "online", "draining"):
        assert update(wanted).status == wanted
    vm.refresh_from_db()
    assert (vm.status, vm.status_reason) == ("terminated", "node_removed")
    notice = models.TerminationNotice(notice_seconds=120)
    client.error("INVALID_STATE", "offboard_provider_node", node, body=notice)
    leaving = client.node("offboard_provider_node", str(spot.pk), body=notice)
    assert leaving.status == "draining"
    until = dt.datetime.fromisoformat(leaving.terminate_at)
    later = models.TerminationNotice(terminate_at=until + dt.timedelta(seconds=60))
    assert client.node("offboard_provider_node", str(spot.pk), body=later).terminate_at == rfc3339(until)
    assert (
        client.node("offboard_provider_node", str(spot.pk), body=models.TerminationNotice()).status
        == "removed"
    )
    assert update("removed").status == "removed"
    client.error(
        "NODE_DECOMMISSIONED",
        "update_provider_node",
        node,
        body=models.UpdateProviderNodeBody(status="online"),
    )
    assert client.call("list_provider_nodes").parsed == []
    assert len(client.call("list_provider_nodes", include_removed=True).parsed) == 2
    assert len(client.call("list_provider_nodes", status="removed").parsed) == 2
    client.error("VALIDATION_ERROR", "list_provider_nodes", status="odd")
    client.error("VALIDATION_ERROR", "apply_for_provider", body=models.ApplyForProviderRequest(note="x"))

    theirs = ByClient(server, sdk, world.tenant)
    answer = theirs.call("apply_for_provider", body=models.ApplyForProviderRequest(note="We have GPUs."))
    assert answer.status_code == 204
    status = theirs.call("get_provider_status").parsed
    assert status.application_status == "pending"
    assert dt.datetime.fromisoformat(status.application_submitted_at).tzinfo is not None
    theirs.error(
        "NOT_FOUND", "update_provider_node", node, body=models.UpdateProviderNodeBody(status="online")
    )


@pytest.mark.django_db(transaction=True)
def test_a_node_announces_its_end_by_its_own_credential(server: Server, world: World) -> None:
    spot = factories.node(world.provider, 1, node_class="interruptible", notice_seconds=45)
    headers = {"Authorization": f"Bearer {factories.credential(spot)}"}
    answer = httpx.post(f"{server.url}/v1/nodes/termination-notice", headers=headers, trust_env=False)
    assert answer.status_code == 200
    spot.refresh_from_db()
    assert answer.json() == {
        "nodeId": str(spot.pk),
        "status": "draining",
        "terminateAt": rfc3339(spot.terminate_at),
    }
