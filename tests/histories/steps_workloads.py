"""Steps of VMs, pods and the keys that open them."""

from collections.abc import Callable
from typing import Any

from tests.histories.asking import Asking, Call
from tests.histories.facts import POD, VM
from tests.histories.people import Model
from tests.histories.real import INVENTED, MODELS, public_key


class WorkloadSteps(Asking):
    """Steps of VMs, pods and the keys that open them."""

    def create(
        self,
        org: str,
        tier: str,
        count: int,
        where: int | None,
        of: int | None,
        by: int,
        key: str | None,
        kind: str = VM,
    ) -> Call | None:
        asker = self.asker(by, org)
        mine = [pk for pk, (owner, _) in self.model.ssh_keys.items() if owner == org]
        ssh_key = (mine or [INVENTED])[0]
        node = None if where is None else INVENTED if where < 0 else self.one(self.model.nodes, where)
        model_slug = None if of is None else MODELS[of]
        body: dict[str, Any] = {"sshKeyIds": [ssh_key], "gpuCount": count}
        if kind == VM:
            body |= {"name": "vm", "tier": tier, "guestMemMb": 1024, "diskSizeGb": 20}
            body |= {} if node is None else {"nodeId": node}
        else:
            body |= {"image": "ghcr.io/acme/trainer:1"}
            org = self.model.credentials[asker].org
        if model_slug is not None:
            body["gpuModelId"] = str(self.real.models[model_slug].pk)
        path = self.real.org_path(org, "vms/create") if kind == VM else "/v1/pods"
        return Call(
            f"{asker} asks for a {tier} {kind} of {count} on {node}",
            lambda: self.real.ask("POST", path, asker, body, key),
            lambda model, seen: model.create(
                seen,
                asker,
                org,
                kind=kind,
                tier=tier,
                count=count,
                ssh_key=ssh_key,
                node_id=node,
                model=model_slug,
                key=key,
            ),
            key=key,
        )

    def create_cpu(self, org: str, where: int | None, of: int, by: int) -> Call | None:
        asker = self.asker(by, org)
        mine = [pk for pk, (owner, _) in self.model.ssh_keys.items() if owner == org]
        ssh_key = (mine or [INVENTED])[0]
        node = None if where is None else INVENTED if where < 0 else self.one(self.model.nodes, where)
        size, tier = self.one(self.real.sizes, of), ("community", "spot")[of % 2]
        body = {"name": "vm", "sshKeyIds": [ssh_key], "resourceSize": size, "tier": tier, "diskSizeGb": 20}
        body |= {} if node is None else {"nodeId": node}
        return Call(
            f"{asker} asks for a VM of size {size} on {node}",
            lambda: self.real.ask("POST", self.real.org_path(org, "vms/create"), asker, body),
            lambda model, seen: model.create_cpu(
                seen, asker, org, size=size, tier=tier, ssh_key=ssh_key, node_id=node
            ),
        )

    def create_pod(self, org: str, count: int, by: int, key: str | None) -> Call | None:
        return self.create(org, "community", count, None, None, by, key, kind=POD)

    def _on_workload(
        self, number: int, by: int, method: str, rest: str, body: Any, told: Callable[..., None]
    ) -> Call | None:
        workload = self.one(self.workloads(), number)
        if workload is None:
            return None
        asker = self.asker(by, workload.org)
        return Call(
            f"{asker}: {rest} {workload.kind} {workload.id} {body}",
            lambda: self.real.ask(method, f"/v1/vms/{workload.id}/{rest}", asker, body),
            lambda model, seen: told(model, seen, asker, workload.id),
        )

    def stop(self, number: int, by: int) -> Call | None:
        return self._on_workload(number, by, "POST", "stop", None, Model.stop)

    def restart(self, number: int, by: int) -> Call | None:
        return self._on_workload(number, by, "POST", "restart", None, Model.restart)

    def reboot(self, number: int, by: int) -> Call | None:
        return self._on_workload(number, by, "POST", "reboot", None, Model.reboot)

    def terminate(self, number: int, by: int) -> Call | None:
        return self._on_workload(number, by, "POST", "terminate", None, Model.terminate)

    def resize(self, number: int, more: int, by: int) -> Call | None:
        workload = self.one(self.workloads(), number)
        size = more + (workload.disk if workload is not None else 0)
        return self._on_workload(
            number,
            by,
            "POST",
            "resize-disk",
            {"newSizeGb": size},
            lambda model, seen, asker, pk: model.resize(seen, asker, pk, size),
        )

    def set_visibility(self, number: int, public: bool, by: int) -> Call | None:
        return self._on_workload(
            number,
            by,
            "POST",
            "visibility",
            {"public": public},
            lambda model, seen, asker, pk: model.set_visibility(seen, asker, pk, public),
        )

    def attach(self, number: int, of: int, by: int) -> Call | None:
        ssh_key = self.one(self.model.ssh_keys, of) or INVENTED
        return self._on_workload(
            number,
            by,
            "POST",
            "ssh-keys",
            {"sshKeyId": ssh_key},
            lambda model, seen, asker, pk: model.attach(seen, asker, pk, ssh_key),
        )

    def detach(self, number: int, of: int, by: int) -> Call | None:
        ssh_key = self.one(self.model.ssh_keys, of) or INVENTED
        return self._on_workload(
            number,
            by,
            "DELETE",
            f"ssh-keys/{ssh_key}",
            None,
            lambda model, seen, asker, pk: model.detach(seen, asker, pk, ssh_key),
        )

    def add_ssh_key(self, org: str, number: int, by: int) -> Call | None:
        asker = self.asker(by, org)
        body = {"name": f"key-{number}", "publicKey": public_key(number)}
        return Call(
            f"{asker} adds key {number} to {org}",
            lambda: self.real.ask("POST", self.real.org_path(org, "ssh-keys/create"), asker, body),
            lambda model, seen: model.add_ssh_key(seen, asker, org, number),
        )

    def delete_ssh_key(self, number: int, by: int) -> Call | None:
        ssh_key = self.one(self.model.ssh_keys, number)
        if ssh_key is None:
            return None
        org = self.model.ssh_keys[ssh_key][0]
        asker = self.asker(by, org)
        path = self.real.org_path(org, f"ssh-keys/{ssh_key}")
        return Call(
            f"{asker} deletes a key of {org}",
            lambda: self.real.ask("DELETE", path, asker),
            lambda model, seen: model.delete_ssh_key(seen, asker, org, ssh_key),
        )
