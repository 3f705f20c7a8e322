"""Loading a fleet file: all of it is checked first, then each node is loaded in a transaction of its own."""

import copy
import datetime as dt
import json
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from nodes.models import GpuModel, GpuUnit, InventoryReport, Node, TopologyGeneration
from openrelay.audit.models import AuditEvent
from openrelay.audit.services.record import OPERATOR
from openrelay.core.clock import Now
from openrelay.identity.models import Organization
from reservations.models import Reservation
from reservations.services import booking, fleet_loading
from tests import factories

H100 = "nvidia-h100-sxm5-80gb"


def unit(number: int) -> dict[str, Any]:
    return factories.unit_report(number)


def fleet(*hostnames: str) -> dict[str, Any]:
    """A file with nodes of those names, of two units each."""
    model = {"slug": H100, "name": "H100", "manufacturer": "nvidia", "vramGb": 80, "prices": {"spot": 90}}
    return {
        "organizations": [{"slug": "northwind", "name": "Northwind"}],
        "locations": [
            {"slug": "osl-1", "name": "Oslo 1", "city": "Oslo", "country": "NO", "region": "eu-north"}
        ],
        "gpuModels": [model],
        "nodes": [
            {
                "hostname": name,
                "organization": "northwind",
                "location": "osl-1",
                "inventory": {"complete": True, "runtime": "qemu", "units": [unit(0), unit(1)]},
            }
            for name in hostnames
        ],
    }


def load(data: dict[str, Any], **options: Any) -> fleet_loading.Loaded:
    return fleet_loading.load(copy.deepcopy(data), actor=OPERATOR, **options)


def lockable(node_ids: list[UUID]) -> list[UUID]:
    """Those of the nodes that another connection sees, and could lock at once."""
    found: list[UUID] = []

    def look() -> None:
        try:
            with transaction.atomic():
                rows = Node.objects.select_for_update(skip_locked=True, no_key=True).filter(pk__in=node_ids)
                found.extend(rows.order_by("pk").values_list("pk", flat=True))
        finally:
            connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("again", [False, True])
def test_of_the_nodes_of_a_file_no_two_are_locked_at_once(
    monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    data = fleet("a", "b", "c")
    if again:
        load(data)
        for node in data["nodes"]:
            node["inventory"]["units"].append(unit(2))
    take, taken = fleet_loading.inventory.apply_inventory, []

    def watched(node_id: UUID, *args: Any, **kwargs: Any) -> Any:
        assert lockable(taken) == sorted(taken)
        done = take(node_id, *args, **kwargs)
        taken.append(node_id)
        return done

    monkeypatch.setattr(fleet_loading.inventory, "apply_inventory", watched)
    assert len(load(data).nodes) == 3
    assert len(taken) == 3


@pytest.mark.django_db
def test_loading_a_file_again_changes_nothing_and_a_changed_one_what_changed() -> None:
    data = fleet("a", "b")
    first = load(data)
    assert (first.enrolled, first.updated) == (2, 0)
    written = AuditEvent.objects.count()
    again = load(data)
    assert (again.enrolled, again.updated) == (0, 0)
    assert [node.pk for node in again.nodes] == [node.pk for node in first.nodes]
    assert AuditEvent.objects.count() == written
    data["nodes"][1]["inventory"]["units"].append(unit(2))
    assert load(data, update=False).updated == 0
    assert load(data).updated == 1
    assert [len(factories.units(node)) for node in first.nodes] == [2, 3]


@pytest.mark.django_db
def test_one_fault_and_nothing_is_loaded() -> None:
    data = fleet("a", "b")
    data["nodes"][1]["inventory"]["units"][0]["gpus"][0]["model"] = "unheard-of"
    with pytest.raises(fleet_loading.FleetFaults) as raised:
        load(data)
    (fault,) = raised.value.faults
    assert fault.startswith("nodes[1].inventory.units[0].gpus[0].model")
    assert not Node.objects.exists()
    assert not GpuModel.objects.exists()
    assert not Organization.objects.exists()


@pytest.mark.django_db
def test_a_node_whose_announced_end_has_come_is_a_fault_of_the_file(tmp_path: Path) -> None:
    data = fleet("a", "b")
    load(data)
    Node.objects.filter(hostname="b").update(terminate_at=Now() - dt.timedelta(seconds=1))
    for node in data["nodes"]:
        node["inventory"]["units"].append(unit(2))
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps(data))
    with pytest.raises(CommandError, match=r"nothing was changed(.|\n)*nodes\[1\]\.hostname: b"):
        call_command("load_fleet", str(file))
    assert [len(factories.units(node)) for node in Node.objects.all()] == [2, 2]
    # What is to be left as it is may be leaving.
    assert load(data, update=False).updated == 0


