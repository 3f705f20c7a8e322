"""VMs with and without GPUs created at once: a host is never given out twice."""

from typing import Any

import httpx
import pytest
from django.db.models import Sum

from compute.domain.host_shares import allocatable_mb, footprint_mb
from compute.models import Workload
from nodes.models import Node
from reservations.services import booking
from tests import factories
from tests.compute.conftest import consistent
from tests.compute.test_over_http import Site, at_once
from tests.support.web import Server

pytestmark = pytest.mark.slow


def taken() -> tuple[int, int]:
    """CPUs and MiB that are given out."""
    live = Workload.objects.active()
    memory = [footprint_mb(row.guest_mem_mb) for row in live if row.guest_mem_mb]
    return live.aggregate(vcpu=Sum("guest_vcpu"))["vcpu"] or 0, sum(memory)


def large(site: Site, **body: Any) -> httpx.Response:
    return site.create(gpuCount=0, resourceSize="cpu-xlarge", **body)


def test_twenty_at_once_fill_a_host_to_its_last_cpu(server: Server) -> None:
    site = Site(server, units=0)
    host = {"cpuCores": 130, "ramMb": 1024 * 1024, "diskTotalGb": 16000, "diskFreeGb": 16000, "tdx": False}
    factories.inventory(site.node, [], host=host)
    answers = at_once([lambda: large(site)] * 20)
    assert sorted(answer.status_code for answer in answers) == [200] * 8 + [503] * 12
    assert {row.json()["code"] for row in answers if row.status_code == 503} == {"INSUFFICIENT_HOST_CAPACITY"}
    assert taken()[0] == 128
    consistent()


def test_with_gpus_and_without_at_once_leave_reserved_gpus_their_share(server: Server) -> None:
    site = Site(server)
    tenant = factories.organization("Tenant")
    booking.reserve(
        caller=factories.operator(),
        node_id=site.node.pk,
        unit_ids=[factories.address(unit) for unit in range(4)],
        allowed_org_ids=[str(tenant.pk)],
    )
    answers = at_once([lambda: large(site), lambda: site.create()] * 10)
    assert {answer.status_code for answer in answers} == {200, 503}
    node = Node.objects.get()
    vcpu, memory = taken()
    # Of 128 CPUs and the memory half is kept; the rest is given out to the last share.
    assert vcpu == 64
    assert memory <= allocatable_mb(node.ram_mb or 0) // 2
    key = factories.ssh_key(tenant)
    answer = httpx.post(
        f"{server.url}/v1/orgs/{tenant.pk}/vms/create",
        headers={"Authorization": f"Bearer {factories.api_key(tenant)}"},
        json={"name": "t", "sshKeyIds": [str(key.pk)], "gpuCount": 4, "nodeId": str(node.pk)},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    assert taken()[0] == 128
    consistent()
