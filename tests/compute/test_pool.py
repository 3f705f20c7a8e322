"""The look at the whole pool finds what a plain question to every unit does, on whatever fleet."""

import datetime as dt
import random
from collections.abc import Collection, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import Exists, F, OuterRef, Q
from django.test.utils import CaptureQueriesContext

from compute.models import Claim, Occupancy, Tier, Workload
from compute.services.fleet import pool_scan
from nodes.levels import AMD_GRANT, BASE, INFINIBAND
from nodes.models import Gpu, GpuModel, GpuUnit, HoldAudience, HoldUnit, Location, Node, NodeHeartbeat
from openrelay.core.clock import Now
from openrelay.core.errors import Invalid
from openrelay.identity.models import Organization
from tests import factories
from tests.compute.conftest import World
from tests.compute.test_pods import AMD, IMAGE, pod_node, pod_units

pytestmark = pytest.mark.django_db

HOUR = dt.timedelta(hours=1)

# A node and model, with its region and the sizes that are open to all, and to spot alone.
Found = tuple[UUID, UUID, str | None, tuple[int, ...], tuple[int, ...]]


def plainly(org: Organization, tier: str, alloc_class: str, levels: dict[UUID, int]) -> list[Found]:
    """The same, unit by unit, as the models tell it."""
    here = OuterRef("pk")
    in_term = HoldUnit.objects.in_term(Now()).filter(unit=here)
    own = HoldAudience.objects.filter(hold=OuterRef("hold"), organization=org)
    on_market = Q(released=True, hold__topology_gen=F("hold__node__topology_gen")) & ~Exists(own)
    withheld = in_term.exclude(on_market) if tier == Tier.SPOT else in_term
    able = Q(pk=None)
    for model_id, level in levels.items():
        able |= Q(gpu_model=model_id, node__heartbeat__agent_level__gte=level)
    units = (
        GpuUnit.objects.present()
        .filter(able, sellable=True, alloc_class=alloc_class)
        .filter(
            node__in=Node.objects.taking_new_work(Now()).filter(runtime=pool_scan.RUNTIME_OF[alloc_class])
        )
        .exclude(Exists(Claim.objects.filter(unit=here)))
        .exclude(Exists(Occupancy.objects.open().filter(unit=here)))
        .exclude(Exists(Gpu.objects.filter(unit=here, failed_at__isnull=False)))
        .exclude(Exists(withheld))
        .annotate(held=Exists(in_term))
        .select_related("node__location")
    )
    sizes: dict[tuple[UUID, UUID, str | None], tuple[list[int], list[int]]] = {}
    for unit in units:
        region = unit.node.location.region if unit.node.location else None
        two = sizes.setdefault((unit.node_id, unit.gpu_model_id, region), ([], []))
        two[unit.held].append(unit.gpu_count)
    return sorted(
        ((*which, tuple(sorted(free)), tuple(sorted(market))) for which, (free, market) in sizes.items()),
        key=str,
    )


def found(alikes: Collection[pool_scan.NodeGroup]) -> list[Found]:
    return sorted(
        (
            (
                node_id,
                alike.model_id,
                alike.region,
                tuple(sorted(alike.sizes)),
                tuple(sorted(alike.on_market)),
            )
            for alike in alikes
            for node_id in alike.node_ids
        ),
        key=str,
    )


@pytest.fixture
def fleets(world: World) -> World:
    factories.gpu_model(AMD, name="AMD MI300X", manufacturer="AMD", vram_gb=192)
    return world


def made(world: World, dice: random.Random) -> list[Node]:
    """Nodes of both kinds, of two models and units of mixed sizes, some of them not for new work now."""
    places = [
        None,
        *(
            Location.objects.create(slug=f"{region}-{dice.random()}", name=region, region=region)
            for region in ("eu", "us")
        ),
    ]
    nodes = []
    for number in range(6):
        units = []
        for n in range(dice.randint(1, 5)):
            model = dice.choice(("nvidia-h100-sxm5-80gb", AMD))
            (unit,) = pod_units(1, gpus=dice.choice((1, 1, 2, 4)), model=model)
            units.append(
                {**factories.unit_report(n), "gpus": gpus_at(unit, n), "sellable": dice.random() < 0.9}
            )
        pod = number % 2
        for unit in units:
            unit["allocClass"] = "device-request" if pod else "vfio-group"
        node = pod_node(world.provider, units) if pod else factories.node(world.provider, units)
        state: dict[str, Any] = dice.choice(
            ({}, {}, {}, {"owner_hold": "maintenance"}, {"terminate_at": Now() + HOUR})
        )
        Node.objects.filter(pk=node.pk).update(location=dice.choice(places), **state)
        NodeHeartbeat.objects.filter(pk=node.pk).update(
            agent_level=dice.choice((BASE, AMD_GRANT, INFINIBAND))
        )
        if dice.random() < 0.1:
            NodeHeartbeat.objects.filter(pk=node.pk).update(seen_at=None)
        nodes.append(node)
    return nodes


