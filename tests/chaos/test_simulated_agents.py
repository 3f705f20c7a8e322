"""The process that plays the agents: changed hardware is sent at once, and nothing said is forgotten."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from compute.simulation.process import AlreadyRunning, Simulation
from openrelay.demo.hardware import Hardware

NODE = "node-1"
RUN = "run-1"


class ControlPlane:
    """Hears what the agents say; `runs` is the work it gives them, `down` makes it answer 503."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.runs: list[dict[str, Any]] = []
        self.down = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            return httpx.Response(503, json={})
        path = request.url.path.removeprefix("/v1/agent/")
        if path == "work":
            return httpx.Response(200, json={"runs": self.runs})
        self.said.append((path, json.loads(request.content)))
        return httpx.Response(200, json={})

    def inventories(self) -> list[list[str]]:
        """The units of each inventory that came."""
        return [
            [unit["address"] for unit in body["units"]] for path, body in self.said if path == "inventory"
        ]

    def states(self) -> list[str]:
        """What was said of the one run, report by report."""
        return [
            body["guests"][0]["state"] for path, body in self.said if path == "reports" and body["guests"]
        ]


@pytest.fixture
def plane() -> ControlPlane:
    return ControlPlane()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    inventory = {"complete": True, "units": [{"address": "a"}, {"address": "b"}]}
    entry = {"nodeId": NODE, "hostname": "host-1", "credential": "secret", "inventory": inventory}
    (tmp_path / "agents.json").write_text(json.dumps([{**entry, "bootSeconds": 0, "stopSeconds": 0}]))
    return tmp_path


@pytest.fixture
def simulation(home: Path, plane: ControlPlane) -> Iterator[Simulation]:
    simulation = started(home, plane)
    yield simulation
    simulation.close()


def started(home: Path, plane: ControlPlane) -> Simulation:
    http = httpx.Client(transport=httpx.MockTransport(plane))
    return Simulation(home / "agents.json", home / "guests.json", base_url="http://control", http=http)


def wanted(desired: str = "running") -> dict[str, Any]:
    return {"runId": RUN, "desired": desired, "units": [{"address": "a"}], "waitsFor": []}


def test_the_inventory_is_sent_once_and_again_when_the_hardware_changes(
    home: Path, plane: ControlPlane, simulation: Simulation
) -> None:
    simulation.turn()
    simulation.turn()
    assert plane.inventories() == [["a", "b"]]
    with Hardware(home).without(NODE, "b"):
        simulation.turn()
        assert plane.inventories()[1:] == [["a"]]
    simulation.turn()
    assert plane.inventories()[2:] == [["a", "b"]]


def test_a_change_that_could_not_be_sent_is_sent_when_the_control_plane_is_back(
    home: Path, plane: ControlPlane, simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation.turn()
    plane.down = True
    with Hardware(home).without(NODE, "b"):
        simulation.turn()
        plane.down = False
        monkeypatch.setattr("compute.simulation.process.time.monotonic", lambda: 1e12)
        simulation.turn()
    assert plane.inventories() == [["a", "b"], ["a"]]


def test_hardware_that_an_interrupted_tour_changed_is_put_back(home: Path) -> None:
    whole = json.loads((home / "agents.json").read_text())
    cut = Hardware(home).without(NODE, "b")
    cut.__enter__()  # and nobody leaves it again
    assert Hardware(home).units(NODE) == {"a"}
    assert (home / "agents.json").stat().st_mode & 0o777 == 0o600
    assert (home / "agents.before-tour.json").stat().st_mode & 0o777 == 0o600
    assert Hardware(home).restore() == [NODE]
    assert json.loads((home / "agents.json").read_text()) == whole
    assert Hardware(home).restore() == []


def test_what_was_said_of_a_guest_is_remembered_before_it_is_said(
    home: Path, plane: ControlPlane, simulation: Simulation
) -> None:
    plane.runs = [wanted()]
    simulation.turn()
    assert plane.states() == ["running"]
    remembered = json.loads((home / "guests.json").read_text())[NODE]
    assert remembered["guests"][RUN]["state"] == "running"
    assert remembered["sequence"] == plane.said[-1][1]["sequence"]


def test_an_agent_that_was_killed_finds_its_guests_again(home: Path, plane: ControlPlane) -> None:
    first = started(home, plane)
    plane.runs = [wanted()]
    first.turn()
    with pytest.raises(AlreadyRunning):
        started(home, plane)
    first.close()  # as its end would: the lock is the kernel's
    second = started(home, plane)
    second.turn()
    assert plane.states() == ["running", "running"]
    plane.runs = [wanted("gone")]
    second.turn()
    plane.runs = []
    second.turn()
    second.close()
    assert plane.states()[2:] == ["gone"]
    numbers = [body["sequence"] for _, body in plane.said]
    assert numbers == sorted(set(numbers))
