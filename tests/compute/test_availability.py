"""What an organization is shown is what it can have."""

import itertools
import random
from typing import Any

import pytest
from django.db import transaction

from nodes.models import GpuModel, Node
from tests import factories
from tests.compute.conftest import World, refused

pytestmark = pytest.mark.django_db


def shown(world: World, org: Any, slug: str = "nvidia-h100-sxm5-80gb") -> dict[str, Any]:
    answer = world.client(org).get("/v1/gpu-availability")
    assert answer.status_code == 200, answer.content
    model = GpuModel.objects.get(slug=slug)
    (found,) = [row for row in answer.json() if row["gpuModelId"] == str(model.pk)]
    return found["vm"]


def test_an_idle_node_is_all_free_in_every_count(world: World) -> None:
    vm = shown(world, world.buyer)
    assert (vm["freeGpus"], vm["totalGpus"], vm["maxPlaceableGpus"]) == (8, 8, 8)
    assert vm["placeableGpuCounts"] == vm["spotPlaceableGpuCounts"] == vm["tileLattice"] == list(range(1, 9))
    assert (vm["reservedFreeGpus"], vm["spotFreeGpus"], vm["nodes"]) == (0, 0, [])
    assert vm["shapeSizing"] is True
    (offer,) = vm["offers"]
    assert offer["unitSizes"] == offer["structuralUnitSizes"] == [1] * 8
    assert offer["perGpu"]["ramMb"] == vm["maxPerGpu"]["ramMb"] == vm["minPerGpu"]["ramMb"]
    assert vm["floorPerGpu"]["ramMb"] == 80 * 1024 * 65 // 100


def test_what_runs_leaves_free_and_stays_in_total(world: World) -> None:
    world.vm(world.buyer, gpuCount=3)
    vm = shown(world, world.tenant)
    assert (vm["freeGpus"], vm["totalGpus"], vm["maxPlaceableGpus"]) == (5, 8, 5)
    assert vm["tileLattice"] == list(range(1, 9))
    (offer,) = vm["offers"]
    assert (offer["unitSizes"], offer["structuralUnitSizes"]) == ([1] * 5, [1] * 8)


def test_others_reserved_units_leave_and_ones_own_count_apart(world: World) -> None:
    reservation = world.reserve(0, 1, 2)
    outside = shown(world, world.buyer)
    assert (outside["freeGpus"], outside["totalGpus"], outside["spotFreeGpus"]) == (5, 5, 0)
    assert outside["nodes"] == []
    own = shown(world, world.tenant)
    assert (own["freeGpus"], own["totalGpus"], own["reservedFreeGpus"]) == (8, 8, 3)
    assert own["nodes"] == [
        {
            "nodeId": str(world.node.pk),
            "freeGpus": 3,
            "freeUnits": 3,
            "unitSizes": [1, 1, 1],
            "reserved": True,
            "spot": False,
        }
    ]
    world.release(reservation, 0)
    outside = shown(world, world.buyer)
    assert (outside["freeGpus"], outside["totalGpus"], outside["spotFreeGpus"]) == (5, 5, 1)
    assert outside["placeableGpuCounts"] == [1, 2, 3, 4, 5]
    assert outside["spotPlaceableGpuCounts"] == [1, 2, 3, 4, 5, 6]
    (offer,) = outside["offers"]
    assert (offer["spotUnitSizes"], offer["spotStructuralUnitSizes"]) == ([1], [1])
    own = shown(world, world.tenant)
    assert (own["freeGpus"], own["reservedFreeGpus"], own["spotFreeGpus"]) == (8, 3, 0)
    assert own["nodes"][0]["spot"] is True


def test_in_review_what_is_reserved_is_nobodys(world: World) -> None:
    world.reserve(*range(7))
    factories.inventory(world.node, 7)
    for org in (world.tenant, world.buyer):
        vm = shown(world, org)
        assert (vm["freeGpus"], vm["totalGpus"], vm["offers"], vm["nodes"]) == (0, 0, [], [])


