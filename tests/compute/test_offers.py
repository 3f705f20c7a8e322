"""The fleet's offers are shared, and yet nobody is shown what is no longer so."""

import datetime as dt
import gzip
import importlib
import json
import random
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings
from hypothesis import strategies as st

from compute.api import catalog
from compute.models import AvailabilityState, NodeOffer, Workload
from compute.services.fleet import availability, pool_scan, ranking, refresh
from compute.services.fleet.node_survey import survey_nodes
from compute.services.fleet.ranking import best_fits
from nodes.models import GpuModel, GpuUnit, Location, Node, NodeHeartbeat
from openrelay.api import runs
from openrelay.core import clock as database_clock
from openrelay.core.clock import Now
from openrelay.core.errors import ApiError
from tests import factories
from tests.compute.conftest import World, refused
from tests.support.travel import Clock
from tests.support.web import Server


@pytest.fixture
def committed(transactional_db: None) -> World:
    """The world, with every change committed, so that snapshots tell them apart."""
    factories.platform()
    provider = factories.organization("Provider", is_provider=True)
    return World(
        node=factories.node(provider),
        provider=provider,
        tenant=factories.organization("Tenant"),
        buyer=factories.organization("Buyer"),
    )


def _place(region: str) -> Location:
    """A location in that region."""
    place, _ = Location.objects.get_or_create(
        slug=region, defaults={"name": region, "city": region, "country": "DE", "region": region}
    )
    return place


def facts(org: Any) -> list[Any]:
    """What a survey of everything says."""
    return told(availability._answer({}, {}, survey_nodes(org.pk, None)))


def told(found: availability.Availability) -> list[Any]:
    return [
        {
            "model": seen.model.pk,
            "figures": (seen.free, seen.reserved_free, seen.spot_free, seen.total),
            "masks": (seen.placeable, seen.spot_placeable, seen.lattice),
            "offers": sorted((str(offer.shape), offer.nodes) for offer in seen.offers),
            "nodes": [(node.node_id, node.sizes, node.released) for node in seen.nodes],
        }
        for seen in found.models
    ]


def check(world: World) -> None:
    for org in (world.buyer, world.tenant, world.provider, factories.platform()):
        assert told(availability.availability(org.pk)) == facts(org), org.name
    models = list(GpuModel.objects.values_list("pk", flat=True))
    for org, tier in ((world.buyer, "community"), (world.tenant, "spot"), (world.buyer, "spot")):
        whole = pool_scan.candidates(organization_id=org.pk, tier=tier, levels=dict.fromkeys(models, 0))
        for count in (1, 2, 3, 4):
            best = best_fits(organization_id=org.pk, tier=tier, gpu_count=count, model_ids=models)
            able = [
                (how, node_id)
                for alike in whole
                if (how := alike.fit(count)) is not None
                for node_id in alike.node_ids
            ]
            # Few enough nodes that all of them are named.
            found = [(fit.fit(count), fit.node_id) for fit in best.candidates]
            assert found == sorted(able), (org.name, tier, count)
            if best.most is not None:
                assert best.most == max((node.free for node in whole), default=0)
                assert not able
            for regions in ({"eu"}, {"eu", "us"}, {"nowhere"}):
                there = [node for node in whole if node.region in regions]
                near = best_fits(
                    organization_id=org.pk,
                    tier=tier,
                    gpu_count=count,
                    model_ids=models,
                    regions=frozenset(regions),
                )
                assert [node.node_id for node in near.candidates] == [
                    node.node_id for node in pool_scan.best_first(there, count)
                ], (org.name, tier, count, regions)
                assert near.most is None


