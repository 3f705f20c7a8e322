"""The model: what nodes say and do, what their owners want of them, and what the clock calls for."""

import copy
import datetime as dt
from collections.abc import Sequence

from tests.histories.contracts import Contracts
from tests.histories.facts import (
    CLASS_OF,
    ENDED,
    GRACE,
    LIVE,
    POD,
    UP,
    VM,
    Host,
    Node,
    Run,
    Seen,
    Unit,
    Workload,
    require,
)
from tests.histories.rights import MALFORMED, NOT_THERE, STATE

GIVE_UP = dt.timedelta(days=7)
HEARTBEAT = dt.timedelta(seconds=3)
REMOVED = (400, "NODE_DECOMMISSIONED")
FAILURES = {
    "failed": "the guest failed",
    "gone": "the guest is gone from its node",
    "never-started": "the guest could not be started",
}


class Hosts(Contracts):
    """Agents, owners and the clock."""

    def add_node(
        self,
        node_id: str,
        owner: str,
        runtime: str,
        interruptible: bool,
        units: dict[int, Unit],
        host: Host,
        region: str | None,
    ) -> None:
        """A node that was enrolled there and has reported that host and those units."""
        node = Node(node_id, owner, runtime, interruptible, copy.deepcopy(units), self.now, content=None)
        node.content = (copy.deepcopy(units), host, True)
        node.host, node.region = host, region
        self.nodes[node_id] = node

    def hear(self, node_id: str, level: int | None = None) -> None:
        """The agent spoke, of that level, or of the same as before."""
        node = self.nodes[node_id]
        self._notice_silence(node)
        if node.seen <= self.now - HEARTBEAT or level not in (None, node.level):
            node.seen = self.now
        node.level = level or node.level

    def _notice_silence(self, node: Node) -> None:
        """What deploys or runs on a node that fell silent is interrupted."""
        if node.removed or self.online(node):
            return
        for workload in self.workloads.values():
            if workload.node == node.id and workload.status in ("deploying", "running"):
                self._interrupt(workload, "node_lost")

    # What operators do at the server

    def set_infiniband(self, org: str, on: bool) -> None:
        """Whether the organization's pods get addresses from now on."""
        self.infiniband = self.infiniband | {org} if on else self.infiniband - {org}

    def join(self, node_id: str, on: bool) -> None:
        """Whether the node is on the fabric from now on; who has an address keeps it for its run."""
        self.nodes[node_id].fabric = on

    # Hardware

    def inventory(
        self, seen: Seen, node_id: str, units: dict[int, Unit], host: Host, *, sequence: int, complete: bool
    ) -> None:
        """A report of what the node has; only what is newer, whole and not empty counts. One that contradicts
        itself is refused.
        """
        self.hear(node_id)
        node = self.nodes[node_id]
        contradicts = any(unit.sellable and unit.klass not in CLASS_OF.values() for unit in units.values())
        if seen.refused([REMOVED] * node.removed + [MALFORMED] * contradicts):
            return
        content = (units, host, complete)
        doubtful = sequence <= node.sequence or not complete or not units
        if doubtful and (sequence, content) == (node.sequence, node.content):
            doubtful = False  # the same again
        elif not doubtful:
            node.sequence = sequence
            self._takes(node, units)
            node.host = node.host.told(host)
            node.content = copy.deepcopy(content)
        require(("flagged" in seen.body) == doubtful, f"doubtful: {doubtful}, answered {seen.body}")
        require(seen.body["topologyGen"] == node.generation, f"answered {seen.body}, not {node.generation}")

    def _takes(self, node: Node, units: dict[int, Unit]) -> None:
        def topology(of: dict[int, Unit]) -> dict[int, tuple[int, str, str]]:
            return {number: (u.gpus, u.model, u.klass) for number, u in of.items() if u.present}

        before = topology(node.units)
        for number, unit in node.units.items():
            if number not in units:
                unit.present = False
        for number, unit in units.items():
            node.units[number] = copy.deepcopy(unit)
        if topology(node.units) != before:
            node.generation += 1

    # Guests

    def report(
        self,
        seen: Seen,
        node_id: str,
        guests: Sequence[tuple[str, str, str]],
        *,
        sequence: int,
        complete: bool,
    ) -> None:
        """What the agent says of runs: each with its state and a message. Only these are touched, and only
        if the report is newer than the last and whole.
        """
        self.hear(node_id)
        seen.refused([])
        node = self.nodes[node_id]
        if sequence <= node.said or not complete:
            return
        node.said = sequence
        for run_id, state, message in guests:
            run = self.runs.get(run_id)
            if run is not None and run.node == node_id:
                self._hears_of(seen, run, state, message)
        for workload in self.workloads.values():
            if workload.node == node_id and workload.status == "pending" and not self._waits(workload):
                workload.status, workload.reason = "deploying", ""

    def _waits(self, workload: Workload) -> bool:
        """Whether an earlier run may still be on one of its units."""
        first = next(iter(self.open_runs(workload.node, workload.claims)), None)
        return first is not None and not (first.workload == workload.id and first.wanted)

    def _hears_of(self, seen: Seen, run: Run, state: str, message: str) -> None:
        workload = self.workloads[run.workload]
        if not run.open:
            if state in LIVE:  # it is there after all, and is to go
                run.open, run.wanted = True, False
                run.observed, run.message = state, message
            return
        back = state == "running" and workload.status == "interrupted" and run.wanted
        if (run.observed, run.message) == (state, message) and not back:
            return
        ran = run.observed == "running"
        run.observed, run.message = state, message
        if state in ENDED:
            run.open = False
            # Its address is another's once no guest of the pod may be there any more.
            if not any(other.open for other in self.runs_of(workload)):
                self.leases.pop(workload.id, None)
        if not run.wanted:
            return
        if self.gone(self.nodes[run.node]):
            if state in ENDED and workload.status in UP:
                self.end(workload, "terminated", "node_removed")
            return
        if state in LIVE:
            if workload.status == "pending":
                workload.status, workload.reason = "deploying", ""
            if state == "running" and workload.status in ("deploying", "interrupted"):
                self.becomes_running(workload)
        elif workload.kind == POD and state == "gone" and workload.status in ("running", "interrupted"):
            self._starts_again(seen, workload, run)
        elif workload.status in UP:
            self._guest_ended(workload, state, message, ran=ran)

    def _starts_again(self, seen: Seen, pod: Workload, lost: Run) -> None:
        """A pod that lost its job is started again where it was."""
        if pod.status == "running":
            self._interrupt(pod, "its job was lost")
        pod.lost = True
        placed = self._placed(seen, pod.id, lost.number + 1)
        require(placed.units == pod.claims.keys(), "a pod is started again on what it has")
        self.begin_run(pod, placed, lost.number + 1)
        self.connect(self.nodes[pod.node], pod.org, pod.id)

    def _guest_ended(self, workload: Workload, state: str, message: str, *, ran: bool) -> None:
        coming = workload.status in ("pending", "deploying")
        if workload.kind == POD and (coming or (state != "stopped" and not ran)):
            said = message or "its node gave no reason"
            self.end(workload, "failed", f"container failed to start: {said}")
        elif state == "stopped" and workload.status != "pending":
            self.end(workload, "stopped", "vm_exited")
        elif state == "stopped":
            self.end(workload, "failed", message or "the guest stopped before it had started")
        else:
            self.end(workload, "failed", message or FAILURES[state])

    def _interrupt(self, workload: Workload, reason: str) -> None:
        workload.status, workload.reason, workload.lost = "interrupted", reason, False
        # A silent node is offline from the end of its grace on, however late that is noticed.
        offline = self.nodes[workload.node].seen + GRACE
        workload.interrupted = min(self.now, offline) if reason == "node_lost" else self.now
        self.close_bill(workload)

    # Owners

    def set_status(self, seen: Seen, who: str, org: str, node_id: str, status: str) -> None:
        node = self._own_node(seen, who, org, node_id)
        if node is None or seen.refused([REMOVED] if self.gone(node) else []):
            return
        if status == "removed":
            self._remove(node)
        else:
            node.hold = {"online": ""}.get(status, status)
            if status == "draining":
                self._clear(node)

    def offboard(self, seen: Seen, who: str, org: str, node_id: str, seconds: int) -> None:
        node = self._own_node(seen, who, org, node_id)
        if node is None:
            return
        faults = []
        if self.gone(node):
            faults.append(REMOVED)
        elif not node.interruptible:
            faults.append(STATE)
        if seconds > 24 * 3600:
            faults.append(MALFORMED)
        if not seen.refused(faults):
            self._leaves(node, seconds)

    def notice(self, seen: Seen, node_id: str, seconds: int) -> None:
        """The node's own word that it will end."""
        self.hear(node_id)
        node = self.nodes[node_id]
        faults = []
        if self.gone(node):
            faults.append(REMOVED)
        elif not node.interruptible:
            faults.append((409, "FEATURE_DISABLED"))
        if seconds > 24 * 3600:
            faults.append(MALFORMED)
        if not seen.refused(faults):
            self._leaves(node, seconds)

    def _own_node(self, seen: Seen, who: str, org: str, node_id: str) -> Node | None:
        if self.gate(seen, who, "provider.write", org=org):
            return None
        if self.nodes[node_id].owner != org:
            seen.refused([NOT_THERE])
            return None
        return self.nodes[node_id]

    def _leaves(self, node: Node, seconds: int) -> None:
        ends = self.now + dt.timedelta(seconds=seconds)
        if node.ends is not None and node.ends <= ends:
            return  # a deadline only ever moves earlier
        node.ends = ends
        if not seconds:
            self._remove(node)
            return
        for workload in self.workloads.values():
            if workload.node == node.id and workload.status == "running":
                workload.reason = self.leaving_words(node)

    def _clear(self, node: Node) -> None:
        for workload in self.workloads.values():
            if workload.node == node.id and workload.status in (*UP, "failed"):
                self.end(workload, "terminated", "node_removed")

    def _remove(self, node: Node) -> None:
        self._clear(node)
        for workload in self.workloads.values():
            if workload.node == node.id and workload.status == "stopped":
                if workload.kind == VM:
                    workload.reason = "node_removed"
                else:
                    self.end(workload, "terminated", "node_removed")
        if any(unit.present for unit in node.units.values()):
            node.generation += 1
        for unit in node.units.values():
            unit.present = False
        node.removed = True

    # The clock

    def sweep(self) -> None:
        """What the platform does by itself when it gets to it."""
        for node in self.nodes.values():
            self._notice_silence(node)
        for workload in self.workloads.values():
            since = workload.interrupted
            if workload.status == "interrupted" and since is not None and since <= self.now - GIVE_UP:
                if self.gone(self.nodes[workload.node]):
                    self.end(workload, "terminated", "node_removed")
                else:
                    self.end(workload, "stopped" if workload.kind == VM else "terminated", "node_lost")
        for node in self.nodes.values():
            if not node.removed and self.gone(node):
                self._remove(node)
        self.sweep_accounts()
