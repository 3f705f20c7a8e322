"""The model: who may do what, and who may place where."""

import datetime as dt
from dataclasses import dataclass

from tests.histories.facts import (
    CLASS_OF,
    OPERATORS,
    RUNTIME_OF,
    SPOT,
    Facts,
    Node,
    Seen,
    Workload,
    require,
    subsets,
)

Fault = tuple[int, str]
NOT_THERE: Fault = (404, "NOT_FOUND")
FORBIDDEN: Fault = (403, "FORBIDDEN")
MALFORMED: Fault = (400, "VALIDATION_ERROR")
STATE: Fault = (409, "INVALID_STATE")

# The actions that the permissions used here give.
ACTIONS = {
    "compute.read": {"compute.read"},
    "compute.operate": {"compute.read", "compute.operate"},
    "compute.write": {"compute.read", "compute.operate", "compute.create", "compute.delete"},
    "sshkey.write": {"sshkey.read", "sshkey.write"},
    "apikey.write": {"apikey.read", "apikey.create", "apikey.revoke", "apikey.update"},
    "role.manage": {"role.read", "role.manage"},
    "provider.write": {"provider.read", "provider.write"},
    "reservation.capacity": {"reservation.read", "reservation.capacity"},
    "reservation.manage": {"reservation.read", "reservation.capacity", "reservation.manage"},
}
# What of it the built-in roles hold, as far as it is used here; None is everything.
BUILTIN: dict[str, tuple[str, ...] | None] = {
    "owner": None,
    "admin": None,
    "member": ("compute.write", "sshkey.write"),
    "viewer": ("compute.read",),
    "billing": (),
}
SESSIONS_ONLY = {"apikey.create", "apikey.update", "role.manage", "org.delete"}

# How a unit stands to a request, in the order in which they are used up.
OWN_FREE, OWN_DRAINING, OWN_SPOT, MARKET, OPEN = "own free", "own draining", "own spot", "market", "open"


@dataclass(frozen=True)
class Room:
    """One way to place: where, on what, and whom it costs."""

    node: str
    units: frozenset[int]
    victims: frozenset[str] = frozenset()