@pytest.mark.parametrize("seed", range(3))
def test_what_is_shown_is_what_a_survey_of_everything_says(committed: World, clock: Clock, seed: int) -> None:
    world, dice = committed, random.Random(seed)
    nodes = [world.node]
    for _ in range(3):
        sizes = [dice.choice((1, 1, 2, 4)) for _ in range(dice.randint(1, 4))]
        nodes.append(
            factories.node(world.provider, [factories.unit_report(n, gpus=g) for n, g in enumerate(sizes)])
        )
    for node, region in zip(nodes, ("eu", "us", "eu"), strict=False):  # and one is nowhere in particular
        Node.objects.filter(pk=node.pk).update(location=_place(region))
    made: list[Workload] = []

    def create() -> None:
        org = dice.choice((world.buyer, world.tenant))
        node = dice.choice([None, None, str(world.node.pk)]) if org == world.tenant else None
        answer = world.ask(
            org, gpuCount=dice.randint(1, 3), tier=dice.choice(("community", "spot")), nodeId=node
        )
        if answer.status_code == 200:
            made.append(Workload.objects.get(pk=answer.json()["id"]))

    def end() -> None:
        if made:
            gone = made.pop(dice.randrange(len(made)))
            world.client(gone.organization).post(f"/v1/vms/{gone.pk}/terminate")
            if dice.random() < 0.7:
                world.says((gone, "gone"), node=gone.node)

    def reserve() -> None:
        start = database_clock.read() + dt.timedelta(seconds=dice.choice((0, 40, 90)))
        units = [n for n in range(8) if dice.random() < 0.3] or [0]
        try:
            held = world.reserve(*units, starts_at=start, ends_at=start + dt.timedelta(seconds=100))
        except ApiError:  # held already, or gone from the node
            return
        if start <= database_clock.read() and dice.random() < 0.6:
            world.release(held, units[0])

    def report() -> None:
        units = [factories.unit_report(n) for n in range(8)]
        units[dice.randrange(8)]["gpus"][0]["healthy"] = dice.random() < 0.5
        factories.inventory(world.node, units[: dice.choice((8, 8, 7))])

    def script() -> None:
        Node.objects.filter(pk=dice.choice(nodes).pk).update(owner_hold=dice.choice(("", "maintenance")))

    def silence() -> None:
        clock.advance(100)
        factories.online(*dice.sample(nodes, 3))

    def rename() -> None:
        GpuModel.objects.update(hidden=dice.random() < 0.3)

    def wait() -> None:
        clock.advance(dice.choice((1, 30, 60)))
        factories.online(*dice.sample(nodes, dice.choice((2, 4))))

    steps = (create, create, create, end, end, reserve, report, script, silence, rename, wait)
    for _ in range(25):
        step = dice.choice((*steps, refresh.refresh))
        step()
        check(world)


def test_a_change_is_seen_at_once_though_nothing_was_surveyed_since(committed: World) -> None:
    world = committed
    refresh.refresh()
    version = AvailabilityState.objects.get().version
    made = world.vm(world.buyer, gpuCount=3)
    for org in (world.buyer, world.tenant):
        (seen,) = availability.availability(org.pk).models
        assert seen.free == 5
    assert AvailabilityState.objects.get().version == version
    world.terminate(world.buyer, made)
    world.says((made, "gone"))
    assert availability.availability(world.buyer.pk).models[0].free == 8
    assert refresh.refresh()
    assert not refresh.refresh()
    assert availability.availability(world.buyer.pk).shared


def test_a_node_that_moved_away_is_not_in_its_region_any_more(committed: World) -> None:
    """Though no more changed than where it is, and the offers say nothing of that."""
    world = committed
    eu, us = _place("eu"), _place("us")
    other = factories.node(world.provider, 8)
    Node.objects.filter(pk=world.node.pk).update(location=eu)
    Node.objects.filter(pk=other.pk).update(location=us)
    refresh.refresh()
    assert world.vm(world.buyer, preferredRegions=["eu"], gpuCount=2).node_id == world.node.pk
    assert world.vm(world.buyer, preferredRegions=["us"]).node_id == other.pk
    refresh.refresh()
    # Which process knows of it: nothing has changed since, so the next is placed by memory.
    with CaptureQueriesContext(connection) as asked:
        made = world.vm(world.buyer, preferredRegions=["us"], gpuCount=3)
    assert made.node_id == other.pk
    assert not any("array_agg" in query["sql"].lower() for query in asked)
    Node.objects.filter(pk=other.pk).update(location=eu)
    refused(world.ask(world.buyer, preferredRegions=["us"]), 400, "GPU_COUNT_NOT_ALLOCATABLE")
    # And one that came is found, at the latest before anybody is refused.
    Node.objects.filter(pk=world.node.pk).update(location=us)
    assert world.vm(world.buyer, preferredRegions=["us"]).node_id == world.node.pk
    assert world.vm(world.buyer, preferredRegions=["us"], allowFallback=True, gpuCount=4)