def saved(folder: Path, data: Any) -> str:
    """The path of a file that has `data`."""
    file = folder / "fleet.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(file)


def reserve(hostname: str) -> Reservation:
    """Reserve unit 0 of the node for another organization, from now on."""
    return booking.reserve(
        caller=factories.operator(),
        node_id=Node.objects.get(hostname=hostname).pk,
        unit_ids=[factories.address(0)],
        allowed_org_ids=[str(factories.organization().pk)],
        contract_ref="C-7",
    )


def facts() -> list[Any]:
    """Everything that loading could write."""
    models = (AuditEvent, Organization, GpuModel, Node, GpuUnit, InventoryReport, TopologyGeneration)
    return [list(model.objects.order_by("pk").values()) for model in models]


def statuses() -> list[str]:
    rows = Reservation.objects.with_status(Now()).order_by("created_at")
    return list(rows.values_list("status", flat=True))


FAULTS: list[tuple[Any, str]] = [
    (
        lambda d: d["nodes"][1]["inventory"]["units"][0].update(allocClass="vfio"),
        "units[0].allocClass 'vfio'",
    ),
    (
        lambda d: d["nodes"][1]["inventory"]["units"][0].update(address="0000:77:00.0"),
        "units[0].address 0000:77:00.0 is not a GPU of the unit",
    ),
    (
        lambda d: [each.update(iommuGroup=4) for each in d["nodes"][1]["inventory"]["units"]],
        "units[1].iommuGroup 4 is also the group of unit 0000:10:00.0",
    ),
    (
        lambda d: d["nodes"][1]["inventory"].update(runtime="runc"),
        "units[0].allocClass vfio-group is for VMs",
    ),
    (
        lambda d: d["nodes"][1]["inventory"].update(host={"diskTotalGb": 1, "diskFreeGb": 2}),
        "host.diskFreeGb is 2, more than diskTotalGb",
    ),
    (
        lambda d: d["nodes"][1]["inventory"]["units"][0]["gpus"][0].update(address="10"),
        "units[0].gpus[0].address '10' is not a PCI address",
    ),
    (lambda d: d["nodes"][1]["inventory"].update(colour="red"), "colour is not a field of this file"),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("change", "words"), FAULTS)
@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--yes",)])
def test_a_typing_error_is_refused_by_its_place_and_is_no_change_of_hardware(
    tmp_path: Path, change: Any, words: str, options: tuple[str, ...]
) -> None:
    data = fleet("a", "b")
    load(data)
    reserve("b")
    change(data)
    before = facts()
    with pytest.raises(CommandError) as raised:
        call_command("load_fleet", saved(tmp_path, data), *options)
    assert f"  nodes[1].inventory.{words}" in str(raised.value)
    assert "request" not in str(raised.value).replace("device-request", "")
    assert (facts(), statuses()) == (before, ["active"])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"nodes": [{"hostname": "a", "hostname": "b"}]}', "nodes[0].hostname is given twice"),
        ('{"nodes": [], "nodes": []}', "nodes is given twice"),
        ('{"nodes": [{"latitude": NaN}]}', "it has NaN"),
        ('{"nodes": [', "it is not JSON: line 1, column 12"),
        ("[" * 100_000, "nested too deep"),
        ("[]", "The file must be an object"),
        ('{"nodes": [7]}', "nodes[0] must be an object"),
    ],
)
def test_a_text_of_two_meanings_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(CommandError) as raised:
        call_command("load_fleet", saved(tmp_path, text))
    assert words in str(raised.value)


@pytest.mark.django_db
def test_a_name_in_another_spelling_is_the_same_thing(tmp_path: Path) -> None:
    data = fleet("gpu-07")
    load(data)
    before = facts()
    data["nodes"][0] |= {"hostname": "GPU-07.", "organization": "Northwind", "location": "OSL-1"}
    data["gpuModels"][0]["slug"] = f"{H100.upper()} "
    for each in data["nodes"][0]["inventory"]["units"]:
        each["address"] = f"0000{each['address'].upper()}"
    call_command("load_fleet", saved(tmp_path, data))
    assert facts() == before
    data["nodes"].append(copy.deepcopy(data["nodes"][0]) | {"hostname": "gpu-07"})
    with pytest.raises(CommandError) as raised:
        call_command("load_fleet", saved(tmp_path, data))
    assert "nodes[1].hostname gpu-07 is listed twice, also as nodes[0]" in str(raised.value)


