"""Steps of API keys, roles and members, and of what operators make of accounts."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.histories.asking import Asking, Call
from tests.histories.people import Model


class PeopleSteps(Asking):
    """Steps of API keys, roles and members, and of what operators make of accounts."""

    def make_key(self, permissions: Sequence[str], by: int | str) -> Call | None:
        asker = self.asker(by, "boss")
        org = self.model.credentials[asker].org
        name = f"key {len(self.real.secrets)}"
        body = {"name": name, "permissions": list(permissions)}

        def keep(made: Any) -> None:
            self.real.secrets[name] = made["key"]
            self.real.key_ids[name] = made["id"]

        return Call(
            f"{asker} makes a key with {permissions}",
            lambda: self.real.ask("POST", self.real.org_path(org, "api-keys/create"), asker, body),
            lambda model, seen: model.make_key(seen, asker, org, name, permissions),
            keep,
        )

    def revoke_key(self, number: int, by: int | str) -> Call | None:
        name = self.one(self.real.key_ids, number)
        if name is None:
            return None
        asker = self.asker(by, "boss")
        org = self.model.credentials[asker].org
        path = self.real.org_path(org, f"api-keys/{self.real.key_ids[name]}")
        return Call(
            f"{asker} revokes {name}",
            lambda: self.real.ask("DELETE", path, asker),
            lambda model, seen: model.revoke_key(seen, asker, org, name),
        )

    def update_key(self, number: int, limit: int | None, period: str | None, by: int | str) -> Call | None:
        name = self.one(self.real.key_ids, number)
        if name is None:
            return None
        asker = self.asker(by, "boss")
        org = self.model.credentials[asker].org
        path = self.real.org_path(org, f"api-keys/{self.real.key_ids[name]}")
        budget = {"limitNanoUsd": limit, "period": period}
        body = {"budget": {field: value for field, value in budget.items() if value is not None}}
        return Call(
            f"{asker} lets {name} spend {body}",
            lambda: self.real.ask("PATCH", path, asker, body),
            lambda model, seen: model.update_key(seen, asker, org, name, limit, period),
        )

    def apply(self, org: str, by: int | str) -> Call | None:
        asker = self.asker(by, org)
        path = self.real.org_path(org, "provider/apply")
        return Call(
            f"{asker} asks for {org} to be a provider",
            lambda: self.real.ask("POST", path, asker, {"note": "We have GPUs."}),
            lambda model, seen: model.apply(seen, asker, org),
        )

    def make_role(self, number: int, permissions: Sequence[str], by: int | str) -> Call | None:
        asker = self.asker(by, "boss")
        body = {"name": f"role {number}", "permissions": list(permissions)}
        return Call(
            f"{asker} makes role {number} with {permissions}",
            lambda: self.real.ask("POST", "/v1/roles", asker, body),
            lambda model, seen: model.make_role(seen, asker, f"role {number}", permissions),
        )

    def change_role(self, number: int, permissions: Sequence[str], by: int | str) -> Call | None:
        role = self.one(self.model.roles, number)
        if role is None:
            return None
        asker = self.asker(by, "boss")
        return Call(
            f"{asker} changes a role to {permissions}",
            lambda: self.real.ask("PATCH", f"/v1/roles/{role}", asker, {"permissions": list(permissions)}),
            lambda model, seen: model.change_role(seen, asker, role, permissions),
        )

    def delete_role(self, number: int, by: int | str) -> Call | None:
        role = self.one(self.model.roles, number)
        if role is None:
            return None
        asker = self.asker(by, "boss")
        return Call(
            f"{asker} deletes a role",
            lambda: self.real.ask("DELETE", f"/v1/roles/{role}", asker),
            lambda model, seen: model.delete_role(seen, asker, role),
        )

    # What operators do at the server

    def _done(self, words: str, do: Callable[[], None], told: Callable[[Model], None]) -> Call:
        def send() -> tuple[int, None]:
            do()
            return 200, None

        return Call(words, send, lambda model, seen: told(model))

    def give_role(self, number: int) -> Call | None:
        """The helper has one of the organization's own roles."""
        role = self.one(self.model.roles, number)
        return None if role is None else self.set_member("helper", role)

    def set_member(self, name: str, role: str | None) -> Call:
        """A person has another role, or leaves or comes back."""
        before = self.model.credentials[name].member
        return self._done(
            f"{name} is {role} from now on",
            lambda: self.real.set_member(name, role, before=before),
            lambda model: model.set_member(name, role),
        )

    def suspend(self, org: str, on: bool) -> Call:
        return self._done(
            f"{org} is {'suspended' if on else 'active'} from now on",
            lambda: self.real.suspend(org, on),
            lambda model: model.suspend(org, on),
        )

    def enable_reservations(self, org: str, on: bool) -> Call:
        return self._done(
            f"reservations are {'enabled' if on else 'disabled'} for {org} from now on",
            lambda: self.real.enable_reservations(org, on),
            lambda model: model.enable_reservations(org, on),
        )

    def set_balance(self, org: str, cents: int | None) -> Call:
        return self._done(
            f"{org} has {cents} cents",
            lambda: self.real.set_balance(org, cents),
            lambda model: model.set_balance(org, cents),
        )
