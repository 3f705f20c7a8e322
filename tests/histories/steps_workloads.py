"""Steps of VMs, pods and the keys that open them."""

from collections.abc import Callable
from typing import Any

from tests.histories.asking import Asking, Call
from tests.histories.drawing import USUAL, More
from tests.histories.facts import POD, VM, Wish
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
        by: int | str,
        key: str | None,
        more: More = USUAL,
    ) -> Call | None:
        asker = self.asker(by, org)
        size = next(iter(self.real.sizes)) if more.size else ""
        wish = Wish(
            kind=VM,
            tier=tier,
            count=count,
            model=None if of is None else MODELS[of],
            node=self._named(where),
            memory=more.memory,
            size=size,
            **self._more(org, more),
        )
        return self._create(asker, org, wish, key)

    def create_cpu(
        self, org: str, where: int | None, of: int, by: int | str, more: More = USUAL
    ) -> Call | None:
        asker = self.asker(by, org)
        wish = Wish(
            kind=VM,
            tier=("community", "spot")[of % 2],
            size=self.one(self.real.sizes, of),
            node=self._named(where),
            **self._more(org, more),
        )
        return self._create(asker, org, wish, None)

    def create_pod(
        self, org: str, count: int, by: int | str, key: str | None, more: More = USUAL
    ) -> Call | None:
        asker = self.asker(by, org)
        wish = Wish(
            kind=POD,
            count=count,
            ssh_key=self._key_of(org),
            model=None if more.of is None else MODELS[more.of],
            disk=None if more == USUAL else more.disk,
            shared=more.shared,
        )
        return self._create(asker, self.model.credentials[asker].org, wish, key)

    def _named(self, where: int | None) -> str | None:
        if where is None:
            return None
        return INVENTED if where < 0 else self.one(self.model.nodes, where)

    def _key_of(self, org: str) -> str:
        return next((pk for pk, (owner, _) in self.model.ssh_keys.items() if owner == org), INVENTED)

    def _more(self, org: str, more: More) -> dict[str, Any]:
        return {
            "ssh_key": self._key_of(org),
            "disk": more.disk,
            "regions": more.regions,
            "fallback": more.fallback,
            "template": more.template,
        }

    def _create(self, asker: str, org: str, wish: Wish, key: str | None) -> Call:
        path = self.real.org_path(org, "vms/create") if wish.kind == VM else "/v1/pods"
        body = self.real.create_body(wish)
        return Call(
            f"{asker} asks for a {wish}",
            lambda: self.real.ask("POST", path, asker, body, key),
            lambda model, seen: model.create(seen, asker, org, wish, key=key),
            key=key,
        )

    def _on_workload(
        self, number: int, by: int | str, method: str, rest: str, body: Any, told: Callable[..., None]
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

    def stop(self, number: int, by: int | str) -> Call | None:
        return self._on_workload(number, by, "POST", "stop", None, Model.stop)

    def restart(self, number: int, by: int | str) -> Call | None:
        return self._on_workload(number, by, "POST", "restart", None, Model.restart)

    def reboot(self, number: int, by: int | str) -> Call | None:
        return self._on_workload(number, by, "POST", "reboot", None, Model.reboot)

    def terminate(self, number: int, by: int | str) -> Call | None:
        return self._on_workload(number, by, "POST", "terminate", None, Model.terminate)

    def resize(self, number: int, more: int, by: int | str) -> Call | None:
        workload = self.one(self.workloads(), number)
        size = more + (workload.given.disk if workload is not None else 0)
        return self._on_workload(
            number,
            by,
            "POST",
            "resize-disk",
            {"newSizeGb": size},
            lambda model, seen, asker, pk: model.resize(seen, asker, pk, size),
        )

    def set_visibility(self, number: int, public: bool, by: int | str) -> Call | None:
        return self._on_workload(
            number,
            by,
            "POST",
            "visibility",
            {"public": public},
            lambda model, seen, asker, pk: model.set_visibility(seen, asker, pk, public),
        )

    def attach(self, number: int, of: int, by: int | str) -> Call | None:
        ssh_key = self.one(self.model.ssh_keys, of) or INVENTED
        return self._on_workload(
            number,
            by,
            "POST",
            "ssh-keys",
            {"sshKeyId": ssh_key},
            lambda model, seen, asker, pk: model.attach(seen, asker, pk, ssh_key),
        )

    def detach(self, number: int, of: int, by: int | str) -> Call | None:
        ssh_key = self.one(self.model.ssh_keys, of) or INVENTED
        return self._on_workload(
            number,
            by,
            "DELETE",
            f"ssh-keys/{ssh_key}",
            None,
            lambda model, seen, asker, pk: model.detach(seen, asker, pk, ssh_key),
        )

    def add_ssh_key(self, org: str, number: int, by: int | str) -> Call | None:
        asker = self.asker(by, org)
        body = {"name": f"key-{number}", "publicKey": public_key(number)}
        return Call(
            f"{asker} adds key {number} to {org}",
            lambda: self.real.ask("POST", self.real.org_path(org, "ssh-keys/create"), asker, body),
            lambda model, seen: model.add_ssh_key(seen, asker, org, number),
        )

    def delete_ssh_key(self, number: int, by: int | str) -> Call | None:
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
