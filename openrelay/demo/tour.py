"""A walk through the whole promise against a running server, by the published client, as each actor sees it.

Every answer is compared with what it should be; the first surprise ends the tour.
"""

from typing import Any

from openrelay.demo.asking import code_of, expect, told
from openrelay.demo.stage import GET, Stage

INTRODUCTION = (
    "A tour of OpenRelay at {url}, by the published client.",
    "The actors are organizations of the demo: the operator runs the platform, the desk looks after capacity",
    "for others, and tenant, buyer and outsider are customers. What the tour makes, and ends again, is named",
    "{mark}",
)


class Tour(Stage):
    """The story, step by step."""

    def run(self) -> None:
        """Tell all of it. Raises Surprise at the first answer that is not what it should be."""
        with self.alone():
            for line in INTRODUCTION:
                self.say(line.format(url=self.demo["baseUrl"], mark=self.mark))
            self.knock()
            self.tidy()
            mine, other, third = self.choose()
            before = self.reserve(mine, other)
            self.sell(mine, before)
            spot = self.buy(mine, other)
            self.take_back(mine, spot)
            own = self.use(mine, other)
            self.review(mine, other, third, own)
            self.end(own, before)

    def reserve(self, mine: str, other: str) -> Any:
        """Reserve two units; returns what an outsider could have before."""
        self.step("The operator lists the GPU units of a node")
        self.sees(self.operator, f"node {self.hardware.hostname(self.node)}, {self.node}")
        for unit in self.units().values():
            state = (
                unit.state
                if unit.reservable
                else f"{unit.state}, not reservable: {unit.not_reservable_reason}"
            )
            self.say(f"                {unit.id}  {unit.gpu_model_name}  {unit.alloc_class}  {state}")
        before = self.availability(self.outsider)

        self.step(f"The operator reserves {mine} and {other} for the tenant; the desk may manage them")
        made = self.server.got(
            "reservations.create_node_reservation",
            self.node,
            client=self.operator.once(f"{self.mark}-reserve"),
            body=self.server.model(
                "CreateNodeReservationRequest",
                unit_ids=[mine, other],
                allowed_org_ids=[self.tenant.org],
                managing_org_ids=[self.desk.org],
                contract_ref=self.mark,
                reason="a tour",
            ),
        )
        self.reservation = made.id
        self.sees(self.operator, f"reservation {made.id} is {made.status}, without end")
        expect(made.status == "active", f"the new reservation is {made.status}, not active")
        expect(
            set(made.allowed_org_ids) == {self.tenant.org, self.demo["orgs"]["platform"]},
            f"the audience is {made.allowed_org_ids}, not the tenant and the platform's operators",
        )

        self.step("Who can have what now")
        tenant = self.availability(self.tenant)
        outsider = self.availability(self.outsider)
        expect(tenant.reserved_free_gpus == 2, "the tenant does not see two GPUs reserved to it")
        expect(tenant.free_gpus == before.free_gpus, "reserving took something from the tenant")
        expect(
            (outsider.free_gpus, outsider.total_gpus) == (before.free_gpus - 2, before.total_gpus - 2),
            "the outsider still counts the reserved GPUs",
        )
        said = self.server.refused(
            GET, self.node, made.id, client=self.outsider.client, status=404, code="NOT_FOUND"
        )
        self.sees(self.outsider, f"asks for the reservation: {said}")

        self.step(f"{other} cannot be promised twice")
        said = self.server.refused(
            "reservations.create_node_reservation",
            self.node,
            client=self.operator.client,
            body=self.server.model(
                "CreateNodeReservationRequest",
                unit_ids=[other],
                allowed_org_ids=[self.outsider.org],
                contract_ref=self.mark,
            ),
            status=409,
            code="RESERVATION_OVERLAP",
        )
        self.sees(self.operator, said)
        return before

    def sell(self, mine: str, before: Any) -> None:
        """Put one unit on the spot market."""
        self.step(f"{mine} is idle: the desk releases it to the spot market")
        released = self.server.got(
            "reservations.release_reservation_units",
            self.node,
            self.reservation,
            client=self.desk.client,
            body=self.server.model("ReservationUnitsRequest", unit_ids=[mine], reason="idle this week"),
        )
        expect(released.released_unit_ids == [mine], f"released are {released.released_unit_ids}")
        self.sees(self.desk, f"released: {', '.join(released.released_unit_ids)}; still the reservation's")
        seen = self.availability(self.buyer)
        expect(seen.free_gpus == before.free_gpus - 2, "a released unit counts as free for everybody")
        expect(
            (seen.spot_free_gpus or 0) == (before.spot_free_gpus or 0) + 1, "the released unit is not on sale"
        )

    def buy(self, mine: str, other: str) -> str:
        """Buy all there is as spot; returns the VM on the released unit."""
        self.step("The buyer takes every GPU that is for sale, as spot; one of them is the released unit")
        bought = 0
        while True:
            answer = self.create_vm(self.buyer, f"spot-{bought + 1}", gpu_model_id=self.model, tier="spot")
            if code_of(answer) == "INSUFFICIENT_GPU_CAPACITY":
                break
            expect(
                answer.status_code == 200, f"a spot VM should have been had, and was answered {told(answer)}"
            )
            bought += 1
        units = self.units()
        spot = str(units[mine].claimed_by or "").removeprefix("vm:")
        expect(bool(spot), f"{bought} spot VMs were bought, and none of them landed on {mine}")
        expect(units[other].state == "free", f"{other} was not released, and is {units[other].state}")
        self.runs(self.buyer, spot)
        self.sees(self.buyer, f"has {bought} spot VMs; {self.named(self.buyer, spot)} runs on {mine}")

        self.step("An ordinary request never lands on reserved units, released or not")
        answer = self.create_vm(self.buyer, "ordinary", gpu_model_id=self.model, tier="community")
        self.kept_off(self.buyer, answer, {mine, other})
        return spot

    def take_back(self, mine: str, spot: str) -> None:
        """Reclaim the unit, first to see what that would do."""
        reclaim = "reservations.reclaim_reservation_units"
        self.step("The desk first asks what taking the unit back would do")
        dry = self.server.got(
            reclaim,
            self.node,
            self.reservation,
            client=self.desk.client,
            body=self.server.model("ReservationReclaimRequest", unit_ids=[mine], dry_run=True),
        )
        expect(
            (dry.would_terminate, dry.would_skip) == ([spot], []),
            f"the dry run would terminate {dry.would_terminate} and skip {dry.would_skip}, not just {spot}",
        )
        expect(self.vm(self.buyer, spot).status == "running", "a dry run ended the VM")
        self.sees(
            self.desk, f"would terminate {self.named(self.buyer, spot)} and nobody else; nothing has changed"
        )

        self.step("and takes it back")
        done = self.server.got(
            reclaim,
            self.node,
            self.reservation,
            client=self.desk.client,
            body=self.server.model(
                "ReservationReclaimRequest", unit_ids=[mine], reason="the tenant needs it"
            ),
        )
        # Sent a second time after a crash, it finds that it has been done.
        expected = ([spot], []) if self.server.lost else ([spot],)
        expect(
            done.terminated in expected and done.skipped == [],
            f"reclaiming terminated {done.terminated} and skipped {done.skipped}",
        )
        expect(done.released_unit_ids == [], "the unit is still released")
        self.sees(self.desk, f"terminated {self.named(self.buyer, spot)}")
        ended = self.vm(self.buyer, spot)
        self.sees(self.buyer, f"{self.named(self.buyer, spot)} is {ended.status}: {ended.status_reason}")
        expect(
            (ended.status, ended.status_reason) == ("terminated", "spot_reclaimed_by_capacity_owner"),
            f"the VM is {ended.status}: {ended.status_reason}",
        )
        self.server.until(f"{mine} coming free", lambda: self.units()[mine].state == "free")

    def use(self, mine: str, other: str) -> str:
        """The tenant uses what is reserved to it; returns its VM."""
        self.step("The tenant names the node, and has its GPU")
        answer = self.create_vm(self.tenant, "own", gpu_model_id=self.model, node_id=self.node)
        expect(answer.status_code == 200, f"the tenant was answered {told(answer)}")
        own: str = answer.parsed.id
        self.runs(self.tenant, own)
        on = self.claimed(own)
        self.sees(self.tenant, f"{self.named(self.tenant, own)} runs on {', '.join(on)}")
        expect(
            len(on) == 1 and on <= {mine, other}, f"the tenant's VM is on {on}, which is not reserved to it"
        )
        return own

    def review(self, mine: str, other: str, third: str, own: str) -> None:
        """The hardware changes under the reservation, twice, and the operator settles it."""
        console = f"{self.demo['console']['url']}reservations/reservation/review/"
        with self.hardware.without(self.node, third):
            self.step(f"{third} vanishes from the node: every reservation there needs review")
            self.server.until("needing review", lambda: self.contract().status == "needs-review")
            self.sees(self.operator, "the reservation is needs-review; the console has the queue, and shows")
            self.say(f"                then and now side by side: {console}")
            answer = self.create_vm(self.tenant, "in-review", node_id=self.node)
            self.kept_off(self.tenant, answer, {mine, other})
            seen = self.availability(self.tenant)
            expect(not seen.reserved_free_gpus, "in review something still counts as reserved to the tenant")
            self.availability(self.outsider)
            expect(self.vm(self.tenant, own).status == "running", "a review ended a workload")
            self.sees(
                self.tenant, f"{self.named(self.tenant, own)} runs on: a review withholds, and ends nothing"
            )

            self.step("The operator re-affirms it on the hardware as it is now")
            self.reaffirm()
        self.step(f"{third} comes back, which is a change too, and is affirmed as well")
        self.server.until("needing review again", lambda: self.contract().status == "needs-review")
        self.reaffirm()

    def reaffirm(self) -> None:
        """Pin the reservation to the node's hardware as it is now."""
        self.server.done(
            "reservations.update_node_reservation",
            self.node,
            self.reservation,
            client=self.operator.client,
            body=self.server.model("UpdateNodeReservationRequest", reaffirm=True),
            repeated=(400, "VALIDATION_ERROR"),
        )
        now = self.contract()
        expect(now.status == "active", f"after re-affirming the reservation is {now.status}")
        self.sees(self.operator, f"active again, pinned to topology generation {now.topology_gen}")

    def end(self, own: str, before: Any) -> None:
        """Cancel, tidy up, and see that all is as it was."""
        self.step("The operator cancels the reservation; what runs goes on running")
        self.server.done(
            "reservations.cancel_node_reservation",
            self.node,
            self.reservation,
            client=self.operator.client,
            repeated=(409, "RESERVATION_ENDED"),
        )
        now = self.contract()
        expect(now.status == "cancelled", f"after cancelling the reservation is {now.status}")
        expect(self.vm(self.tenant, own).status == "running", "cancelling ended a workload")
        self.sees(self.operator, f"the reservation is {now.status}")
        self.sees(self.tenant, f"{self.named(self.tenant, own)} is running")

        self.step("Everybody ends their VMs, and all is as it was")
        self.tidy()
        self.server.until("the GPUs coming free", self.gone)
        after = self.availability(self.outsider)
        expect(
            (after.free_gpus, after.total_gpus) == (before.free_gpus, before.total_gpus),
            "what the outsider may have is not what it was before the tour",
        )
