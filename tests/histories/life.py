"""The model: what customers do with the VMs and pods that they have, and with the keys that open them."""

from dataclasses import replace

from tests.histories.creating import Creating
from tests.histories.facts import POD, VM, Given, Node, Seen, Wish, Workload
from tests.histories.placing import AMD_GRANT, INFINIBAND, NO_ADDRESS, NO_HOST, NO_ROOM
from tests.histories.rights import MALFORMED, NOT_THERE, STATE, Fault, Room

BUSY = {VM: (503, "VM_NODE_BUSY"), POD: (503, "POD_NODE_BUSY")}
CAN_STOP = ("deploying", "running", "interrupted")


class Life(Creating):
    """Operating workloads."""

    def stop(self, seen: Seen, who: str, workload_id: str) -> None:
        workload = self.my_workload(seen, who, "compute.operate", workload_id)
        if workload is None:
            return
        can = workload.status in CAN_STOP and not self.gone(self.nodes[workload.node])
        if seen.refused([] if can else [STATE]):
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
            if self.gone(node):
                seen.refused([STATE])
            elif pod and not self.online(node):
                seen.refused([(409, "POD_NODE_OFFLINE")])
            elif not seen.refused([BUSY[workload.kind]] if self._unfit(workload) else []):
                self._reboot(workload)
            return
        ends = self.gone(node) and (pod or workload.status == "failed")
        if workload.status not in ("stopped", "failed") or ends:
            seen.refused([STATE])
            return
        gone = self.gone(node) or workload.reason == "node_removed"
        if pod and (faults := self._not_admitted(workload, node)):
            seen.refused(faults + self.barred(workload.org))
        elif not workload.count:
            self._restart_cpu(seen, workload, node, gone=gone)
        elif gone:
            self._restart_elsewhere(seen, workload)
        else:
            self._restart_here(seen, workload, node)

    def _not_admitted(self, pod: Workload, node: Node) -> list[Fault]:
        """Why a pod is not started again on its node, beside room."""
        faults = []
        if not self.online(node):
            faults.append((409, "POD_NODE_OFFLINE"))
        if any(run.open for run in self.runs_of(pod)):
            faults.append((409, "POD_STOPPING"))
        if pod.org in self.infiniband and node.level < INFINIBAND:
            faults.append((409, "POD_NODE_NO_INFINIBAND"))
        if pod.model in self.amd and node.level < AMD_GRANT:
            faults.append((409, "POD_NODE_NO_AMD_GRANT"))
        return faults

    def _restart_here(self, seen: Seen, workload: Workload, node: Node) -> None:
        wish = self._as_it_is(workload)
        rooms = self.rooms_here(node, workload.org, wish, again=workload)
        busy = BUSY[workload.kind]
        if rooms.unsure and seen.refusal == busy:
            return
        faults = [] if rooms.found else [busy]
        faults += self.barred_from(rooms, workload.org, wish, node)
        if workload.kind == POD and not self.connects(node, workload.org, workload.id):
            faults.append(NO_ADDRESS)
        if not seen.refused(faults):
            self._again(seen, workload, rooms.found)
            if workload.kind == POD:
                self.connect(node, workload.org, workload.id)

    def _restart_elsewhere(self, seen: Seen, workload: Workload) -> None:
        """A VM whose node was removed deploys afresh, where it was first asked for."""
        rooms = self.rooms_in_pool(workload.org, self._as_it_is(workload), again=workload)
        full = [NO_ROOM, NO_HOST]
        barred = self.barred(workload.org)
        if rooms.unsure and not barred and seen.refusal in full:
            return
        faults = [] if rooms.found else full if rooms.no_host else [NO_ROOM]
        if not seen.refused(barred or faults):
            self._again(seen, workload, rooms.found)

    def _restart_cpu(self, seen: Seen, workload: Workload, node: Node, *, gone: bool) -> None:
        """The same for a VM without GPUs, which needs no unit."""
        wish = workload.asked
        if gone:
            nodes = [host for host in self.nodes.values() if self.suits(host, wish)]
            rooms, fault = self.cpu_rooms(nodes, workload.org, wish, named=False, again=workload), NO_HOST
        else:
            rooms = self.cpu_rooms([node], workload.org, wish, named=True, again=workload)
            fault = BUSY[VM]
        barred, full = self.barred(workload.org), [] if rooms else [fault]
        # Of its own node it may be told first that it is full.
        if not seen.refused((barred or full) if gone else full + barred):
            self._again(seen, workload, dict.fromkeys(rooms, workload.given))

    def _as_it_is(self, workload: Workload) -> Wish:
        return replace(workload.asked, model=workload.model, node=None)

    def _again(self, seen: Seen, workload: Workload, rooms: dict[Room, Given]) -> None:
        number = 1 + max(run.number for run in self.runs_of(workload))
        placed = self._placed(seen, workload.id, number)
        room = self._one_of(rooms, placed)
        workload.node, workload.given = placed.node, rooms[room]
        self._settle(workload, room, placed, number, named=True)
        if workload.requested is not None and workload.given.memory is not None:
            # What its node cannot give it any more it asks for no more.
            workload.requested = min(workload.requested, workload.given.memory)
        workload.status, workload.reason, workload.interrupted = "deploying", "user_restarted", None

    def reboot(self, seen: Seen, who: str, workload_id: str) -> None:
        workload = self.my_workload(seen, who, "compute.operate", workload_id)
        if workload is None:
            return
        fit = workload.status == "running" and not self.gone(self.nodes[workload.node])
        fit = fit and not self._unfit(workload)
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
        if size <= workload.given.disk:
            faults.append(MALFORMED)
        if not seen.refused(faults or self._no_disk(workload, size)):
            workload.given = replace(workload.given, disk=size)

    def _no_disk(self, workload: Workload, size: int) -> list[Fault]:
        """Why a stopped VM's disk cannot have that size on its host."""
        node = self.nodes[workload.node]
        if workload.count:
            each = self.share(node).disk
            most = each * workload.count if each is not None else None
            left = self.for_gpus(
                node, workload.org, Room(node.id, frozenset()), named=True, without=workload.id
            )
        else:
            most = node.host.disk or None
            left = self.for_cpus(node, workload.org, named=True, without=workload.id)
        if most is not None and size > most:
            return [(400, "VM_SHAPE_NOT_PLACEABLE")]
        full = left.disk is not None and size > left.disk
        full = full or (left.empty is not None and size - workload.given.disk > left.empty)
        return [NO_HOST] if full else []

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

    def becomes_running(self, workload: Workload) -> None:
        """It runs from now on, at today's rate."""
        workload.status, workload.interrupted, workload.lost = "running", None, False
        workload.reason = self.leaving_words(self.nodes[workload.node])
        self.open_bill(workload)

    def _unfit(self, workload: Workload) -> bool:
        """Whether a running workload cannot be rebooted: its node is offline, or a GPU of its own failed."""
        node = self.nodes[workload.node]
        mine = [node.units[unit] for unit in workload.claims]
        whole = sum(unit.gpus for unit in mine) >= workload.count
        return not self.online(node) or not whole or not all(unit.healthy and unit.present for unit in mine)

    def _reboot(self, workload: Workload) -> None:
        workload.reason = self.leaving_words(self.nodes[workload.node]) or "user_restarted"
        if run := self.wanted_run(workload):
            run.reboots += 1
