"""The model: reservations, the second sale, and taking capacity back."""

import datetime as dt
from collections.abc import Collection, Iterable
from typing import Any

from tests.histories.facts import OPERATORS, SPOT, Contract, Seen, Workload, require
from tests.histories.life import Life
from tests.histories.rights import MALFORMED, NOT_THERE, Fault

ENDED: Fault = (409, "RESERVATION_ENDED")
DISABLED: Fault = (409, "FEATURE_DISABLED")
GRACE = dt.timedelta(seconds=60)


class Contracts(Life):
    """What operators, owners and managing organizations do with reservations."""

    def enable_reservations(self, org: str, on: bool) -> None:
        """Whether anything is reserved for the organization from now on."""
        self.not_reserved_for = self.not_reserved_for - {org} if on else self.not_reserved_for | {org}

    def reserve(
        self,
        seen: Seen,
        who: str,
        node_id: str,
        *,
        units: Collection[int],
        audience: Collection[str],
        managers: Collection[str],
        start: dt.datetime | None,
        end: dt.datetime | None,
        key: str | None,
    ) -> None:
        if self._not_operator(seen, who):
            return
        asked = ("reserve", node_id, frozenset(units), frozenset(audience), frozenset(managers), start, end)
        if self.kept_answer(seen, who, key, asked):
            return
        node = self.nodes[node_id]
        begins = max(start or self.now, self.now)
        faults = []
        if self.gone(node):
            faults.append((400, "NODE_DECOMMISSIONED"))
        if start is not None and start < self.now - GRACE:
            faults.append(MALFORMED)
        if end is not None and (end <= begins or end <= self.now):
            faults.append(MALFORMED)
        if not units or not audience:
            faults.append(MALFORMED)
        if set(units) - node.units.keys():
            faults.append((400, "UNKNOWN_UNIT"))
        elif not all(node.units[unit].usable for unit in units):
            faults.append((400, "UNIT_NOT_RESERVABLE"))
        if len({unit.klass for unit in node.units.values() if unit.present and unit.sellable}) > 1:
            faults.append((400, "NODE_NOT_SINGLE_CLASS"))
        if self._clash(node_id, units, begins, end):
            faults.append((409, "RESERVATION_OVERLAP"))
        if self.not_reserved_for & set(audience):
            faults.append(DISABLED)
        if seen.refused(faults):
            return
        made = Contract(
            id=seen.body["id"],
            node=node_id,
            units=frozenset(units),
            start=begins,
            end=end,
            generation=node.generation,
            classes={unit: node.units[unit].klass for unit in units},
            audience=frozenset(audience) | {OPERATORS},
            managers=frozenset(managers),
        )
        self.contracts[made.id] = made
        self.keep(seen, who, key, asked)

    def amend(self, seen: Seen, who: str, contract_id: str, **changes: Any) -> None:
        """`changes`: any of `end`, `audience`, `managers` and `reaffirm`."""
        if self._not_operator(seen, who):
            return
        contract = self.contracts[contract_id]
        node = self.nodes[contract.node]
        end = changes.get("end", contract.end)
        audience = frozenset(changes.get("audience", contract.audience)) | {OPERATORS}
        managers = frozenset(changes.get("managers", contract.managers))
        moved = end != contract.end
        reaffirmed = bool(changes.get("reaffirm")) and contract.generation != node.generation
        faults = []
        if self.ended(contract):
            faults.append(ENDED)
        if moved and end is not None and (end <= contract.start or end <= self.now):
            faults.append(MALFORMED)
        if moved and self._clash(node.id, contract.units, contract.start, end, but=contract):
            faults.append((409, "RESERVATION_OVERLAP"))
        if "audience" in changes and not changes["audience"]:
            faults.append(MALFORMED)
        if self.not_reserved_for & (audience - contract.audience):
            faults.append(DISABLED)
        if changes.get("reaffirm") and any(
            not node.units[unit].present or node.units[unit].klass != contract.classes[unit]
            for unit in contract.units
        ):
            faults.append((409, "TOPOLOGY_UNITS_MISSING"))
        if not (moved or reaffirmed or audience != contract.audience or managers != contract.managers):
            faults.append(MALFORMED)
        if seen.refused(faults):
            return
        contract.end, contract.audience, contract.managers = end, audience, managers
        if reaffirmed:
            contract.generation = node.generation

    def cancel(self, seen: Seen, who: str, contract_id: str) -> None:
        if self._not_operator(seen, who):
            return
        contract = self.contracts[contract_id]
        if not seen.refused([ENDED] if self.ended(contract) else []):
            contract.cancelled = True

    def release(self, seen: Seen, who: str, contract_id: str, units: Collection[int]) -> None:
        contract = self.contracts[contract_id]
        if not self._no_capacity(seen, who, contract, units):
            contract.released |= frozenset(units)

    def reclaim(self, seen: Seen, who: str, contract_id: str, units: Collection[int], *, dry: bool) -> None:
        contract = self.contracts[contract_id]
        if self._no_capacity(seen, who, contract, units):
            return
        on = self._claiming(contract.node, units)
        self._told(seen, on, *(("wouldTerminate", "wouldSkip") if dry else ("terminated", "skipped")))
        if not dry:
            contract.released -= frozenset(units)
            self._take_back(on)

    def reclaim_spot(
        self, seen: Seen, who: str, org: str, node_id: str, units: Collection[int] | None, *, dry: bool
    ) -> None:
        if self.gate(seen, who, "provider.write", org=org):
            return
        node = self.nodes[node_id]
        managed = self.manages(org, node_id)
        if node.owner != org and not managed:
            seen.refused([NOT_THERE])
            return
        faults = []
        if units is not None and not units:
            faults.append(MALFORMED)
        if units is not None and set(units) - node.units.keys():
            faults.append((400, "UNKNOWN_UNIT"))
        if seen.refused(faults):
            return
        reach = set(node.units)
        if node.owner != org:
            reach = {unit for contract in managed for unit in self.contracts[contract].released}
        on = self._claiming(node_id, reach if units is None else reach & set(units))
        self._told(seen, on, "terminated", "skipped")
        if not dry:
            self._take_back(on)

    # What they share

    def _not_operator(self, seen: Seen, who: str) -> bool:
        return self.gate(seen, who, "reservation.manage", hidden=True)

    def _no_capacity(self, seen: Seen, who: str, contract: Contract, units: Collection[int]) -> bool:
        """Whether a release or reclaim was refused, and rightly so."""
        if self.gate(seen, who, "reservation.capacity", hidden=True):
            return True
        org, status = self.credentials[who].org, self.status(contract)
        node = self.nodes[contract.node]
        if org not in (OPERATORS, node.owner) and not (org in contract.managers and status == "active"):
            return seen.refused([NOT_THERE])
        faults = []
        if self.ended(contract):
            faults.append(ENDED)
        elif status != "active":
            faults.append((409, "RESERVATION_NOT_ACTIVE"))
        if not units:
            faults.append(MALFORMED)
        elif set(units) - contract.units:
            faults.append((400, "UNIT_NOT_IN_RESERVATION"))
        return seen.refused(faults)

    def _clash(
        self,
        node_id: str,
        units: Iterable[int],
        start: dt.datetime,
        end: dt.datetime | None,
        *,
        but: Contract | None = None,
    ) -> bool:
        return any(
            not other.cancelled
            and other is not but
            and other.units & set(units)
            and (end is None or other.start < end)
            and (other.end is None or start < other.end)
            for other in self.of_node(node_id)
        )

    def _claiming(self, node_id: str, units: Collection[int]) -> list[Workload]:
        """Every workload with a claim on one of the units, whole."""
        return [
            workload
            for workload in self.workloads.values()
            if workload.node == node_id and workload.claims.keys() & set(units)
        ]

    def _told(self, seen: Seen, on: list[Workload], ended: str, left: str) -> None:
        """The answer names whom it ends and whom it leaves, and nothing of the other kind of answer."""
        wanted = {
            ended: sorted(workload.id for workload in on if workload.tier == SPOT),
            left: sorted(workload.id for workload in on if workload.tier != SPOT),
        }
        names = ("terminated", "skipped", "wouldTerminate", "wouldSkip")
        told = {name: sorted(seen.body[name]) for name in names if name in seen.body}
        require(told == wanted, f"answered {told}, and should {wanted}")

    def _take_back(self, on: list[Workload]) -> None:
        for workload in on:
            if workload.tier == SPOT:
                self.end(workload, "terminated", "spot_reclaimed_by_capacity_owner")
