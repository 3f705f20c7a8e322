"""Changing what a simulated node is made of, and putting it back, whatever happens in between."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Hardware:
    """The hosts that the home's simulated agents play, by their entries in `agents.json`.

    While a unit is away, the host as it was is kept in a file beside; whoever finds that file after a crash
    can restore the host from it.
    """

    def __init__(self, home: Path) -> None:
        self.path = home / "agents.json"
        self.kept = home / "agents.before-tour.json"

    def hostname(self, node_id: str) -> str:
        """What the node calls itself."""
        return str(self._entry(self._agents(), node_id).get("hostname", node_id))

    def restore(self) -> list[str]:
        """Put back what was left away; returns the ids of the nodes that this changed."""
        if not self.kept.exists():
            return []
        before = json.loads(self.kept.read_text())
        agents = self._agents()
        changed = []
        for entry in agents:
            whole = before.get(entry["nodeId"], entry["inventory"])
            if entry["inventory"] != whole:
                entry["inventory"] = whole
                changed.append(entry["nodeId"])
        if changed:
            _write(self.path, agents)
        self.kept.unlink()
        return changed

    def units(self, node_id: str) -> set[str]:
        """The addresses of the units that the host is made of now."""
        return {unit["address"] for unit in self._entry(self._agents(), node_id)["inventory"]["units"]}

    @contextmanager
    def without(self, node_id: str, address: str) -> Iterator[None]:
        """While this lasts, the node's agent does not find that unit."""
        agents = self._agents()
        inventory = self._entry(agents, node_id)["inventory"]
        _write(self.kept, {node_id: inventory})
        self._entry(agents, node_id)["inventory"] = {
            **inventory,
            "units": [unit for unit in inventory["units"] if unit["address"] != address],
        }
        _write(self.path, agents)
        try:
            yield
        finally:
            self.restore()

    def _agents(self) -> list[dict[str, Any]]:
        agents: list[dict[str, Any]] = json.loads(self.path.read_text())
        return agents

    @staticmethod
    def _entry(agents: list[dict[str, Any]], node_id: str) -> dict[str, Any]:
        return next(entry for entry in agents if entry["nodeId"] == node_id)


def _write(path: Path, content: Any) -> None:
    """Write for the owner alone, in one step: an agent never reads half a file."""
    draft = path.with_name(f".{path.name}.tour")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
    draft.replace(path)
