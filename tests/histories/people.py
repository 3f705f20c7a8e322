"""The model: API keys, roles of an organization's own, and who wants to be a provider."""

from collections.abc import Sequence

from tests.histories.facts import Credential, Seen, require
from tests.histories.hosts import Hosts
from tests.histories.rights import ACTIONS, BUILTIN, MALFORMED, NOT_THERE, STATE, Fault

ESCALATION = (403, "ESCALATION_REFUSED")


class Model(Hosts):
    """All of it."""

    def make_key(self, seen: Seen, who: str, org: str, name: str, permissions: Sequence[str]) -> None:
        """The key's credential is called `name`."""
        if self.gate(seen, who, "apikey.create", org=org):
            return
        if not seen.refused([ESCALATION] if self._beyond(who, permissions) else []):
            self.credentials[name] = Credential(org, permissions=tuple(permissions), maker=who)

    def revoke_key(self, seen: Seen, who: str, org: str, name: str) -> None:
        if self.gate(seen, who, "apikey.revoke", org=org):
            return
        if not seen.refused([] if self.credentials[name].org == org else [NOT_THERE]):
            self.credentials[name].revoked = True

    def update_key(
        self, seen: Seen, who: str, org: str, name: str, limit: int | None, period: str | None
    ) -> None:
        """Change what a key may spend; a limit of 0 takes that away."""
        if self.gate(seen, who, "apikey.update", org=org):
            return
        had = self.budgets.get(name)
        faults = [] if self.credentials[name].org == org else [NOT_THERE]
        if limit is None and (period is None or had is None):
            faults.append(MALFORMED)
        if seen.refused(faults):
            return
        self.budgets.pop(name, None)
        if limit != 0:
            before, ever = had or (0, "lifetime")
            self.budgets[name] = (before if limit is None else limit, period or ever)
        told = seen.body.get("budget", {})
        found = (told["limitNanoUsd"], told["period"]) if told else None
        require(found == self.budgets.get(name), f"its budget is {found}, not {self.budgets.get(name)}")

    def apply(self, seen: Seen, who: str, org: str) -> None:
        """Ask to become a provider, which is done once."""
        if self.gate(seen, who, "provider.write", org=org):
            return
        if not seen.refused([MALFORMED] if org in self.applied else []):
            self.applied.add(org)

    def make_role(self, seen: Seen, who: str, name: str, permissions: Sequence[str]) -> None:
        if self.gate(seen, who, "role.manage"):
            return
        faults = [ESCALATION] if self._beyond(who, permissions) else []
        org = self.credentials[who].org
        if (name, org) in {(taken, of) for taken, _, of in self.roles.values()}:
            faults.append(STATE)
        if not seen.refused(faults):
            self.roles[seen.body["id"]] = (name, tuple(permissions), org)

    def change_role(self, seen: Seen, who: str, role_id: str, permissions: Sequence[str]) -> None:
        if self.gate(seen, who, "role.manage"):
            return
        faults = self._no_role(who, role_id)
        if self._beyond(who, permissions):
            faults.append(ESCALATION)
        if not seen.refused(faults):
            name, _, org = self.roles[role_id]
            self.roles[role_id] = (name, tuple(permissions), org)

    def delete_role(self, seen: Seen, who: str, role_id: str) -> None:
        if self.gate(seen, who, "role.manage"):
            return
        faults = self._no_role(who, role_id)
        if any(person.role == role_id for person in self.credentials.values()):
            faults.append((409, "ROLE_IN_USE"))
        if not seen.refused(faults):
            del self.roles[role_id]

    def set_member(self, name: str, role: str | None) -> None:
        """The person of that credential has the role from now on, a built-in one or one of their
        organization's own; or none, and is no member.
        """
        person = self.credentials[name]
        person.member = role is not None
        person.role = role if role in self.roles else None
        person.permissions = BUILTIN.get(role or "", ())

    def _no_role(self, who: str, role_id: str) -> list[Fault]:
        found = self.roles.get(role_id)
        return [] if found is not None and found[2] == self.credentials[who].org else [NOT_THERE]

    def _beyond(self, who: str, permissions: Sequence[str]) -> bool:
        """Whether the permissions give an action that the caller does not hold."""
        return any(not self.may(who, action) for given in permissions for action in ACTIONS[given])
