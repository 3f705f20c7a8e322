"""What availability counts can be created, and what it does not count cannot."""

import random
from typing import Any

import pytest
from django.db import transaction

from compute.models import Workload
from nodes.models import Gpu, GpuModel, GpuUnit, Node
from openrelay.core.clock import Now
from openrelay.core.errors import ApiError
from openrelay.identity.models import Organization
from tests import factories
from tests.compute.conftest import World
from tests.compute.test_availability import shown

pytestmark = pytest.mark.django_db

SMALL, BIG = "acme-small", "acme-big"
TIERS = {"community": "placeableGpuCounts", "spot": "spotPlaceableGpuCounts"}
# The smallest that there is: raised to the floor, and with the least disk.
LEAST = {"guestMemMb": 1, "diskSizeGb": 10}
MOST = 12


@pytest.fixture
def ground(world: World) -> World:
    factories.gpu_model(SMALL, name="Small", vram_gb=8)
    factories.gpu_model(BIG, name="Big", vram_gb=10)
    Node.objects.filter(pk=world.node.pk).update(owner_hold="maintenance")
    for org in (world.buyer, world.tenant, world.provider):
        # For what is made while something is tried is undone with it.
        world.keys[org.pk] = factories.ssh_key(org)
        world.client(org)
    return world


def host(node: Node, **figures: int | None) -> Node:
    """The node with those figures of its host."""
    Node.objects.filter(pk=node.pk).update(**{"disk_free_gb": None, **figures})
    node.refresh_from_db()
    return node


def tried(world: World, org: Organization, **body: Any) -> tuple[Any, str, bool]:
    """The answer to a create, the status of what it made, and whether somebody was ended for it; undone."""
    with transaction.atomic():
        ended = Workload.objects.filter(status="terminated")
        before = ended.count()
        answer = world.ask(org, **body)
        made = Workload.objects.get(pk=answer.json()["id"]).status if answer.status_code == 200 else ""
        costs = ended.count() > before
        transaction.set_rollback(True)
    return answer, made, costs


def check(world: World, org: Organization, slug: str) -> None:
    """Every count is shown exactly when a VM of it can be created, in the pool or on a node that is shown."""
    model = GpuModel.objects.get(slug=slug)
    listed = {row["gpuModelId"]: row["vm"] for row in world.client(org).get("/v1/gpu-availability").json()}
    vm = listed.get(str(model.pk), {"nodes": [], **{field: [] for field in TIERS.values()}})
    for tier, field in TIERS.items():
        for count in range(1, MOST + 1):
            body = {"gpuCount": count, "gpuModelId": str(model.pk), "tier": tier, **LEAST}
            answer, made, _ = tried(world, org, **body)
            able = bool(made)
            for node in vm["nodes"]:
                # Nobody counts on what another has to be ended for, or is to go first.
                _, made, costs = tried(world, org, nodeId=node["nodeId"], **body)
                able = able or (made == "deploying" and not costs)
            assert able == (count in vm[field]), (org.name, slug, tier, count, vm[field], answer.content)
    for node in vm["nodes"]:
        if count := node["freeGpus"]:
            body = {"nodeId": node["nodeId"], "gpuCount": count, "gpuModelId": str(model.pk), **LEAST}
            answer, made, costs = tried(world, org, **body)
            assert (made != "", costs) == (True, False), (org.name, slug, node, answer.content)


def check_all(world: World) -> None:
    for org in (world.buyer, world.tenant):
        for slug in (SMALL, BIG):
            check(world, org, slug)


def filled(world: World, dice: random.Random) -> list[Node]:
    """Nodes of mixed units, their hosts with much or little to go with them."""
    nodes = []
    for _ in range(dice.choice((1, 1, 2, 3))):
        units = [
            factories.unit_report(
                number,
                gpus=dice.choice((1, 1, 2, 3, 4)),
                model=dice.choice((SMALL, SMALL, BIG)),
                sellable=dice.random() > 0.1,
            )
            for number in range(dice.randint(1, 4))
        ]
        gpus = sum(len(unit["gpus"]) for unit in units)
        nodes.append(
            host(
                factories.node(world.provider, units),
                ram_mb=dice.choice((None, *(2048 + gpus * each for each in (6_400, 7_000, 12_000, 20_000)))),
                cpu_cores=dice.choice((None, max(1, gpus - 1), gpus, gpus * 2, gpus * 2 + 1, gpus * 8)),
                disk_total_gb=dice.choice((None, gpus * 12, gpus * 30, 16_000)),
                disk_free_gb=dice.choice((None, None, None, 5, gpus * 12)),
            )
        )
    return nodes