def test_a_host_of_which_all_is_reserved_to_others_is_not_spoken_of(world: World) -> None:
    model = factories.gpu_model("pair", name="Pair", vram_gb=8)
    pairs = factories.node(world.provider, [factories.unit_report(n, gpus=2, model="pair") for n in range(2)])
    world.reserve(0, 1, node=pairs)
    vm = shown(world, world.buyer, "pair")
    assert (vm["totalGpus"], vm["tileLattice"], vm["offers"]) == (0, [], [])
    assert "minPerGpu" not in vm
    assert "maxPerGpu" not in vm
    for count in (1, 2, 3):
        body = {"gpuCount": count, "gpuModelId": str(model.pk)}
        sentence = refused(world.ask(world.buyer, **body), 503, "INSUFFICIENT_GPU_CAPACITY")
        assert "Possible" not in sentence
    own = shown(world, world.tenant, "pair")
    assert own["tileLattice"] == [2, 4]
    refused(
        world.ask(world.tenant, gpuCount=3, gpuModelId=str(model.pk), nodeId=str(pairs.pk)),
        400,
        "GPU_COUNT_NOT_ALLOCATABLE",
        "Possible are 2, 4.",
    )


def test_others_reservations_are_in_no_lattice_and_in_no_refusal(world: World) -> None:
    world.reserve(*range(5))
    assert shown(world, world.buyer)["tileLattice"] == [1, 2, 3]
    refused(world.ask(world.buyer, gpuCount=4), 400, "GPU_COUNT_NOT_ALLOCATABLE", "Possible are 1, 2, 3.")
    assert shown(world, world.tenant)["tileLattice"] == list(range(1, 9))
    refused(world.ask(world.tenant, gpuCount=8), 503, "INSUFFICIENT_GPU_CAPACITY")


def test_what_others_released_is_in_the_lattice(world: World) -> None:
    reservation = world.reserve(*range(8))
    world.release(reservation, 0, 1)
    assert shown(world, world.buyer)["tileLattice"] == [1, 2]
    refused(world.ask(world.buyer, gpuCount=2), 503, "INSUFFICIENT_GPU_CAPACITY")
    refused(world.ask(world.buyer, gpuCount=3, tier="spot"), 400, "GPU_COUNT_NOT_ALLOCATABLE", "1, 2.")
    world.vm(world.buyer, gpuCount=2, tier="spot")


@pytest.mark.parametrize("claimed", [True, False])
def test_a_unit_with_a_failed_gpu_is_in_no_figure(world: World, claimed: bool) -> None:
    if claimed:
        world.running(world.buyer)
    units = [factories.unit_report(n) for n in range(8)]
    units[0]["gpus"][0]["healthy"] = False
    factories.inventory(world.node, units)
    vm = shown(world, world.buyer)
    assert (vm["freeGpus"], vm["totalGpus"]) == (7, 7)
    assert vm["tileLattice"] == vm["placeableGpuCounts"] == list(range(1, 8))
    (offer,) = vm["offers"]
    assert offer["structuralUnitSizes"] == offer["unitSizes"] == [1] * 7
    refused(world.ask(world.buyer, gpuCount=8), 400, "GPU_COUNT_NOT_ALLOCATABLE")


@pytest.mark.parametrize("seed", range(6))
def test_never_is_answered_exactly_for_counts_outside_the_lattice(world: World, seed: int) -> None:
    dice = random.Random(seed)
    sizes = [dice.choice((1, 2, 2, 4)) for _ in range(dice.randint(2, 5))]
    model = factories.gpu_model("odd", name="Odd", vram_gb=8)
    node = factories.node(
        world.provider, [factories.unit_report(n, gpus=g, model="odd") for n, g in enumerate(sizes)]
    )
    world.keys = {org.pk: factories.ssh_key(org) for org in (world.buyer, world.tenant)}
    numbers = dice.sample(range(len(sizes)), dice.randint(1, len(sizes) - 1))
    reservation = world.reserve(*numbers, node=node)
    if dice.random() < 0.5:
        world.release(reservation, numbers[0])
    for org in (world.buyer, world.tenant):
        lattice = shown(world, org, "odd")["tileLattice"]
        assert lattice
        for count, tier in itertools.product(range(1, 13), ("community", "spot")):
            with transaction.atomic():
                answer = world.ask(
                    org, gpuModelId=str(model.pk), gpuCount=count, tier=tier, guestMemMb=1, diskSizeGb=10
                )
                transaction.set_rollback(True)
            never = answer.status_code == 400
            assert never == (count not in lattice), (org.name, count, tier, answer.content)
            assert never == (answer.json().get("code") == "GPU_COUNT_NOT_ALLOCATABLE")