class Rights(Facts):
    """Permissions and the table of who may place where."""

    # Permissions

    def may(self, who: str, action: str) -> bool:
        asker = self.credentials[who]
        if action == "reservation.manage" and asker.org != OPERATORS:
            return False
        if action in SESSIONS_ONLY and not asker.session:
            return False
        if asker.maker is not None and not self.may(asker.maker, action):
            return False
        if not asker.member:
            return False
        permissions = self.roles[asker.role][1] if asker.role is not None else asker.permissions
        return permissions is None or any(action in ACTIONS[permission] for permission in permissions)

    def dead(self, who: str) -> list[Fault]:
        """Why the credential stands for nobody, whatever is asked with it."""
        asker = self.credentials[who]
        if asker.revoked:
            return [(401, "REVOKED_API_KEY")]
        return [] if asker.member else [(401, "UNAUTHORIZED")]

    def gate(
        self, seen: Seen, who: str, action: str, *, org: str | None = None, hidden: bool = False
    ) -> bool:
        """Whether the request was refused for who it is from, and rightly so.

        `org` is the organization that the path names.
        """
        if dead := self.dead(who):
            return seen.refused(dead)
        if org is not None and self.credentials[who].org != org:
            return seen.refused([FORBIDDEN])
        if not self.may(who, action):
            return seen.refused([NOT_THERE if hidden else FORBIDDEN])
        return False

    def my_workload(self, seen: Seen, who: str, action: str, workload_id: str) -> Workload | None:
        """The workload that the path names; None when the request was refused, and rightly so."""
        workload = self.workloads[workload_id]
        if dead := self.dead(who):
            seen.refused(dead)
            return None
        if workload.org != self.credentials[who].org:
            seen.refused([NOT_THERE])
            return None
        return None if self.gate(seen, who, action) else workload

    def manages(self, org: str, node: str) -> list[str]:
        """The contracts of the node that are active and in term and that the organization manages."""
        return [
            contract.id
            for contract in self.of_node(node)
            if org in contract.managers and self.status(contract) == "active"
        ]

    # Placing

    def may_name(self, org: str, node: Node) -> bool:
        return org in (OPERATORS, node.owner) or any(
            org in contract.audience and self.in_term(contract) for contract in self.of_node(node.id)
        )

    def standing(self, node: Node, unit: int, *, org: str, tier: str, named: bool) -> str | None:
        """How a unit of a node that takes work stands to a request: the table, row by row."""
        if not node.units[unit].usable:
            return None  # a GPU in it failed, or not sellable, or gone from the inventory
        contract = self.held_by(node.id, unit)
        claimed = self.claim_on(node.id, unit)
        draining = claimed is None and bool(self.open_runs(node.id, [unit]))
        free = claimed is None and not draining
        if contract is None:
            return OPEN if free else None
        if self.status(contract) != "active":
            return None  # in review
        if org in contract.audience:
            if not named:
                return None
            if claimed is None:
                return OWN_DRAINING if draining else OWN_FREE
            return OWN_SPOT if claimed.tier == SPOT else None
        return MARKET if tier == SPOT and unit in contract.released and free else None

    def standings(
        self, node: Node, *, org: str, tier: str, kind: str, named: bool, model: str | None
    ) -> dict[int, str]:
        """The units that a request may have there now."""
        if not self.takes_work(node) or node.runtime != RUNTIME_OF[kind]:
            return {}
        found = {}
        for number, unit in node.units.items():
            if unit.klass == CLASS_OF[kind] and model in (None, unit.model):
                stands = self.standing(node, number, org=org, tier=tier, named=named)
                if stands is not None:
                    found[number] = stands
        return found

    def rooms_on(self, node: Node, stands: dict[int, str], count: int) -> list[Room]:
        """The best ways to have `count` GPUs of one model of those units: all that are as good."""
        best: list[Room] = []
        least = None
        for units in subsets(stands):
            sizes = [node.units[unit].gpus for unit in units]
            if sum(sizes) != count or len({node.units[unit].model for unit in units}) != 1:
                continue
            on = [self.claim_on(node.id, unit) for unit in units if stands[unit] == OWN_SPOT]
            victims = {workload.id: workload for workload in on if workload is not None}
            market, open_, draining = (
                sum(node.units[unit].gpus for unit in units if stands[unit] == how)
                for how in (MARKET, OPEN, OWN_DRAINING)
            )
            # Of as many victims those whose oldest is as young as can be, then the next oldest.
            ages = sorted(workload.created.timestamp() for workload in victims.values())
            # What is released to spot is used before what is open to everybody.
            cost = (market + open_, len(victims), [-age for age in ages], draining, open_)
            if least is None or cost < least:
                best, least = [], cost
            if cost == least:
                best.append(Room(node.id, frozenset(units), frozenset(victims)))
        return best

    def kept_answer(self, seen: Seen, who: str, key: str | None, request: object) -> bool:
        """Whether the request was answered for its Idempotency-Key, and rightly so."""
        org = self.credentials[who].org
        if key in self.repeated and seen.refusal == (409, "IDEMPOTENCY_KEY_IN_USE"):
            return True
        kept = self.kept.get((org, key)) if key is not None else None
        if kept is None or kept[2] <= self.now - dt.timedelta(hours=24):
            return False
        if kept[0] != (who, request):
            return seen.refused([(422, "IDEMPOTENCY_KEY_REUSED")])
        require(seen.status == 200 and seen.body == kept[1], f"not the answer that was kept: {seen.body}")
        return True

    def keep(self, seen: Seen, who: str, key: str | None, request: object) -> None:
        if key is not None:
            self.kept[self.credentials[who].org, key] = ((who, request), seen.body, self.now)
