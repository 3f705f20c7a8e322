"""What a refusal says of other GPU counts is so: which could ever be, and the largest that would fit now."""

import random
import re
from typing import Any

import pytest

from nodes.models import GpuModel, Node
from openrelay.identity.models import Organization
from tests import factories
from tests.compute.conftest import World, refused
from tests.compute.test_availability_holds import LEAST, MOST, SMALL, TIERS, filled, ground, host, tried, used
from tests.compute.test_offers import _place
from tests.compute.test_pods import pod_node, pod_units, pods

__all__ = ["ground", "pods"]

pytestmark = pytest.mark.django_db


def numbers(pattern: str, sentence: str) -> list[int]:
    """The numbers that the sentence lists after those words."""
    found = re.search(pattern + r" (\d+(?:, \d+)*)", sentence)
    return [int(number) for number in found[1].split(",")] if found else []


def check(world: World, org: Organization, **body: Any) -> None:
    """Ask for each count, and compare what the refusals say with what was possible."""
    answers = {count: tried(world, org, gpuCount=count, **body)[0] for count in range(1, MOST + 1)}
    told = {
        count: (answer.json().get("code"), answer.json().get("error")) for count, answer in answers.items()
    }
    fitting = [count for count, answer in answers.items() if answer.status_code == 200]
    possible = [count for count, (code, _) in told.items() if code != "GPU_COUNT_NOT_ALLOCATABLE"]
    for count, (code, sentence) in told.items():
        if code == "UNKNOWN_NODE" or answers[count].status_code == 200:
            continue
        if code == "GPU_COUNT_NOT_ALLOCATABLE":
            said = [each for each in numbers("Possible are", sentence) if each <= MOST]
            assert said == possible, (org.name, body, count, sentence)
        elif code == "VM_SHAPE_NOT_PLACEABLE":
            # No other request would do.
            assert "guestMemMb" not in sentence, sentence
        else:
            assert answers[count].status_code == 503, sentence
            said = numbers("At most", sentence) or [0]
            assert said == [max(fitting, default=0)], (org.name, body, count, sentence, fitting)
            assert ("None would fit" in sentence) == (not fitting), sentence


@pytest.mark.parametrize("seed", [0, 1, 7, 11])
def test_what_a_refusal_says_of_other_counts_is_so(ground: World, seed: int) -> None:
    dice = random.Random(seed)
    nodes = filled(ground, dice)
    used(ground, nodes, dice)
    model = str(GpuModel.objects.get(slug=SMALL).pk)
    for org in (ground.buyer, ground.tenant):
        for tier in TIERS:
            for extra in (LEAST, {}):
                check(ground, org, tier=tier, gpuModelId=model, **extra)
                check(ground, org, tier=tier, **extra)
                for node in nodes if org == ground.tenant else ():
                    check(ground, org, tier=tier, nodeId=str(node.pk), **extra)


def test_what_would_fit_in_a_region_is_told_of_that_region(ground: World) -> None:
    near, far = (factories.node(ground.provider, [factories.unit_report(0, gpus=2)]) for _ in range(2))
    large = factories.node(ground.provider, [factories.unit_report(n, gpus=2) for n in range(4)])
    for node, region in ((near, "eu"), (far, "us"), (large, "us")):
        Node.objects.filter(pk=node.pk).update(location=_place(region))
    host(far, disk_free_gb=5)
    ground.reserve(0, node=large)
    check(ground, ground.buyer, preferredRegions=["eu"])
    check(ground, ground.buyer, preferredRegions=["us"])
    check(ground, ground.buyer, preferredRegions=["us", "eu"])
    check(ground, ground.buyer, preferredRegions=["eu"], allowFallback=True)


def test_what_would_fit_of_pods_has_room_for_the_volume(ground: World, pods: Any) -> None:
    Node.objects.exclude(runtime="qemu").update(owner_hold="maintenance")
    small, large = (pod_node(ground.provider, pod_units(number)) for number in (2, 4))
    host(large, disk_free_gb=60)
    refused(pods.ask(gpuCount=3, volumeGb=61), 503, "INSUFFICIENT_HOST_CAPACITY")
    pods.made(gpuCount=1)  # of the small one
    said = refused(pods.ask(gpuCount=2, volumeGb=61), 503, "INSUFFICIENT_HOST_CAPACITY")
    assert "At most 1 would fit now" in said
    host(large, disk_free_gb=49)
    refused(pods.ask(gpuCount=4), 503, "INSUFFICIENT_HOST_CAPACITY", "At most 1 would fit now")
    Node.objects.filter(pk=small.pk).update(owner_hold="maintenance")
    refused(pods.ask(gpuCount=4), 503, "INSUFFICIENT_HOST_CAPACITY", "None would fit now")
