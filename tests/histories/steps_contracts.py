"""Steps of reservations and of capacity taken back."""

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

from tests.histories.asking import Asking, Call
from tests.histories.facts import Seen
from tests.histories.people import Model
from tests.histories.real import address

HOUR = dt.timedelta(hours=1)


class ContractSteps(Asking):
    """Steps of reservations and of capacity taken back."""

    def reserve(
        self,
        number: int,
        units: frozenset[int],
        audience: Sequence[str],
        managers: Sequence[str],
        start: int | None,
        end: int | None,
        by: int | str,
        key: str | None,
    ) -> Call | None:
        node = self.one(self.model.nodes, number)
        # Now and then a unit that the node never had.
        there = len(self.model.nodes[node].units)
        units = units if by % 8 == 7 else frozenset(unit % there for unit in units)
        asker = self.asker(by, "platform")
        starts = None if start is None else self.model.now + dt.timedelta(seconds=start)
        ends = None if end is None else self.model.now + HOUR * end + dt.timedelta(seconds=start or 0)
        body: dict[str, Any] = {
            "unitIds": [address(unit) for unit in sorted(units)],
            "allowedOrgIds": self.real.org_ids(audience),
            "managingOrgIds": self.real.org_ids(managers),
        }
        body |= {} if starts is None else {"startsAt": starts.isoformat()}
        body |= {} if ends is None else {"endsAt": ends.isoformat()}
        return Call(
            f"{asker} reserves {sorted(units)} of {node} from {starts} to {ends}",
            lambda: self.real.ask("POST", f"/v1/nodes/{node}/reservations", asker, body, key),
            lambda model, seen: model.reserve(
                seen,
                asker,
                node,
                units=units,
                audience=audience,
                managers=managers,
                start=starts,
                end=ends,
                key=key,
            ),
            key=key,
        )

    def _on_contract(
        self, number: int, by: int | str, rest: str, body: Any, told: Callable[[Model, Seen, str, str], None]
    ) -> Call | None:
        contract = self.one(self.contracts(), number)
        if contract is None:
            return None
        node = self.model.nodes[contract.node]
        natural = "platform"
        if rest in ("/release", "/reclaim"):
            natural = [node.owner, *sorted(contract.managers), "platform"][by % (2 + len(contract.managers))]
        asker = self.asker(by, natural)
        path = f"/v1/nodes/{contract.node}/reservations/{contract.id}{rest}"
        return Call(
            f"{asker}: {rest or 'amend'} {body} of {contract.id}",
            lambda: self.real.ask("POST" if rest else "PATCH", path, asker, body),
            lambda model, seen: told(model, seen, asker, contract.id),
        )

    def amend_end(self, number: int, end: int | None, by: int | str) -> Call | None:
        ends = None if end is None else self.model.now + HOUR * end
        body = {"endsAt": None if ends is None else ends.isoformat()}
        return self._on_contract(
            number, by, "", body, lambda model, seen, asker, pk: model.amend(seen, asker, pk, end=ends)
        )

    def amend_audience(self, number: int, audience: Sequence[str], by: int | str) -> Call | None:
        body = {"allowedOrgIds": self.real.org_ids(audience)}
        return self._on_contract(
            number,
            by,
            "",
            body,
            lambda model, seen, asker, pk: model.amend(seen, asker, pk, audience=audience),
        )

    def amend_managers(self, number: int, managers: Sequence[str], by: int | str) -> Call | None:
        body = {"managingOrgIds": self.real.org_ids(managers)}
        return self._on_contract(
            number,
            by,
            "",
            body,
            lambda model, seen, asker, pk: model.amend(seen, asker, pk, managers=managers),
        )

    def reaffirm(self, number: int, by: int | str) -> Call | None:
        return self._on_contract(
            number,
            by,
            "",
            {"reaffirm": True},
            lambda model, seen, asker, pk: model.amend(seen, asker, pk, reaffirm=True),
        )

    def cancel(self, number: int, by: int | str) -> Call | None:
        return self._on_contract(
            number, by, "/cancel", None, lambda model, seen, asker, pk: model.cancel(seen, asker, pk)
        )

    def release(self, number: int, units: frozenset[int], by: int | str) -> Call | None:
        units = self._mostly_held(number, units)
        body = {"unitIds": [address(unit) for unit in sorted(units)]}
        return self._on_contract(
            number, by, "/release", body, lambda model, seen, asker, pk: model.release(seen, asker, pk, units)
        )

    def reclaim(self, number: int, units: frozenset[int], dry: bool, by: int | str) -> Call | None:
        units = self._mostly_held(number, units)
        body = {"unitIds": [address(unit) for unit in sorted(units)], "dryRun": dry}
        return self._on_contract(
            number,
            by,
            "/reclaim",
            body,
            lambda model, seen, asker, pk: model.reclaim(seen, asker, pk, units, dry=dry),
        )

    def _mostly_held(self, number: int, units: frozenset[int]) -> frozenset[int]:
        """Of the units those that the reservation has, unless it has none of them."""
        contract = self.one(self.contracts(), number)
        return (units & contract.units if contract is not None else units) or units

    def reclaim_spot(
        self, number: int, units: frozenset[int] | None, dry: bool, by: int | str
    ) -> Call | None:
        node = self.one(self.model.nodes, number)
        natural = self.model.nodes[node].owner if by % 2 else "manager"
        asker = self.asker(by, natural)
        org = self.model.credentials[asker].org
        body: dict[str, Any] = {"dryRun": dry}
        if units is not None:
            body["unitIds"] = [address(unit) for unit in sorted(units)]
        path = self.real.org_path(org, f"provider/nodes/{node}/reclaim-spot")
        return Call(
            f"{asker} takes spot back on {units} of {node}",
            lambda: self.real.ask("POST", path, asker, body),
            lambda model, seen: model.reclaim_spot(seen, asker, org, node, units, dry=dry),
        )
