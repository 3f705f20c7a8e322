"""The model: what workloads cost, what organizations have left, and who starts nothing for that."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from tests.histories.facts import UP, Bill, Node, Workload
from tests.histories.placing import Placing
from tests.histories.rights import Fault

RESTRICTED: Fault = (409, "ACCOUNT_RESTRICTED")
NO_BALANCE: Fault = (409, "INSUFFICIENT_BALANCE")
MICROSECOND = dt.timedelta(microseconds=1)
HOUR = dt.timedelta(hours=1) // MICROSECOND
GRACE = dt.timedelta(hours=1)


class Money(Placing):
    """Prices, bills and accounts."""

    # What operators do at the server

    def set_price(self, model: str, tier: str, cents: int) -> None:
        self.prices[model, tier] = cents

    def suspend(self, org: str, on: bool) -> None:
        """Whether the organization starts nothing from now on."""
        if not on:
            self.suspended.pop(org, None)
        elif org not in self.suspended:
            self.suspended[org] = self.now

    def set_balance(self, org: str, cents: int | None) -> None:
        """What the organization has in all, spent or not; None: nobody counts."""
        self.balances[org] = cents
        if cents is None:
            self._tell(org, low=False, depleted=False)

    # What is stopped

    def sweep_accounts(self) -> None:
        """Tell who has little or nothing left; stop what runs for those told, or suspended, an hour ago."""
        for org, balance in self.balances.items():
            rates = [
                bill.cents for bill in self.bills if bill.org == org and not bill.free and bill.end is None
            ]
            if balance is not None and (rates or org in self.told_low or org in self.told_depleted):
                left = balance - self.spent(org)
                self._tell(org, low=left < 24 * sum(rates), depleted=left <= 0)
        for workload in self.workloads.values():
            reason = self._stops(workload.org)
            if workload.status not in UP or not reason or self.gone(self.nodes[workload.node]):
                continue
            if not self._is_free(workload):
                self.end(workload, "failed" if workload.status == "pending" else "stopped", reason)

    def _tell(self, org: str, *, low: bool, depleted: bool) -> None:
        self.told_low = self.told_low | {org} if low or depleted else self.told_low - {org}
        if not depleted:
            self.told_depleted.pop(org, None)
        else:
            self.told_depleted.setdefault(org, self.now)

    def _stops(self, org: str) -> str:
        """Why what runs for the organization is stopped; empty when it is not."""
        if org in self.suspended and self.suspended[org] <= self.now - GRACE:
            return "auto_stopped_account_suspended"
        told = self.told_depleted.get(org)
        if told is not None and told <= self.now - GRACE and self.broke(org):
            return "auto_stopped_insufficient_balance"
        return ""

    def _is_free(self, workload: Workload) -> bool:
        """Whether the workload is not paid for: by its bill while it runs, by the bill it would get else."""
        bill = self.bill_of(workload)
        return bill.free if bill is not None else self._would_be_free(workload)

    def _would_be_free(self, workload: Workload) -> bool:
        rights = {
            unit: contract if contract is not None and self.in_term(self.contracts[contract]) else None
            for unit, contract in workload.claims.items()
        }
        return self.free_of_charge(workload.org, self.nodes[workload.node], rights)

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
        free = self._would_be_free(workload)
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
