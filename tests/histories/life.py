"""The model: what customers do with VMs and pods, and with the keys that open them."""

from collections.abc import Collection

from tests.histories.facts import OPERATORS, POD, VM, Node, Placed, Run, Seen, Workload, require
from tests.histories.rights import MALFORMED, MARKET, NOT_THERE, OPEN, STATE, Fault, Rights, Room

BUSY = {VM: (503, "VM_NODE_BUSY"), POD: (503, "POD_NODE_BUSY")}
CAN_STOP = ("deploying", "running", "interrupted")


class Life(Rights):
    """Creating and operating workloads."""

    def create(
        self,
        seen: Seen,
        who: str,
        org: str,
        *,
        kind: str,
        tier: str,
        count: int,
        ssh_key: str,
        node_id: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> None:
        if self.gate(seen, who, "compute.create", org=org):
            return
        asked = ("create", org, kind, tier, count, ssh_key, node_id, model)
        if self.kept_answer(seen, who, key, asked):
            return
        if ssh_key not in self.ssh_keys or self.ssh_keys[ssh_key][0] != org:
            seen.refused([MALFORMED])
            return
        rooms: list[Room]
        if node_id is None:
            rooms = self.rooms_in_pool(org=org, tier=tier, kind=kind, count=count, model=model)
            where = list(self.nodes.values())
        else:
            node = self.nodes.get(node_id)
            if node is None or not self.may_name(org, node):
                seen.refused([(400, "UNKNOWN_NODE")])
                return
            if node.removed:
                seen.refused([(400, "NODE_DECOMMISSIONED")])
                return
            stands = self.standings(node, org=org, tier=tier, kind=kind, named=True, model=model)
            rooms = self.rooms_on(node, stands, count) if self._names_now(org, node_id) else []
            where = [node]
        full = self.no_room(where, kind=kind, count=count, model=model)
        # Of three at once, the first may take what was left where the second had not looked.
        overtaken = self.racing > 2 and node_id is None and seen.refusal == full
        if seen.refused([full] if overtaken or not rooms else []):
            return
        placed = self._placed(seen, seen.body["id"], 1)
        room = self._one_of(rooms, placed)
        workload = Workload(
            id=seen.body["id"],
            org=org,
            kind=kind,
            tier=tier,
            count=count,
            model=self.nodes[placed.node].units[min(placed.units)].model,
            node=placed.node,
            created=self.now,
            status="",
            keys={ssh_key},
            disk=20 if kind == VM else 50,
        )
        self._settle(workload, room, placed, 1, named=node_id is not None)
        earlier = [run for run in self.open_runs(placed.node, placed.units) if run.id != placed.run]
        workload.status = "pending" if earlier else "deploying"
        require(seen.body["status"] == workload.status, f"it reads {seen.body['status']}")
        self.keep(seen, who, key, asked)

    def create_cpu(
        self, seen: Seen, who: str, org: str, *, size: str, tier: str, ssh_key: str, node_id: str | None
    ) -> None:
        """A VM without GPUs goes wherever new work is taken: no host here says what it has."""
        if self.gate(seen, who, "compute.create", org=org):
            return
        if ssh_key not in self.ssh_keys or self.ssh_keys[ssh_key][0] != org:
            seen.refused([MALFORMED])
            return
        nodes = list(self.nodes.values())
        if node_id is not None:
            node = self.nodes.get(node_id)
            if node is None or not self.may_name(org, node):
                seen.refused([(400, "UNKNOWN_NODE")])
                return
            if node.removed:
                seen.refused([(400, "NODE_DECOMMISSIONED")])
                return
            nodes = [node]
        able = [node.id for node in nodes if self.takes_work(node) and node.runtime == "qemu"]
        if node_id is not None and not self._names_now(org, node_id):
            able = []
        hosts = any(not node.removed and node.runtime == "qemu" for node in nodes)
        full = (503, "INSUFFICIENT_HOST_CAPACITY") if hosts else (400, "VM_SHAPE_NOT_PLACEABLE")
        if seen.refused([] if able else [full]):
            return
        placed = self._placed(seen, seen.body["id"], 1)
        require(placed.node in able and not placed.units, f"placed on {placed}, and should be on {able}")
        workload = Workload(
            id=seen.body["id"],
            org=org,
            kind=VM,
            tier=tier,
            count=0,
            model=size,
            node=placed.node,
            created=self.now,
            status="deploying",
            keys={ssh_key},
        )
        self.workloads[workload.id] = workload
        self.begin_run(workload, placed, 1)

    def stop(self, seen: Seen, who: str, workload_id: str) -> None:
        workload = self.my_workload(seen, who, "compute.operate", workload_id)
        if workload is None or seen.refused([] if workload.status in CAN_STOP else [STATE]):
            return
        self.end(workload, "stopped", "user_stopped")

    def terminate(self, seen: Seen, who: str, workload_id: str) -> None:
        workload = self.my_workload(seen, who, "compute.delete", workload_id)
        if workload is None or seen.refused([]):
            return
        if workload.status != "terminated":
            self.end(workload, "terminated", "user_terminated")

    def restart(self, seen: Seen, who: str, workload_id: str) -> None:
        workload = self.my_workload(seen, who, "compute.operate", workload_id)
        if workload is None:
            return
        node = self.nodes[workload.node]
        pod = workload.kind == POD
        if workload.status == "running":
            if pod and not self.online(node):
                seen.refused([(409, "POD_NODE_OFFLINE")])
            elif not seen.refused([BUSY[workload.kind]] if self._unfit(workload) else []):
                self._reboot(workload)
            return
        ends = self.gone(node) and (pod or workload.status == "failed")
        if workload.status not in ("stopped", "failed") or ends:
            seen.refused([STATE])
            return
        if pod and not self.online(node):
            seen.refused([(409, "POD_NODE_OFFLINE")])
            return
        if pod and any(run.open for run in self.runs_of(workload)):
            seen.refused([(409, "POD_STOPPING")])
            return
        if not workload.count:
            self._restart_cpu(seen, workload, node)
            return
        mine = {"org": workload.org, "tier": workload.tier, "kind": workload.kind, "model": workload.model}
        if self.gone(node) or workload.reason == "node_removed":
            rooms = self.rooms_in_pool(**mine, count=workload.count)
            faults: list[Fault] = [(503, "INSUFFICIENT_GPU_CAPACITY")]
        else:
            rooms = self.rooms_on(node, self.standings(node, **mine, named=True), workload.count)
            faults = [BUSY[workload.kind]]
        if seen.refused([] if rooms else faults):
            return
        number = 1 + max(run.number for run in self.runs_of(workload))
        self._again(seen, workload, rooms, number)

    def _again(self, seen: Seen, workload: Workload, rooms: list[Room], number: int) -> None:
        placed = self._placed(seen, workload.id, number)
        workload.node = placed.node
        self._settle(workload, self._one_of(rooms, placed), placed, number, named=True)
        workload.status, workload.reason, workload.interrupted = "deploying", "user_restarted", None

    def _restart_cpu(self, seen: Seen, workload: Workload, node: Node) -> None:
        """The same for a VM without GPUs, which needs no unit."""
        where, fault = [node], BUSY[VM]
        if self.gone(node) or workload.reason == "node_removed":
            where, fault = list(self.nodes.values()), (503, "INSUFFICIENT_HOST_CAPACITY")
        able = [host for host in where if self.takes_work(host) and host.runtime == "qemu"]
        if not seen.refused([] if able else [fault]):
            rooms = [Room(host.id, frozenset()) for host in able]
            number = 1 + max(run.number for run in self.runs_of(workload))
            self._again(seen, workload, rooms, number)

    def reboot(self, seen: Seen, who: str, workload_id: str) -> None:
        workload = self.my_workload(seen, who, "compute.operate", workload_id)
        if workload is None:
            return
        fit = workload.status == "running" and not self._unfit(workload)
        if not seen.refused([] if fit else [STATE]):
            self._reboot(workload)

    def resize(self, seen: Seen, who: str, workload_id: str, size: int) -> None:
        workload = self.my_workload(seen, who, "compute.operate", workload_id)
        if workload is None:
            return
        faults = []
        lost = self.gone(self.nodes[workload.node]) or workload.reason == "node_removed"
        if workload.kind == POD:
            faults.append(MALFORMED)
        elif workload.status != "stopped" or lost:
            faults.append(STATE)
        if size <= workload.disk:
            faults.append(MALFORMED)
        if not seen.refused(faults):
            workload.disk = size

    def set_visibility(self, seen: Seen, who: str, workload_id: str, public: bool) -> None:
        workload = self.my_workload(seen, who, "compute.operate", workload_id)
        if workload is None or seen.refused([STATE] if workload.status == "terminated" else []):
            return
        workload.public = public

    # Keys that open them

    def attach(self, seen: Seen, who: str, workload_id: str, ssh_key: str) -> None:
        workload = self.my_workload(seen, who, "compute.operate", workload_id)
        if workload is None:
            return
        faults = []
        if workload.status == "terminated":
            faults.append(MALFORMED)
        if self.ssh_keys.get(ssh_key, ("", 0))[0] != workload.org:
            faults.append(NOT_THERE)
        if not seen.refused(faults):
            workload.keys.add(ssh_key)

    def detach(self, seen: Seen, who: str, workload_id: str, ssh_key: str) -> None:
        workload = self.my_workload(seen, who, "compute.operate", workload_id)
        if workload is None:
            return
        faults = []
        if self.ssh_keys.get(ssh_key, ("", 0))[0] != workload.org:
            faults.append(NOT_THERE)
        elif workload.keys == {ssh_key}:
            faults.append(MALFORMED)
        if not seen.refused(faults):
            workload.keys.discard(ssh_key)

    def add_ssh_key(self, seen: Seen, who: str, org: str, number: int) -> None:
        """Key `number` is the same key in every organization."""
        if self.gate(seen, who, "sshkey.write", org=org):
            return
        if not seen.refused([(409, "KEY_EXISTS")] if (org, number) in self.ssh_keys.values() else []):
            self.ssh_keys[seen.body["id"]] = (org, number)

    def delete_ssh_key(self, seen: Seen, who: str, org: str, ssh_key: str) -> None:
        if self.gate(seen, who, "sshkey.write", org=org):
            return
        faults = []
        if self.ssh_keys.get(ssh_key, ("", 0))[0] != org:
            faults.append(NOT_THERE)
        elif any(w.keys == {ssh_key} and w.status != "terminated" for w in self.workloads.values()):
            faults.append((409, "KEY_IN_USE"))
        if not seen.refused(faults):
            del self.ssh_keys[ssh_key]
            for workload in self.workloads.values():
                workload.keys.discard(ssh_key)

    # What becomes of workloads

    def end(self, workload: Workload, status: str, reason: str) -> None:
        """The workload stops, fails or is terminated: its right goes at once, its guest is to go."""
        workload.status, workload.reason, workload.rate = status, reason, None
        workload.lost = False
        workload.claims = {}
        for run in self.runs_of(workload):
            if run.open:
                run.wanted = False

    def begin_run(self, workload: Workload, placed: Placed, number: int) -> None:
        self.runs[placed.run] = Run(placed.run, workload.id, placed.node, number, placed.units)

    def becomes_running(self, workload: Workload) -> None:
        """It runs from now on, at today's rate."""
        workload.status, workload.interrupted, workload.lost = "running", None, False
        workload.reason = self.leaving_words(self.nodes[workload.node])
        workload.rate = self.catalog(workload)
        workload.since = self.now

    def catalog(self, workload: Workload) -> int:
        """What an hour of the workload costs by today's prices."""
        if not workload.count:
            return self.prices[workload.model, ""]
        return self.prices[workload.model, workload.tier] * workload.count

    def _names_now(self, org: str, node_id: str) -> bool:
        """Whether the right to name the node is not one of a reservation in review alone."""
        node = self.nodes[node_id]
        return org in (OPERATORS, node.owner) or any(
            org in contract.audience and self.status(contract) == "active"
            for contract in self.of_node(node_id)
        )

    def _placed(self, seen: Seen, workload_id: str, number: int) -> Placed:
        placed = seen.runs.get((workload_id, number))
        require(placed, f"workload {workload_id} has no run {number}")
        assert placed is not None
        return placed

    def _one_of(self, rooms: Collection[Room], placed: Placed) -> Room:
        for room in rooms:
            if (room.node, room.units) == (placed.node, placed.units):
                return room
        allowed = [f"{sorted(room.units)} of {room.node}" for room in rooms]
        require(False, f"placed on {sorted(placed.units)} of {placed.node}, and should be on {allowed}")
        raise AssertionError

    def _settle(self, workload: Workload, room: Room, placed: Placed, number: int, *, named: bool) -> None:
        """Whom it costs goes, and the workload has the room."""
        for victim in room.victims:
            self.end(self.workloads[victim], "terminated", "spot_preempted_for_reservation_tenant")
        node = self.nodes[placed.node]
        for unit in placed.units:
            stands = self.standing(node, unit, org=workload.org, tier=workload.tier, named=named)
            contract = self.held_by(node.id, unit)
            by_right = stands not in (MARKET, OPEN)
            workload.claims[unit] = contract.id if contract is not None and by_right else None
        self.workloads[workload.id] = workload
        self.begin_run(workload, placed, number)

    def _unfit(self, workload: Workload) -> bool:
        """Whether a running workload cannot be rebooted: its node is offline, or a GPU of its own failed."""
        node = self.nodes[workload.node]
        mine = [node.units[unit] for unit in workload.claims]
        return not self.online(node) or not all(unit.healthy and unit.present for unit in mine)

    def _reboot(self, workload: Workload) -> None:
        workload.reason = self.leaving_words(self.nodes[workload.node]) or "user_restarted"
        if run := self.wanted_run(workload):
            run.reboots += 1