def gpus_at(unit: dict[str, Any], number: int) -> list[dict[str, Any]]:
    bus = f"0000:{0x10 + number:02x}:00."
    return [{**gpu, "address": f"{bus}{function}"} for function, gpu in enumerate(unit["gpus"])]


def used(world: World, nodes: list[Node], dice: random.Random) -> Iterator[Workload]:
    """Have some of it reserved, released, in use, draining, failed or in need of a review."""
    for node in nodes:
        addresses = factories.units(node)
        if dice.random() < 0.6 and addresses:
            numbers = dice.sample(range(len(addresses)), dice.randint(1, len(addresses)))
            try:
                reservation = world.reserve(*numbers, node=node)
            except Invalid:
                continue  # one of them is not for sale
            if dice.random() < 0.7:
                world.release(reservation, *numbers[: dice.randint(1, len(numbers))])
            if dice.random() < 0.2:
                Node.objects.filter(pk=node.pk).update(topology_gen=F("topology_gen") + 1)
        if dice.random() < 0.4:
            Gpu.objects.filter(unit=GpuUnit.objects.filter(node=node).first()).update(failed_at=Now())
    for _ in range(6):
        org = dice.choice((world.buyer, world.tenant))
        if dice.random() < 0.5:
            answer = world.ask(org, gpuCount=dice.randint(1, 2), tier=dice.choice(("community", "spot")))
        else:
            key = str(factories.ssh_key(org).pk)
            answer = world.client(org).post("/v1/pods", {"image": IMAGE, "sshKeyIds": [key]})
        if answer.status_code == 200:
            yield Workload.objects.get(pk=answer.json()["id"])


@pytest.mark.parametrize("seed", range(8))
def test_the_look_at_the_pool_finds_what_asking_every_unit_does(fleets: World, seed: int) -> None:
    world, dice = fleets, random.Random(seed)
    nodes = made(world, dice)
    for workload in used(world, nodes, dice):
        if dice.random() < 0.4:
            world.client(workload.organization).post(f"/v1/vms/{workload.pk}/terminate")
    models = list(GpuModel.objects.values_list("pk", flat=True))
    seen = 0
    for alloc_class in pool_scan.RUNTIME_OF:
        for org in (world.buyer, world.tenant):
            for tier in (Tier.COMMUNITY, Tier.SPOT):
                levels = {model_id: dice.choice((0, AMD_GRANT, INFINIBAND)) for model_id in models}
                asked = {
                    "organization_id": org.pk,
                    "tier": tier,
                    "levels": levels,
                    "alloc_class": alloc_class,
                }
                with CaptureQueriesContext(connection) as queries:
                    whole = pool_scan.candidates(**asked)
                assert len(queries) == 1
                expected = plainly(org, tier, alloc_class, levels)
                assert found(whole) == expected, (alloc_class, org.name, tier)
                seen += len(expected)
                some = [node.pk for node in dice.sample(nodes, 3)]
                assert found(pool_scan.candidates(**asked, among=some)) == [
                    row for row in expected if row[0] in some
                ]
                assert found(pool_scan.candidates(**asked, regions=["eu", "nowhere"])) == [
                    row for row in expected if row[2] == "eu"
                ]
                for count in (1, 2, 3):
                    best = pool_scan.best_first(whole, count, frozenset({"us"}))
                    order = [
                        (row[2] != "us", how, row[0], row[1])
                        for row in expected
                        if (how := pool_scan.fit(row[3], row[4], count)) is not None
                    ]
                    assert [(node.node_id, node.model_id) for node in best] == [
                        row[2:] for row in sorted(order)
                    ]
    assert seen
