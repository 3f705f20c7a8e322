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

from nodes.models import GpuModel, Node
from openrelay.audit.models import AuditEvent
from openrelay.audit.services.record import OPERATOR
from openrelay.clock import Now
from openrelay.identity.models import Organization
from reservations.services import fleet_loading
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
    take, taken = fleet_loading.inventory.take, []

    def watched(node_id: UUID, *args: Any, **kwargs: Any) -> Any:
        assert lockable(taken) == sorted(taken)
        done = take(node_id, *args, **kwargs)
        taken.append(node_id)
        return done

    monkeypatch.setattr(fleet_loading.inventory, "take", watched)
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