def used(world: World, nodes: list[Node], dice: random.Random) -> None:
    """Have some of it reserved, released, in use with little or much, left, or failed."""
    made: list[str] = []
    for _ in range(dice.randint(2, 12)):
        node = dice.choice(nodes)
        number = GpuUnit.objects.filter(node=node).count()
        org = dice.choice((world.buyer, world.tenant))
        body = {"tier": dice.choice(tuple(TIERS)), "diskSizeGb": 10}
        gpus = {"gpuCount": dice.randint(1, 3), "guestMemMb": dice.choice((None, 1, 6_000, 9_000))}
        what = dice.choice(("reserve", "gpu", "gpu", "gpu", "cpu", "cpu", "named", "end", "fail"))
        answer = None
        if what == "reserve":
            units = [unit for unit in range(number) if dice.random() < 0.5] or [0]
            try:
                with transaction.atomic():
                    reservation = world.reserve(*units, node=node)
            except ApiError:
                continue
            if dice.random() < 0.5:
                world.release(reservation, *units[: dice.randint(1, len(units))])
        elif what == "gpu":
            answer = world.ask(org, **body, **gpus)
        elif what == "named":
            org = dice.choice((world.tenant, world.provider))
            answer = world.ask(org, nodeId=str(node.pk), **body, **gpus)
        elif what == "cpu":
            there = str(node.pk) if org == world.tenant and dice.random() < 0.5 else None
            answer = world.ask(org, gpuCount=None, resourceSize="cpu-small", nodeId=there, **body)
        elif what == "end" and made:
            ended = Workload.objects.get(pk=made.pop(dice.randrange(len(made))))
            world.client(ended.organization).post(f"/v1/vms/{ended.pk}/{dice.choice(('terminate', 'stop'))}")
            if dice.random() < 0.5:
                world.says((ended, "gone"), node=ended.node)
        elif dice.random() < 0.5:
            units = list(GpuUnit.objects.filter(node=node).order_by("address"))
            Gpu.objects.filter(unit=dice.choice(units)).update(failed_at=Now())
        if answer is not None and answer.status_code == 200:
            made.append(answer.json()["id"])


@pytest.mark.parametrize("seed", [3, 4, 10, 23, 45, 48])
def test_what_is_counted_can_be_created_and_nothing_else(ground: World, seed: int) -> None:
    dice = random.Random(seed)
    used(ground, filled(ground, dice), dice)
    check_all(ground)


def test_what_a_small_guest_leaves_of_a_reserved_share_is_not_counted(ground: World) -> None:
    """A VM without GPUs is there, so open GPUs do not start on what reserved ones will need."""
    units = [factories.unit_report(number, model=SMALL) for number in range(4)]
    node = host(factories.node(ground.provider, units), ram_mb=2048 + 4 * 13_000, cpu_cores=None)
    ground.vm(ground.buyer, gpuCount=2, **LEAST)
    ground.reserve(0, 1, node=node)
    ground.vm(ground.buyer, gpuCount=None, resourceSize="cpu-large", diskSizeGb=10)
    # Of 52 GB a bit more than half is kept for the reserved two: what their guests have, and the rest.
    assert shown(ground, ground.buyer, SMALL)["placeableGpuCounts"] == [1]
    check_all(ground)


@pytest.mark.parametrize("figures", [{"disk_free_gb": 9}, {"disk_total_gb": 29}])
def test_gpus_without_room_for_a_disk_are_not_counted(ground: World, figures: dict[str, int]) -> None:
    units = [factories.unit_report(number, model=SMALL) for number in range(2)]
    node = factories.node(ground.provider, units)
    host(node, disk_total_gb=30, cpu_cores=None)
    ground.vm(ground.buyer, diskSizeGb=10)
    ground.vm(ground.tenant, gpuCount=None, resourceSize="cpu-small", diskSizeGb=10)
    assert shown(ground, ground.buyer, SMALL)["freeGpus"] == 1
    host(node, **figures)
    seen = shown(ground, ground.buyer, SMALL)
    assert (seen["freeGpus"], seen["totalGpus"], seen["placeableGpuCounts"]) == (0, 2, [])
    check_all(ground)
