"""Canonical names of hardware: every spelling finds the same row, and constraints forbid other spellings."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction
from rest_framework.test import APIClient

from nodes.models import Gpu, GpuModel, GpuUnit, Location, Node, TopologyGeneration
from nodes.services import catalog, enrolment
from nodes.services.inventory import apply_inventory
from openrelay.audit.actor import Actor
from openrelay.core.errors import Invalid
from tests import factories

pytestmark = pytest.mark.django_db

AGENT = Actor("node:test")
H100 = "nvidia-h100-sxm5-80gb"


@pytest.fixture
def node() -> Node:
    return factories.node(factories.organization(), 2)


def report(node: Node, units: list[dict[str, Any]], **fields: Any) -> Any:
    """Post an inventory report with `units` as the node's agent, and return the response."""
    node.refresh_from_db()
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {enrolment.issue_credential(actor=AGENT, node=node)}")
    body = {"sequence": node.inventory_sequence + 1, "units": units, **fields}
    return client.post("/v1/agent/inventory", body, format="json")


def respelled(change: Callable[[str], str], number: int = 2) -> list[dict[str, Any]]:
    """Build reports of the first `number` units, with `change` applied to every address."""
    units = [factories.unit_report(n) for n in range(number)]
    for unit in units:
        unit["address"] = change(unit["address"])
        for gpu in unit["gpus"]:
            gpu["address"] = change(gpu["address"])
    return units


@pytest.mark.parametrize(
    "change",
    [
        lambda address: f"0000{address}",
        lambda address: address.upper(),
        lambda address: address.removeprefix("0000:"),
    ],
)
def test_a_units_address_in_another_spelling_is_the_same_unit(
    node: Node, change: Callable[[str], str]
) -> None:
    answer = report(node, respelled(change))
    assert answer.status_code == 200, answer.content
    assert answer.json()["topologyGen"] == 1
    assert factories.units(node) == [factories.address(0), factories.address(1)]
    assert GpuUnit.objects.filter(node=node).count() == 2
    assert Gpu.objects.filter(unit__node=node).count() == 2


def test_one_unit_in_two_spellings_is_listed_twice(node: Node) -> None:
    units = [factories.unit_report(0), *respelled(lambda address: f"0000{address}", 1)]
    answer = report(node, units)
    assert answer.status_code == 400
    assert "units[1].address 0000:10:00.0 is listed twice" in answer.json()["error"]


def test_a_domain_above_ffff_is_kept(node: Node) -> None:
    unit = {"address": "00010000:10:00.0", "gpus": [{"address": "10000:10:00.0", "model": H100}]}
    answer = report(node, [{**factories.unit_report(0), **unit}, factories.unit_report(1)])
    assert answer.json() == {"topologyGen": 2, "changed": True}
    assert factories.units(node) == ["0000:11:00.0", "10000:10:00.0"]


def test_a_models_slug_in_capitals_is_no_new_model(node: Node) -> None:
    answer = report(node, [factories.unit_report(n, model=f"{H100.upper()} ") for n in range(2)])
    assert answer.json()["topologyGen"] == 1
    assert GpuModel.objects.count() == 1


def test_two_units_of_one_iommu_group_are_refused_and_impossible(node: Node) -> None:
    answer = report(node, [factories.unit_report(n, iommuGroup=7) for n in range(2)])
    assert answer.status_code == 400
    assert "units[1].iommuGroup 7 is also the group of unit 0000:10:00.0" in answer.json()["error"]
    with pytest.raises(IntegrityError, match="unit_iommu_group_once"), transaction.atomic():
        GpuUnit.objects.filter(node=node).update(iommu_group=7)


