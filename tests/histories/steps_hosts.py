"""Steps of nodes: what their agents say, and what their owners want."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

from tests.histories.asking import Asking, Call
from tests.histories.facts import Host, Unit
from tests.histories.people import Model
from tests.histories.real import MODELS


class HostSteps(Asking):
    """Steps of nodes: what their agents say, and what their owners want."""

    def _report(
        self, node: str, guests: Sequence[tuple[str, str, str]], sequence: int, complete: bool
    ) -> Call:
        said = [{"runId": run, "state": state, "message": message} for run, state, message in guests]
        body = {"sequence": sequence, "complete": complete, "guests": said}
        return Call(
            f"{node} reports {body}",
            lambda: self.real.ask("POST", "/v1/agent/reports", node, body),
            lambda model, seen: model.report(seen, node, guests, sequence=sequence, complete=complete),
        )

    def obey(self, number: int) -> Call | None:
        """The agent does what it is asked to, and says so."""
        node = self.one(self.model.nodes, number)
        guests, busy = [], set()
        for run in self.model.open_runs(node):
            if not run.wanted:
                guests.append((run.id, "gone", ""))
            elif not run.units & busy:
                guests.append((run.id, "running", ""))
            busy |= run.units
        return self._report(node, guests, self.model.nodes[node].said + 1, True)

    def say(self, number: int, said: Sequence[tuple[int, str, str]], how: str) -> Call | None:
        """The agent says whatever it says, of its own runs and now and then of another's."""
        node = self.one(self.model.nodes, number)
        runs = [run.id for run in reversed(list(self.model.runs.values())) if run.node == node]
        runs = runs or list(self.model.runs)
        guests = {self.one(runs, of): (state, message) for of, state, message in said if runs}
        last = self.model.nodes[node].said
        sequence = max(1, {"same": last, "older": last - 1}.get(how, last + 1))
        return self._report(node, [(run, *what) for run, what in guests.items()], sequence, how != "partial")

    def inventory(self, number: int, of: int, change: str, how: str) -> Call | None:
        node_id = self.one(self.model.nodes, number)
        node = self.model.nodes[node_id]
        units = copy.deepcopy({n: unit for n, unit in node.units.items() if unit.present})
        picked = self.one(node.units, of)
        unit: Unit = copy.deepcopy(node.units[picked])
        unit.present = True
        if change == "gone":
            units.pop(picked, None)
        elif change == "alone":
            units = {picked: unit}
        elif change == "empty":
            units = {}
        elif change != "none":
            if change == "unhealthy":
                unit.healthy = not unit.healthy
            elif change == "model":
                other = MODELS[1] if node.runtime == "qemu" else MODELS[2]
                unit.model = other if unit.model == MODELS[0] else MODELS[0]
            elif change == "class":
                usual = "vfio-group" if node.runtime == "qemu" else "device-request"
                unit.klass = "mdev" if unit.klass == usual else usual
            elif change == "unsold":
                unit.sellable = not unit.sellable
            elif change == "size":
                unit.gpus = 3 - unit.gpus
            units[picked] = unit
        return self._has(node_id, dict(sorted(units.items())), node.host, how)

    def figures(self, number: int, host: Host, how: str) -> Call | None:
        """The node tells what else its host has."""
        node_id = self.one(self.model.nodes, number)
        units = {n: unit for n, unit in self.model.nodes[node_id].units.items() if unit.present}
        return self._has(node_id, copy.deepcopy(units), host, how)

    def _has(self, node_id: str, units: dict[int, Unit], host: Host, how: str) -> Call:
        node = self.model.nodes[node_id]
        sequence = max(1, {"same": node.sequence, "older": node.sequence - 1}.get(how, node.sequence + 1))
        complete = how != "partial"
        return Call(
            f"{node_id} has {units}, {host} ({how})",
            lambda: self.real.inventory(node_id, units, host, sequence=sequence, complete=complete),
            lambda model, seen: model.inventory(
                seen, node_id, units, host, sequence=sequence, complete=complete
            ),
        )

    def set_status(self, number: int, status: str, by: int | str) -> Call | None:
        return self._on_node(
            number, by, "PATCH", "", {"status": status}, lambda *told: Model.set_status(*told, status)
        )

    def offboard(self, number: int, seconds: int, by: int | str) -> Call | None:
        body = {"noticeSeconds": seconds}
        return self._on_node(
            number, by, "POST", "/offboard", body, lambda *told: Model.offboard(*told, seconds)
        )

    def _on_node(
        self, number: int, by: int | str, method: str, rest: str, body: Any, told: Callable[..., None]
    ) -> Call | None:
        node = self.one(self.model.nodes, number)
        asker = self.asker(by, self.model.nodes[node].owner)
        org = self.model.credentials[asker].org
        path = self.real.org_path(org, f"provider/nodes/{node}{rest}")
        return Call(
            f"{asker}: {method} {node}{rest} {body}",
            lambda: self.real.ask(method, path, asker, body),
            lambda model, seen: told(model, seen, asker, org, node),
        )

    def notice(self, number: int, seconds: int) -> Call | None:
        node = self.one(self.model.nodes, number)
        return Call(
            f"{node} will end in {seconds} s",
            lambda: self.real.ask("POST", "/v1/nodes/termination-notice", node, {"noticeSeconds": seconds}),
            lambda model, seen: model.notice(seen, node, seconds),
        )