@pytest.mark.django_db
def test_a_dry_run_prints_the_difference_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(fleet("a", "b"))
    found = reserve("a")
    data = fleet("a", "b", "c")
    data["gpuModels"].append({"slug": "new", "name": "New", "manufacturer": "amd", "vramGb": 8})
    data["nodes"][0]["inventory"]["units"] = [
        unit(1) | {"gpus": [{**unit(1)["gpus"][0], "model": "new"}]},
        unit(2),
    ]
    before = facts()
    call_command("load_fleet", saved(tmp_path, data), "--dry-run")
    assert (facts(), statuses()) == (before, ["active"])
    said = capsys.readouterr().out.splitlines()
    changes = f"0000:11:00.0 changed GPU model from {H100} to new; 0000:12:00.0 is new; 0000:10:00.0 is gone"
    assert said[:4] == [
        "New GPU models: new",
        f"nodes[0] a of northwind: {changes}",
        "nodes[2] c of northwind: new, with 2 units",
        f"nodes[0] a: reservation {found.pk} (active, contract C-7) would need review: {changes}",
    ]
    assert (
        "1 nodes to enrol, 1 to update, 1 to leave as they are, 1 reservations to send to review" in said[4]
    )
    # The load does what the dry run said.
    call_command("load_fleet", saved(tmp_path, data), "--yes")
    generation = TopologyGeneration.objects.get(node__hostname="a", number=2)
    assert (generation.cause, statuses()) == (changes, ["needs-review"])


@pytest.mark.django_db
def test_a_load_that_would_send_a_reservation_to_review_stops(tmp_path: Path) -> None:
    load(fleet("a", "b"))
    found = reserve("b")
    data = fleet("a", "b", "c")
    for node in data["nodes"]:
        node["inventory"]["units"].append(unit(2))
    before = facts()
    with pytest.raises(CommandError) as raised:
        call_command("load_fleet", saved(tmp_path, data))
    assert f"nodes[1] b: reservation {found.pk} (active, contract C-7)" in str(raised.value)
    assert "--yes" in str(raised.value)
    assert (facts(), statuses()) == (before, ["active"])
    # A reservation that is in review already needs no consent.
    call_command("load_fleet", saved(tmp_path, data), "--yes")
    assert statuses() == ["needs-review"]
    data["nodes"][1]["inventory"]["units"].append(unit(3))
    call_command("load_fleet", saved(tmp_path, data))


@pytest.mark.django_db
def test_a_reservation_that_is_made_meanwhile_stops_its_node_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = fleet("a", "b")
    load(data)
    for node in data["nodes"]:
        node["inventory"]["units"].append(unit(2))
    made = fleet_loading._load_catalog

    def reserved_meanwhile(*args: Any) -> None:
        made(*args)
        reserve("a")

    monkeypatch.setattr(fleet_loading, "_load_catalog", reserved_meanwhile)
    with pytest.raises(CommandError, match=r"nodes\[0\]\.inventory would send to review: reservation"):
        call_command("load_fleet", saved(tmp_path, data))
    counts = [len(factories.units(node)) for node in Node.objects.order_by("hostname")]
    assert (counts, statuses()) == ([2, 3], ["active"])


@pytest.mark.django_db
def test_a_node_that_does_not_take_its_sequence_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = fleet("a", "b")
    load(data)
    Node.objects.filter(hostname="b").update(inventory_sequence=9)
    for node in data["nodes"]:
        node["inventory"]["units"].append(unit(2))
        node["inventory"]["sequence"] = 5
    with pytest.raises(CommandError, match=r"nodes\[1\]\.inventory\.sequence is refused by b: it is older"):
        call_command("load_fleet", saved(tmp_path, data))
    assert [len(factories.units(node)) for node in Node.objects.order_by("hostname")] == [2, 2]

    # The node reported something newer while the file was loaded: that node fails, visibly.
    Node.objects.filter(hostname="b").update(inventory_sequence=4)
    made = fleet_loading._load_catalog

    def reported_meanwhile(*args: Any) -> None:
        made(*args)
        Node.objects.filter(hostname="b").update(inventory_sequence=9)

    monkeypatch.setattr(fleet_loading, "_load_catalog", reported_meanwhile)
    with pytest.raises(CommandError, match=r"nodes\[1\]\.inventory\.sequence is refused by b: it is older"):
        call_command("load_fleet", saved(tmp_path, data))
    assert [len(factories.units(node)) for node in Node.objects.order_by("hostname")] == [3, 2]
    assert InventoryReport.objects.filter(node__hostname="b").exclude(flagged="").count() == 1
