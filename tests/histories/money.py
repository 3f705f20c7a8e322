"""The model: what workloads cost, what organizations have left, and who starts nothing for that."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from tests.histories.facts import Bill, Node, Workload
from tests.histories.placing import Placing
from tests.histories.rights import Fault

RESTRICTED: Fault = (409, "ACCOUNT_RESTRICTED")
NO_BALANCE: Fault = (409, "INSUFFICIENT_BALANCE")
MICROSECOND = dt.timedelta(microseconds=1)
HOUR = dt.timedelta(hours=1) // MICROSECOND


class Money(Placing):
    """Prices, bills and accounts."""

    # What operators do at the server

    def set_price(self, model: str, tier: str, cents: int) -> None:
        self.prices[model, tier] = cents

    def suspend(self, org: str, on: bool) -> None:
        """Whether the organization starts nothing from now on."""
        self.suspended = self.suspended | {org} if on else self.suspended - {org}

    def set_balance(self, org: str, cents: int | None) -> None:
        """What the organization has in all, spent or not; None: nobody counts."""
        self.balances[org] = cents

    # Who may start something

    def broke(self, org: str) -> bool:
        """Whether the organization has nothing left."""
        balance = self.balances.get(org)
        return balance is not None and balance - self.spent(org) <= 0

    def barred(self, org: str) -> list[Fault]:
        """Why nothing is started for the organization that it would pay for."""
        faults = [RESTRICTED] if org in self.suspended else []
        return [*faults, NO_BALANCE] if self.broke(org) else faults

    def free_of_charge(self, org: str, node: Node, rights: Mapping[int, str | None]) -> bool:
        """Whether the organization pays nothing there: on its own node, and on what is reserved to it alone.

        `rights` has for each unit the contract by which the organization may have it.
        """
        return node.owner == org and bool(rights) and None not in rights.values()

    # What is spent

    def catalog(self, workload: Workload) -> int:
        """What an hour of the workload costs by today's prices."""
        if not workload.count:
            return self.prices[workload.model, ""]
        return self.prices[workload.model, workload.tier] * workload.count

    def open_bill(self, workload: Workload) -> None:
        """It comes to run, at today's rate."""
        rights = {
            unit: contract if contract is not None and self.in_term(self.contracts[contract]) else None
            for unit, contract in workload.claims.items()
        }
        free = self.free_of_charge(workload.org, self.nodes[workload.node], rights)
        self.bills.append(Bill(workload.id, workload.org, self.catalog(workload), free, self.now))

    def close_bill(self, workload: Workload) -> None:
        """It runs no more. Nobody pays for a node that was silent for too long, or has come to its end."""
        bill = self.bill_of(workload)
        if bill is not None:
            bill.end = max(bill.start, self.last_moment(self.nodes[workload.node]))

    def bill_of(self, workload: Workload) -> Bill | None:
        """What the workload, which runs, is paid by."""
        return next((bill for bill in self.bills if bill.workload == workload.id and bill.end is None), None)

    def spent(self, org: str) -> int:
        """Whole cents that the organization has spent so far."""
        sums = 0
        for bill in self.bills:
            if bill.org == org and not bill.free:
                sums += ((bill.end or self.now) - bill.start) // MICROSECOND * bill.cents
        return sums // HOUR

    def burn(self, workload: Workload) -> dict[str, Any]:
        """What a workload costs now, and what its organization spends."""
        bill = self.bill_of(workload)
        theirs = [one for one in self.bills if one.org == workload.org and not one.free]
        spent = self.spent(workload.org)
        return {
            "rateSource": "locked" if bill else "catalog",
            "pricePerHourCents": bill.cents if bill else self.catalog(workload),
            "nonBillable": bill.free if bill else None,
            "orgBurnPerHourCents": sum(one.cents for one in theirs if one.end is None),
            "orgAccruedCents": spent,
            "orgAvailableCents": (self.balances.get(workload.org) or 0) - spent,
        }