def test_a_node_that_takes_no_work_offers_nothing_but_its_shape(world: World) -> None:
    Node.objects.update(owner_hold="maintenance")
    vm = shown(world, world.buyer)
    assert (vm["freeGpus"], vm["totalGpus"], vm["offers"]) == (0, 0, [])
    assert vm["tileLattice"] == list(range(1, 9))


def test_counts_are_tilings_of_one_node(world: World) -> None:
    for _ in range(2):
        factories.node(world.provider, [factories.unit_report(n, gpus=2, model="pair") for n in range(2)])
    model = GpuModel.objects.get(slug="pair")
    assert model.hidden
    GpuModel.objects.filter(pk=model.pk).update(hidden=False)
    vm = shown(world, world.buyer, "pair")
    assert (vm["freeGpus"], vm["maxPlaceableGpus"], vm["placeableGpuCounts"]) == (8, 4, [2, 4])


def test_a_hidden_model_shows_to_whom_it_is_reserved(world: World) -> None:
    odd = factories.node(world.provider, [factories.unit_report(0, model="odd")])
    world.reserve(0, node=odd)
    assert shown(world, world.tenant, "odd")["reservedFreeGpus"] == 1
    slugs = [row["name"] for row in world.client(world.buyer).get("/v1/gpu-availability").json()]
    assert not any("odd" in name for name in slugs)


@pytest.mark.parametrize("seed", range(6))
def test_a_count_is_shown_exactly_when_it_can_be_had(world: World, seed: int) -> None:
    dice = random.Random(seed)
    model = factories.gpu_model()
    world.keys = {org.pk: factories.ssh_key(org) for org in (world.buyer, world.tenant)}
    for _ in range(2):
        sizes = [dice.choice((1, 1, 2, 4)) for _ in range(dice.randint(1, 4))]
        factories.node(world.provider, [factories.unit_report(n, gpus=g) for n, g in enumerate(sizes)])
    for _ in range(dice.randint(0, 5)):
        made = world.ask(world.buyer, gpuCount=dice.randint(1, 4), tier=dice.choice(("community", "spot")))
        if made.status_code == 200 and dice.random() < 0.3:
            world.client(world.buyer).post(f"/v1/vms/{made.json()['id']}/terminate")
    numbers = dice.sample(range(8), 5)
    reservation = world.reserve(*numbers)
    world.release(reservation, *dice.sample(numbers, 2))

    def had(org: Any, **body: Any) -> bool:
        """Whether the create succeeds; what it did is undone."""
        with transaction.atomic():
            answer = world.ask(org, gpuModelId=str(model.pk), **body)
            if answer.status_code != 200:
                assert answer.json()["code"] in ("GPU_COUNT_NOT_ALLOCATABLE", "INSUFFICIENT_GPU_CAPACITY")
            transaction.set_rollback(True)
        return answer.status_code == 200

    vm = shown(world, world.buyer)
    for count in range(1, 13):
        assert had(world.buyer, gpuCount=count) == (count in vm["placeableGpuCounts"]), count
        assert had(world.buyer, gpuCount=count, tier="spot") == (count in vm["spotPlaceableGpuCounts"]), count
    own = shown(world, world.tenant)
    for node in own["nodes"]:
        if node["freeUnits"]:
            assert had(world.tenant, gpuCount=min(node["unitSizes"]), nodeId=node["nodeId"])


def test_the_same_number_of_queries_for_one_node_and_for_twenty(
    world: World,
    django_assert_num_queries,  # type: ignore[no-untyped-def]
) -> None:
    client = world.client(world.buyer)
    client.get("/v1/gpu-availability")
    with django_assert_num_queries(3):
        client.get("/v1/gpu-availability")
    for _ in range(5):
        factories.node(world.provider, 2)
    with django_assert_num_queries(3):
        client.get("/v1/gpu-availability")


def test_the_catalogue_lists_every_model(world: World) -> None:
    factories.gpu_model("amd-mi300x", name="AMD MI300X", manufacturer="AMD", vram_gb=192)
    rows = world.client(world.buyer).get("/v1/gpu-models").json()
    assert [row["name"] for row in rows] == ["AMD MI300X", "NVIDIA H100 SXM5 80 GB"]
    assert rows[0]["hidden"] is False