def test_iommu_groups_may_change_places_between_units(node: Node) -> None:
    report(node, [factories.unit_report(n, iommuGroup=n) for n in range(2)])
    answer = report(node, [factories.unit_report(n, iommuGroup=1 - n) for n in range(2)])
    assert answer.json() == {"topologyGen": 1, "changed": True}
    rows = GpuUnit.objects.filter(node=node).order_by("address").values_list("iommu_group", flat=True)
    assert list(rows) == [1, 0]
    # A group can also move from a unit that is gone to a new one.
    answer = report(node, [factories.unit_report(1, iommuGroup=0), factories.unit_report(2, iommuGroup=1)])
    assert answer.json()["topologyGen"] == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r["units"][0].update(allocClass="vfio"), "units[0].allocClass 'vfio' is not a class"),
        (
            lambda r: r["units"][0].update(address="0000:77:00.0"),
            "units[0].address 0000:77:00.0 is not a GPU of the unit",
        ),
        (
            lambda r: r["units"][1].update(address="0000:10:00"),
            "units[1].address '0000:10:00' is not a PCI address of the form dddd:bb:dd.f",
        ),
        (
            lambda r: r.update(runtime="runc"),
            "units[0].allocClass vfio-group is for VMs, and the runtime is runc",
        ),
        (
            lambda r: r.update(host={"diskTotalGb": 100, "diskFreeGb": 101}),
            "host.diskFreeGb is 101, more than diskTotalGb, which is 100",
        ),
        (lambda r: r["units"][1].update(gpus=r["units"][0]["gpus"]), "units[1].gpus[0].address 0000:10:00.0"),
        (
            lambda r: r["units"][0]["gpus"].append({"address": "0000:10:00.1", "model": "another"}),
            "units[0].gpus are of the models another, nvidia-h100-sxm5-80gb",
        ),
        (
            lambda r: r["units"][0]["gpus"][0].update(model="NVIDIA H100"),
            "units[0].gpus[0].model 'NVIDIA H100' is not lower-case letters",
        ),
    ],
)
def test_a_contradiction_is_refused_by_its_place_and_changes_nothing(
    node: Node, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    data: dict[str, Any] = {"units": [factories.unit_report(n) for n in range(2)]}
    change(data)
    answer = report(node, **data)
    assert answer.status_code == 400, answer.content
    assert words in answer.json()["error"]
    node.refresh_from_db()
    assert node.topology_gen == 1


def test_a_class_that_is_not_for_sale_may_be_any(node: Node) -> None:
    units = [factories.unit_report(0), factories.unit_report(1, allocClass="mdev", sellable=False)]
    assert report(node, units).json()["topologyGen"] == 2


def test_what_a_report_leaves_out_is_compared_as_the_node_has_it(node: Node) -> None:
    units = [factories.unit_report(n) for n in range(2)]
    report(node, units, host={"diskTotalGb": 100, "diskFreeGb": 50})
    answer = report(node, units, host={"diskFreeGb": 101})
    assert (answer.status_code, "host.diskFreeGb is 101" in answer.json()["error"]) == (400, True)
    assert report(node, units, host={"diskTotalGb": 40}).status_code == 200
    node.refresh_from_db()
    assert (node.disk_total_gb, node.disk_free_gb) == (40, 40)
    Node.objects.filter(pk=node.pk).update(runtime="runc")
    answer = report(node, units)
    assert (answer.status_code, "the runtime is runc" in answer.json()["error"]) == (400, True)


def test_a_host_name_in_another_spelling_is_the_same_node() -> None:
    org = factories.organization()
    first = enrolment.enrol_node(actor=AGENT, organization_id=org.pk, hostname="GPU-07.Example.net.")
    assert first.hostname == "gpu-07.example.net"
    with pytest.raises(IntegrityError, match="node_hostname_once"), transaction.atomic():
        enrolment.enrol_node(actor=AGENT, organization_id=org.pk, hostname="gpu-07.example.NET")
    with pytest.raises(Invalid, match="is not a host name"):
        enrolment.enrol_node(actor=AGENT, organization_id=org.pk, hostname="gpu 07")


def test_a_slug_of_the_catalogue_in_another_spelling_is_the_same_row() -> None:
    fields = {"name": "Oslo", "city": "Oslo", "country": "NO", "region": "eu-north"}
    first = catalog.set_location("osl-1", fields, actor=AGENT)
    assert catalog.set_location(" OSL-1", {**fields, "name": "Oslo 1"}, actor=AGENT).pk == first.pk
    assert Location.objects.get().name == "Oslo 1"
    with pytest.raises(Invalid, match="slug 'osl 1' is not"):
        catalog.set_location("osl 1", fields, actor=AGENT)


@pytest.mark.parametrize(
    ("spelling", "name"), [("nvidia", "NVIDIA"), ("Amd ", "AMD"), ("INTEL", "Intel"), ("Acme", "Acme")]
)
def test_a_maker_is_named_as_it_names_itself(spelling: str, name: str) -> None:
    fields = {"name": "X", "vram_gb": 8, "manufacturer": spelling}
    assert catalog.set_gpu_model("x", fields, actor=AGENT).manufacturer == name


@pytest.mark.parametrize(
    ("model", "fields", "constraint"),
    [
        (GpuUnit, {"address": "0000:AB:00.0"}, "unit_address_canonical"),
        (Gpu, {"address": "00000000:10:00.0"}, "gpu_address_canonical"),
        (Node, {"hostname": "Node."}, "node_hostname_canonical"),
        (GpuModel, {"slug": "H100"}, "gpu_model_slug_canonical"),
    ],
)
def test_another_spelling_cannot_be_stored(
    node: Node, model: Any, fields: dict[str, str], constraint: str
) -> None:
    row = model.objects.order_by("pk").first()
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        model.objects.filter(pk=row.pk).update(**fields)


def test_rows_of_before_get_their_canonical_names(node: Node) -> None:
    model = GpuModel.objects.get(slug=H100)
    old = ("unit_address_canonical", "unit_iommu_group_once", "gpu_address_canonical")
    names = ("node_hostname_canonical", "gpu_model_slug_canonical")
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("DROP INDEX unit_iommu_group_once")
        for table, name in (
            ("nodes_gpuunit", old[0]),
            ("nodes_gpu", old[2]),
            ("nodes_node", names[0]),
            ("nodes_gpumodel", names[1]),
        ):
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")

    def add(address: str, **fields: Any) -> GpuUnit:
        row = {"alloc_class": "vfio-group", "gpu_model": model, "gpu_count": 1, **fields}
        unit = GpuUnit.objects.create(node=node, address=address, **row)
        Gpu.objects.create(unit=unit, address=address)
        return unit

    again, other = add("00000000:10:00.0"), add("0000000a:12:00.0")
    shared = [add("0000:30:00.0", iommu_group=3), add("0000:31:00.0", iommu_group=3)]
    capitals = GpuModel.objects.create(slug="A100 SXM4 ", name="x", manufacturer="x", vram_gb=1)
    twice = GpuModel.objects.create(slug=H100.upper(), name="x", manufacturer="x", vram_gb=1)
    host = factories.node(node.organization, 1)
    Node.objects.filter(pk=host.pk).update(hostname=f"{node.hostname.upper()}.")

    migration = importlib.import_module("nodes.migrations.0004_canonical_identities")
    with connection.schema_editor(atomic=False) as editor:
        migration.rename(apps, editor)

    for row in (again, other, *shared, capitals, twice, host):
        row.refresh_from_db()
    assert (other.address, other.gone_at) == ("000a:12:00.0", None)
    assert again.gone_at is not None
    assert [unit.gone_at is None for unit in shared] == [True, False]
    assert Gpu.objects.get(unit=other).address == "000a:12:00.0"
    assert capitals.slug == "a100-sxm4"
    assert twice.slug.startswith(f"{H100}-")
    assert host.hostname.startswith(f"{node.hostname}-")
    generation = TopologyGeneration.objects.get(node=node, number=2)
    assert "00000000:10:00.0 is gone: it is 0000:10:00.0" in generation.cause
    assert "0000:31:00.0 is gone: IOMMU group 3 is of 0000:30:00.0" in generation.cause
    node.refresh_from_db()
    assert node.topology_gen == 2
    # The next report finds the units by their canonical addresses.
    units = [factories.unit_report(n) for n in range(2)]
    assert apply_inventory(node.pk, {"sequence": 99, "complete": True, "units": units}, actor=AGENT).changed
    assert factories.units(node) == [factories.address(0), factories.address(1)]
