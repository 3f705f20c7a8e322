"""Inventory reports: which changes are topology, and which reports are flagged."""

import datetime as dt
import uuid
from copy import deepcopy
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.exceptions import ValidationError

from nodes.inventory import Inventory
from nodes.models import Gpu, GpuModel, GpuUnit, InventoryReport, Node, TopologyGeneration
from nodes.services.inventory import apply_inventory
from openrelay.api.serializers import read
from openrelay.audit.actor import Actor
from openrelay.audit.models import AuditEvent
from openrelay.core import clock as database_clock
from openrelay.core.errors import Invalid, NotFound
from tests import factories
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db

AGENT = Actor("node:test")


@pytest.fixture
def node() -> Node:
    return factories.node(factories.organization(), 4)


def reports(node: Node, units: Any, **fields: Any) -> Any:
    return factories.inventory(node, units, **fields)


def four(**changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Build reports of units 0 to 3. `changes` has fields to replace, by "unit0" to "unit3"."""
    return [factories.unit_report(number) | changes.get(f"unit{number}", {}) for number in range(4)]


def gpus(*models: str, **fields: Any) -> dict[str, Any]:
    """Build the `gpus` field of unit 0, with one GPU for each model."""
    return {
        "gpus": [
            {"address": f"0000:10:00.{n}", "model": model, "healthy": True, **fields}
            for n, model in enumerate(models)
        ]
    }


H100 = "nvidia-h100-sxm5-80gb"


def test_the_first_report_opens_the_first_generation(node: Node) -> None:
    assert node.topology_gen == 1
    generation = TopologyGeneration.objects.get(node=node)
    assert generation.number == 1
    assert generation.report is not None
    assert generation.report.sequence == 1
    assert [unit["address"] for unit in generation.units] == factories.units(node)
    model = factories.gpu_model()
    assert generation.units[0] == {
        "address": factories.address(0),
        "allocClass": "vfio-group",
        "gpuModel": H100,
        "gpuModelId": str(model.pk),
        "gpuCount": 1,
    }


@pytest.mark.parametrize(
    ("units", "words"),
    [
        (four()[:3], "0000:13:00.0 is gone"),
        ([*four(), factories.unit_report(4)], "0000:14:00.0 is new"),
        (four(unit0={"allocClass": "device-request"}), "class from vfio-group to device-request"),
        (four(unit0=gpus("amd-mi300x")), "GPU model"),
        (four(unit0=gpus(H100, H100)), "from 1 to 2 GPUs"),
    ],
)
def test_the_set_class_model_and_count_of_units_are_topology(
    node: Node, units: list[dict[str, Any]], words: str
) -> None:
    taken = reports(node, units)
    assert (taken.generation, taken.changed, taken.flagged) == (2, True, "")
    generation = TopologyGeneration.objects.get(node=node, number=2)
    assert words in generation.cause
    assert [unit["address"] for unit in generation.units] == factories.units(node)
    event = AuditEvent.objects.get(target_id=node.pk, event="node.topology_changed", after__generation=2)
    assert event.before == {"generation": 1}
    assert any(words in change for change in event.after["changes"])
    assert event.after["report"] == str(generation.report_id)


@pytest.mark.parametrize(
    "units",
    [
        four(unit0=gpus(H100, healthy=False, failure="Xid 79")),
        four(unit0=gpus(H100, serial="1652")),
        four(unit0={"sellable": False, "notSellableReason": "it drives the display"}),
        four(unit0={"iommuGroup": 12, "numaNode": 1}),
        list(reversed(four())),
    ],
)
def test_health_sale_and_place_are_not_topology(node: Node, units: list[dict[str, Any]]) -> None:
    taken = reports(node, units)
    assert (taken.generation, taken.changed, taken.flagged) == (1, True, "")
    assert node.topology_gen == 1
    assert not AuditEvent.objects.filter(event="node.topology_changed", after__generation=2).exists()


def test_what_is_withdrawn_from_sale_or_back_is_in_the_log_once_a_unit(node: Node) -> None:
    ailing = {**gpus(H100), "sellable": False, "notSellableReason": "kept by its owner"}
    ailing["gpus"][0] |= {"healthy": False, "failure": "fell off the bus"}
    unit = GpuUnit.objects.get(node=node, address=factories.address(0))
    reports(node, four(unit0=ailing))
    reports(node, four(unit0=ailing), host={"diskFreeGb": 1})
    (event,) = AuditEvent.objects.filter(event="unit.changed")
    assert (event.target_id, event.organization_id) == (str(unit.pk), node.organization_id)
    assert event.before == {"sellable": True}
    assert event.after == {
        "nodeId": str(node.pk),
        "unitId": unit.address,
        "sellable": False,
        "notSellableReason": "kept by its owner",
        "failedGpus": {unit.address: "fell off the bus"},
    }
    reports(node, four())
    back = AuditEvent.objects.filter(event="unit.changed").exclude(pk=event.pk).get()
    assert back.before["failedGpus"]
    assert back.after["sellable"] is True
    assert not AuditEvent.objects.filter(event="node.topology_changed", after__generation=2).exists()


def test_a_report_with_little_news_costs_the_same_for_one_unit_and_for_many(
    node: Node,
) -> None:
    large = factories.node(factories.organization(), 32)
    costs = []
    for made, many in ((node, 4), (large, 32)):
        with CaptureQueriesContext(connection) as queries:
            reports(made, many, host={"diskFreeGb": 4321})
        made.refresh_from_db()
        assert made.disk_free_gb == 4321
        costs.append(len(queries))
    assert costs[0] == costs[1]


def test_the_hosts_figures_and_drivers_are_not_topology(node: Node) -> None:
    reports(node, 4, host={"tdx": True})
    host = read(Inventory, factories.report(4, sequence=9, host={"cpuCores": 64, "ramMb": 4096}))["host"]
    taken = reports(node, 4, host={**host, "cpuModel": "EPYC"})
    assert taken.generation == 1
    assert (node.cpu_cores, node.ram_mb, node.cpu_model) == (64, 4096, "EPYC")
    # Facts that a report omits keep their values.
    assert (node.disk_total_gb, node.tdx_enabled) == (16000, True)


def test_what_became_of_a_host_is_in_the_log_but_for_its_free_disk(node: Node) -> None:
    reports(node, 4, runtime="runc", host={"cpuCores": 64, "diskFreeGb": 5})
    (event,) = AuditEvent.objects.filter(event="node.host_changed")
    assert (event.target_id, event.organization_id) == (str(node.pk), node.organization_id)
    assert event.before == {"runtime": "qemu", "cpuCores": 128}
    assert event.after == {"runtime": "runc", "cpuCores": 64}
    reports(node, 4, runtime="runc", host={"cpuCores": 64, "diskFreeGb": 4})
    assert AuditEvent.objects.filter(event="node.host_changed").count() == 1
    # If the units change too, one event has both changes.
    reports(node, 3, runtime="runc", host={"cpuCores": 32})
    assert AuditEvent.objects.filter(event="node.host_changed").count() == 1
    changed = AuditEvent.objects.get(event="node.topology_changed", after__generation=2)
    assert (changed.before["cpuCores"], changed.after["cpuCores"]) == (64, 32)
    assert "runtime" not in changed.after


def test_health_is_kept_with_the_time_of_the_first_failure(node: Node) -> None:
    reports(node, four(unit0=gpus(H100, healthy=False, failure="Xid 79")))
    gpu = Gpu.objects.get(unit__node=node, address=factories.address(0))
    failed_at = gpu.failed_at
    assert failed_at is not None
    assert gpu.failure == "Xid 79"
    reports(node, four(unit0=gpus(H100, healthy=False, failure="Xid 94")))
    gpu.refresh_from_db()
    assert gpu.failed_at == failed_at
    reports(node, 4)
    gpu.refresh_from_db()
    assert (gpu.failed_at, gpu.failure) == (None, "")


def test_the_same_report_again_changes_nothing(node: Node) -> None:
    counts = [model.objects.count() for model in (AuditEvent, InventoryReport, TopologyGeneration)]
    units = {unit.pk: unit.created_at for unit in GpuUnit.objects.all()}
    again = reports(node, 4, sequence=1)
    later = reports(node, 4, sequence=9)
    for taken in (again, later):
        assert (taken.generation, taken.changed, taken.flagged) == (1, False, "")
    assert [model.objects.count() for model in (AuditEvent, InventoryReport, TopologyGeneration)] == counts
    assert {unit.pk: unit.created_at for unit in GpuUnit.objects.all()} == units
    assert node.inventory_sequence == 9


@pytest.mark.parametrize(
    ("units", "fields", "words"),
    [
        (3, {"sequence": 4}, "older"),
        (3, {"sequence": 5}, "other content"),
        (3, {"sequence": 6, "complete": False}, "partial"),
        (0, {"sequence": 6}, "no unit"),
    ],
)
def test_an_older_partial_or_empty_report_is_flagged_and_changes_nothing(
    node: Node, units: int, fields: dict[str, Any], words: str
) -> None:
    reports(node, 4, sequence=5)
    taken = reports(node, units, **fields, host={"cpuCores": 2})
    assert words in taken.flagged
    assert (taken.generation, taken.changed) == (1, False)
    assert node.topology_gen == 1
    assert node.inventory_sequence == 5
    assert node.cpu_cores == 128
    assert len(factories.units(node)) == 4
    kept = InventoryReport.objects.get(node=node, flagged__contains=words)
    assert kept.sequence == fields["sequence"]
    assert len(kept.content["units"]) == units
    event = AuditEvent.objects.get(event="node.report_flagged")
    assert words in event.after["flagged"]
    # A repeated report is recorded once.
    reports(node, units, **fields, host={"cpuCores": 2})
    assert InventoryReport.objects.filter(flagged__contains=words).count() == 1
    assert AuditEvent.objects.filter(event="node.report_flagged").count() == 1


@pytest.mark.parametrize(
    ("units", "fields"),
    [(3, {"sequence": 4}), (3, {"complete": False}), (0, {})],
    ids=["old", "partial", "none"],
)
def test_a_trouble_that_lasts_is_noted_once_whatever_its_reports_are_numbered(
    node: Node, units: int, fields: dict[str, Any], clock: Clock
) -> None:
    def noted() -> tuple[int, int]:
        return (
            InventoryReport.objects.exclude(flagged="").count(),
            AuditEvent.objects.filter(event="node.report_flagged").count(),
        )

    reports(node, 4, sequence=100)
    for number in range(3):
        said = {"sequence": 101 + number, **fields}
        if said["sequence"] < 100:
            said["sequence"] += number
        assert reports(node, units, **said, host={"diskFreeGb": number}).flagged
        assert noted() == (1, 1)
    # The same problem after a taken report is recorded again.
    assert not reports(node, 4, sequence=200).flagged
    clock.advance(61)
    assert reports(node, units, **{"sequence": 201, **fields}).flagged
    assert noted() == (2, 2)


def test_a_host_that_never_had_a_gpu_is_taken_as_it_is() -> None:
    bare = factories.node(factories.organization(is_provider=True), 0)
    taken = reports(bare, 0, host={"cpuCores": 16, "ramMb": 65536})
    assert (taken.flagged, taken.changed, taken.generation) == ("", True, 0)
    assert (bare.cpu_cores, bare.ram_mb) == (16, 65536)
    assert reports(bare, 1).generation == 1
    assert "no unit" in reports(bare, 0).flagged


def test_a_report_after_a_flagged_one_is_taken(node: Node) -> None:
    reports(node, 3, sequence=2, complete=False)
    assert reports(node, 3, sequence=3).generation == 2


def test_a_lost_unit_keeps_its_row_and_finds_it_again(node: Node) -> None:
    rows = {unit.address: unit.pk for unit in GpuUnit.objects.filter(node=node)}
    lost = factories.address(2)
    reports(node, [unit for unit in four() if unit["address"] != lost])
    gone = GpuUnit.objects.get(pk=rows[lost])
    assert gone.gone_at is not None
    assert gone.not_reservable_reason == "it is gone from the node"
    assert lost not in factories.units(node)
    taken = reports(node, 4)
    assert taken.generation == 3
    gone.refresh_from_db()
    assert gone.gone_at is None
    assert {unit.address: unit.pk for unit in GpuUnit.objects.filter(node=node)} == rows
    assert TopologyGeneration.objects.get(node=node, number=3).cause == f"{lost} is back"
    assert [row.number for row in TopologyGeneration.objects.filter(node=node)] == [3, 2, 1]


def test_each_generation_keeps_the_units_as_they_then_were(node: Node) -> None:
    reports(node, 3)
    reports(node, four()[1:])
    snapshots = {
        row.number: [unit["address"][5:7] for unit in row.units]
        for row in TopologyGeneration.objects.filter(node=node)
    }
    assert snapshots == {1: ["10", "11", "12", "13"], 2: ["10", "11", "12"], 3: ["11", "12", "13"]}


def test_generations_carry_the_time_of_the_change(node: Node, clock: Any) -> None:
    at = clock.freeze(database_clock.read() + dt.timedelta(hours=1))
    reports(node, 3)
    row = TopologyGeneration.objects.get(node=node, number=2)
    assert row.at == at
    assert row.report is not None
    assert row.report.received_at == at
    assert GpuUnit.objects.get(node=node, address=factories.address(3)).gone_at == at


def test_a_long_list_of_changes_is_cut_in_the_cause_and_whole_in_the_log(node: Node) -> None:
    reports(node, [factories.unit_report(n) for n in range(100, 140)])
    row = TopologyGeneration.objects.get(node=node, number=2)
    assert len(row.cause) <= 200
    event = AuditEvent.objects.get(event="node.topology_changed", after__generation=2)
    assert len(event.after["changes"]) == 44


def test_an_unknown_gpu_gets_a_hidden_placeholder_once(node: Node) -> None:
    reports(node, four(unit0=gpus("acme-q1")))
    reports(node, four(unit0=gpus("acme-q1"), unit1={"gpus": gpus("acme-q1")["gpus"]}))
    placeholder = GpuModel.objects.get(slug="acme-q1")
    assert placeholder.hidden
    assert "acme-q1" in placeholder.name
    assert GpuUnit.objects.filter(gpu_model=placeholder).count() == 2
    event = AuditEvent.objects.get(event="gpu_model.set", target_id=placeholder.pk)
    assert (event.actor, event.before, event.after["hidden"]) == (f"node:{node.pk}", None, True)


def test_gpus_of_a_unit_come_and_go(node: Node) -> None:
    reports(node, four(unit0=gpus(H100, H100)))
    assert Gpu.objects.filter(unit__node=node, unit__address=factories.address(0)).count() == 2
    reports(node, 4)
    kept = Gpu.objects.get(unit__node=node, unit__address=factories.address(0))
    assert kept.address == "0000:10:00.0"


@pytest.mark.parametrize("end", ["removed_at", "terminate_at"])
def test_a_node_that_was_removed_or_whose_end_has_come_reports_nothing_any_more(node: Node, end: str) -> None:
    setattr(node, end, database_clock.read())
    node.save()
    with pytest.raises(Invalid) as refusal:
        apply_inventory(node.pk, factories.report(3, sequence=9), actor=AGENT)
    assert refusal.value.code == "NODE_DECOMMISSIONED"
    with pytest.raises(NotFound):
        apply_inventory(NOWHERE, factories.report(3, sequence=9), actor=AGENT)


NOWHERE = uuid.UUID(int=0)


def test_what_a_driver_says_of_a_failure_never_keeps_the_report_out(node: Node) -> None:
    said = "\x1b[1mXid 79\x1b[0m:\x07 fell off the bus " + "x" * 500
    units = four(unit0=gpus(H100, healthy=False, failure=said, serial="\x07S1"))
    units[1] |= {"sellable": False, "notSellableReason": said}
    told = read(Inventory, factories.report(units, sequence=2, host={"cpuModel": f"EPYC\x00{said}"}))
    assert not apply_inventory(node.pk, told, actor=AGENT).flagged
    node.refresh_from_db()
    assert (len(node.cpu_model), node.cpu_model[:13]) == (128, "EPYCXid 79: f")
    gpu = Gpu.objects.get(unit__node=node, address="0000:10:00.0")
    assert gpu.failed_at is not None
    assert gpu.serial == "S1"
    reason = GpuUnit.objects.get(node=node, address=factories.address(1)).not_sellable_reason
    for text in (gpu.failure, reason):
        assert text.startswith("Xid 79: fell off the bus xxx")
        assert len(text) == 200


def test_units_of_two_nodes_may_share_an_address(node: Node) -> None:
    other = factories.node(factories.organization(), 4)
    assert factories.units(node) == factories.units(other)
    reports(other, 3)
    assert len(factories.units(node)) == 4
    node.refresh_from_db()
    assert node.topology_gen == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda report: report["units"].append(report["units"][0]),
        lambda report: report["units"][0]["gpus"].append(report["units"][0]["gpus"][0]),
        lambda report: report["units"][1].update(gpus=report["units"][0]["gpus"]),
        lambda report: report["units"][0]["gpus"].append(
            {"address": "0000:10:00.1", "model": "another", "healthy": True}
        ),
        lambda report: report["units"][0].update(gpus=[]),
        lambda report: report["units"][0].update(address="0000:04:00"),
        lambda report: report["units"][0].update(sellable="yes"),
        lambda report: report.update(sequence=0),
        lambda report: report.update(colour="red"),
        lambda report: report.pop("units"),
        lambda report: report["units"][0].pop("allocClass"),
    ],
)
def test_a_malformed_inventory_is_refused(change: Any) -> None:
    good = deepcopy(factories.report(2, sequence=1))
    Inventory().run_validation(deepcopy(good))
    change(good)
    with pytest.raises(ValidationError):
        Inventory().run_validation(good)