def test_nobody_is_sent_elsewhere_for_the_best_fits_of_the_region_are_busy(
    committed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = committed
    place = {name: _place(name) for name in ("eu", "us")}
    Node.objects.filter(pk=world.node.pk).update(location=place["eu"])
    small, elsewhere = factories.node(world.provider, 2), factories.node(world.provider, 1)
    Node.objects.filter(pk=small.pk).update(location=place["eu"])
    Node.objects.filter(pk=elsewhere.pk).update(location=place["us"])
    refresh.refresh()
    monkeypatch.setattr(ranking, "_ENOUGH", 1)
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT FROM nodes_node WHERE id = %s FOR UPDATE", [small.pk])
            made = world.vm(world.buyer, preferredRegions=["eu"], allowFallback=True)
    finally:
        other.close()
    assert made.node_id == world.node.pk


def test_what_was_rolled_back_or_is_not_committed_is_not_seen(committed: World) -> None:
    world = committed
    refresh.refresh()
    with transaction.atomic():
        world.vm(world.buyer, gpuCount=3)
        assert availability.availability(world.buyer.pk).models[0].free == 5  # by whoever did it
        transaction.set_rollback(True)
    assert availability.availability(world.buyer.pk).models[0].free == 8
    assert not refresh.refresh()


def test_a_survey_that_overlaps_a_change_does_not_lose_it(committed: World) -> None:
    """A transaction that was open during the survey, with an older number than what the survey saw last."""
    world = committed
    refresh.refresh()
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("UPDATE nodes_node SET owner_hold = 'maintenance' WHERE id = %s", [world.node.pk])
            factories.node(world.provider, 2)
            assert refresh.refresh()
            assert availability.availability(world.buyer.pk).models[0].free == 10
            cursor.execute("COMMIT")
    finally:
        other.close()
    assert availability.availability(world.buyer.pk).models[0].free == 2
    check(world)


def test_reading_surveys_nothing_twice(committed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One question to the database, not counted here for it has a connection of its own, and then memory."""
    world = committed
    world.reserve(0, 1)
    refresh.refresh()
    for org in (world.buyer, world.tenant):
        availability.availability(org.pk)
        with CaptureQueriesContext(connection) as counted:
            assert availability.availability(org.pk) is availability.availability(org.pk)
        assert len(counted) == 0, org.name
    world.vm(world.buyer)
    assert availability.availability(world.buyer.pk) is availability.availability(world.provider.pk)
    first = availability.availability(world.tenant.pk)
    world.vm(world.buyer)
    assert availability.availability(world.tenant.pk) is not first
    check(world)


def test_only_what_changed_since_it_was_surveyed_is_surveyed_again(
    committed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = committed
    other = factories.node(world.provider, 4)
    refresh.refresh()
    surveyed: list[set[Any]] = []

    def spy(organization_id: Any, node_ids: Any) -> Any:
        surveyed.append(set(node_ids))
        return survey_nodes(organization_id, node_ids)

    monkeypatch.setattr(availability, "survey_nodes", spy)
    for node in (world.node, other):
        world.vm(world.provider, nodeId=str(node.pk))
    assert availability.availability(world.buyer.pk).models[0].free == 10
    world.vm(world.provider, nodeId=str(other.pk))
    assert availability.availability(world.tenant.pk).models[0].free == 9
    assert surveyed == [{world.node.pk, other.pk}, {other.pk}]
    # Where something is reserved the clock changes what there is, so that node is looked at each time.
    world.reserve(0, 1)
    world.vm(world.provider, nodeId=str(other.pk))
    check(world)
    monkeypatch.undo()
    check(world)


def test_the_database_may_cut_the_connection_that_asks(committed: World) -> None:
    world = committed
    refresh.refresh()
    for _ in range(2):
        availability.availability(world.buyer.pk)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND query LIKE '%compute_freshness%'"
        )
        assert cursor.fetchone()[0] > 0
    world.vm(world.buyer)
    check(world)


def test_without_a_task_a_reader_brings_the_offers_up_to_date(committed: World, clock: Clock) -> None:
    world = committed
    availability.availability(world.buyer.pk)
    before = AvailabilityState.objects.get().checked_at
    clock.advance(20)
    factories.online(world.node)
    availability.availability(world.buyer.pk)
    assert AvailabilityState.objects.get().checked_at > before
    clock.advance(-3600)
    factories.online(world.node)
    check(world)


def test_offers_of_another_cluster_are_not_believed(committed: World) -> None:
    """A dump that was restored elsewhere brings a snapshot of transactions that are still to come there."""
    world = committed
    refresh.refresh()
    AvailabilityState.objects.update(snapshot="4000000000:4000000000:")
    NodeOffer.objects.all().delete()
    GpuUnit.objects.filter(node=world.node, address=factories.address(0)).update(sellable=False)
    check(world)


def test_many_alike_nodes_are_each_an_offer_to_the_published_client(
    committed: World, server: Server, sdk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, model = committed, factories.gpu_model()
    rows = Node.objects.bulk_create(
        Node(organization=world.provider, hostname=f"many-{n}", ram_mb=1024 * 1024, cpu_cores=64)
        for n in range(700)
    )
    NodeHeartbeat.objects.bulk_create(NodeHeartbeat(node=row, seen_at=Now()) for row in rows)
    GpuUnit.objects.bulk_create(
        GpuUnit(
            node=row, address=factories.address(n), alloc_class="vfio-group", gpu_model=model, gpu_count=1
        )
        for row in rows
        for n in range(2)
    )
    world.reserve(0, 1)
    world.vm(world.buyer, gpuCount=2, nodeId=None)
    for org, own in ((world.buyer, 0), (world.tenant, 2)):
        token = factories.api_key(org)
        operation = importlib.import_module(f"{sdk.__name__}.api.catalog.get_gpu_availability")
        with sdk.AuthenticatedClient(base_url=server.url, token=token) as published:
            (found,) = operation.sync(client=published)
        assert len(found.vm.offers) == 701
        assert found.vm.total_gpus == 1406 + own
        assert found.vm.reserved_free_gpus == own
        client = world.client(org)
        packed = client.get("/v1/gpu-availability", headers={"Accept-Encoding": "gzip, br"})
        assert packed.headers["Content-Encoding"] == "gzip"
        assert packed.headers["Vary"] == "Accept-Encoding"
        plain = client.get("/v1/gpu-availability", headers={"Accept-Encoding": "gzip;q=0"})
        text = plain.content
        monkeypatch.setattr(catalog, "LARGE", 1000)
        streamed = client.get("/v1/gpu-availability")
        assert b"".join(streamed.streaming_content) == text
        assert int(streamed.headers["Content-Length"]) == len(text)
        monkeypatch.undo()
        assert gzip.decompress(packed.content) == text
        assert len(packed.content) < len(text) / 20
        (vm,) = (row["vm"] for row in json.loads(text))
        assert sum(len(offer["unitSizes"]) for offer in vm["offers"]) == vm["freeGpus"]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((b"a", b"0123456789" * 9, b"[1,1],")),
            st.sampled_from((1, 2, 255, 256, 511, 512, 900)),
        )
    )
)
def test_a_body_of_runs_is_what_its_parts_say(parts: list[tuple[bytes, int]]) -> None:
    whole = b"".join(piece * times for piece, times in parts)
    assert b"".join(runs.chunks(parts)) == whole
    assert runs.length(parts) == len(whole)
    assert gzip.decompress(runs.gzipped(parts)) == whole
