"""Callers who want the same at one moment: one gets it, the others are told, and nothing is half done."""

import datetime as dt
from collections import Counter
from functools import partial
from typing import Any

from compute.models import Claim, Workload
from nodes.models import HoldUnit
from openrelay.audit.models import AuditEvent
from openrelay.core import clock as database_clock
from openrelay.core.clock import rfc3339
from reservations import tasks
from reservations.models import Announcement, Reservation
from reservations.services.invariants import violations
from tests import factories
from tests.concurrency.conftest import Crowd, statuses, together
from tests.reservations.makers import confirm

HOUR = dt.timedelta(hours=1)


def units(*numbers: int) -> list[str]:
    return [factories.address(number) for number in numbers]


def test_of_fifty_who_reserve_one_unit_one_gets_it(crowd: Crowd) -> None:
    answers = together(*[partial(crowd.reserve, 0)] * 50)
    assert statuses(answers) == [200] + [409] * 49
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {
        "RESERVATION_OVERLAP"
    }
    assert Reservation.objects.count() == HoldUnit.objects.count() == 1
    assert AuditEvent.objects.filter(event="reservation.created").count() == 1


def test_units_named_in_opposite_orders_never_deadlock(crowd: Crowd) -> None:
    for _ in range(100):
        answers = together(partial(crowd.reserve, 0, 1, 2, 3, 4, 5), partial(crowd.reserve, 7, 6, 5, 4, 3, 2))
        assert statuses(answers) == [200, 409]
        winner = next(answer for answer in answers if answer.status_code == 200)
        assert crowd.act("cancel", winner.json()).status_code == 200


def test_reserving_against_an_extension_lets_one_of_them_have_the_time(crowd: Crowd) -> None:
    won: Counter[str] = Counter()
    for _ in range(20):
        now = database_clock.read()
        first = crowd.reserved(0, endsAt=rfc3339(now + HOUR))
        extended, reserved = together(
            partial(crowd.amend, first, endsAt=""),
            partial(crowd.reserve, 0, startsAt=rfc3339(now + 2 * HOUR)),
        )
        assert statuses([extended, reserved]) == [200, 409]
        won["extended" if extended.status_code == 200 else "reserved"] += 1
        assert violations() == []
        for answer in (extended, reserved):
            if answer.status_code == 200:
                crowd.act("cancel", answer.json())
        if extended.status_code != 200:
            crowd.act("cancel", first)
    assert won.total() == 20


def test_amendments_at_one_moment_are_all_whole(crowd: Crowd) -> None:
    made = crowd.reserved(0, 1)
    now = database_clock.read()
    ends = [rfc3339(now + HOUR * (n + 1)) for n in range(6)]
    audiences = [crowd.fleet.tenant, crowd.fleet.outsider, crowd.fleet.manager] * 2
    answers = together(
        *(
            partial(crowd.amend, made, endsAt=end, allowedOrgIds=[str(org.pk)])
            for end, org in zip(ends, audiences, strict=True)
        )
    )
    assert statuses(answers) == [200] * 6
    final = crowd.call("GET", f"{crowd.fleet.path}/{made['id']}").json()
    pairs = {end: str(org.pk) for end, org in zip(ends, audiences, strict=True)}
    assert pairs[final["endsAt"]] in final["allowedOrgIds"]
    assert len(final["allowedOrgIds"]) == 2
    assert AuditEvent.objects.filter(event="reservation.amended").count() == 6


def test_of_many_who_cancel_one_does(crowd: Crowd) -> None:
    made = crowd.reserved(0)
    answers = together(*[partial(crowd.act, "cancel", made)] * 12)
    assert statuses(answers) == [200] + [409] * 11
    assert AuditEvent.objects.filter(event="reservation.cancelled").count() == 1


def test_releasing_against_cancelling_is_in_one_order_or_the_other(crowd: Crowd) -> None:
    for _ in range(15):
        made = crowd.reserved(0)
        released, cancelled = together(
            partial(crowd.act, "release", made, unitIds=units(0)), partial(crowd.act, "cancel", made)
        )
        assert cancelled.status_code == 200
        assert released.status_code in (200, 409)
        row = HoldUnit.objects.get(hold_id=made["id"])
        assert row.released == (released.status_code == 200)


def test_a_reservation_made_during_a_topology_change_is_pinned_to_what_was_there(crowd: Crowd) -> None:
    for round_ in range(10):
        size = 7 if round_ % 2 == 0 else 8
        generation = crowd.fleet.node.topology_gen
        answer, taken = together(
            partial(crowd.reserve, 7), partial(factories.inventory, crowd.fleet.node, size)
        )
        assert taken.generation == generation + 1
        if size == 7 and answer.status_code == 400:
            assert answer.json()["code"] == "UNIT_NOT_RESERVABLE"  # it was gone first
            continue
        if size == 8 and answer.status_code == 400:
            continue  # not back yet
        made = crowd.call("GET", f"{crowd.fleet.path}/{answer.json()['id']}").json()
        assert made["status"] == ("active" if made["topologyGen"] == taken.generation else "needs-review")
        if size == 7:
            assert made["status"] == "needs-review"
        crowd.act("cancel", made)


def test_sweeps_at_one_moment_announce_once(crowd: Crowd, clock: Any) -> None:
    start = database_clock.read() + HOUR
    for unit in range(8):
        crowd.reserved(unit, startsAt=rfc3339(start), endsAt=rfc3339(start + HOUR))
    clock.freeze(start + 2 * HOUR)
    for result in together(*[tasks.announce_all_due] * 4):
        assert result is None
    assert Announcement.objects.count() == 16
    assert AuditEvent.objects.filter(event="reservation.activated").count() == 8
    assert AuditEvent.objects.filter(event="reservation.expired").count() == 8
    clock.reset()


# Against placement


def test_of_fifty_who_create_on_eight_units_eight_succeed(crowd: Crowd) -> None:
    answers = together(*[partial(crowd.create, "outsider")] * 50)
    assert statuses(answers) == [200] * 8 + [503] * 42
    claims = Claim.objects.filter(node=crowd.fleet.node)
    assert claims.count() == 8
    assert Workload.objects.count() == 8


def test_placing_against_cancelling_is_in_one_order_or_the_other(crowd: Crowd) -> None:
    node = str(crowd.fleet.node.pk)
    for _ in range(15):
        made = crowd.reserved(0)
        placed, cancelled = together(
            partial(crowd.create, "tenant", nodeId=node), partial(crowd.act, "cancel", made)
        )
        assert cancelled.status_code == 200
        if placed.status_code == 200:
            claim = Claim.objects.get(workload_id=placed.json()["id"])
            # It was placed while the reservation stood: what gave it the right is on the claim.
            assert str(claim.hold_id) == made["id"] or claim.unit.address != factories.address(0)
            assert crowd.terminate("tenant", placed.json()["id"]).status_code == 200
            confirm_all(crowd)
        else:
            assert (placed.status_code, placed.json()["code"]) == (400, "UNKNOWN_NODE")
        assert violations() == []


def test_a_reclaimed_unit_never_goes_to_a_bystander(crowd: Crowd) -> None:
    """Spot creates in a loop against release and reclaim: after a reclaim's answer nobody else is there."""
    held = crowd.reserved(*range(8))
    stop = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5)
    bought: list[str] = []
    terminated: list[str] = []

    def buy(who: str) -> None:
        while dt.datetime.now(dt.UTC) < stop:
            answer = crowd.create(who, tier="spot")
            assert answer.status_code in (200, 503), answer.text
            if answer.status_code == 200:
                bought.append(answer.json()["id"])

    def move() -> int:
        rounds = 0
        while dt.datetime.now(dt.UTC) < stop:
            assert crowd.act("release", held, "provider", unitIds=units(0, 1)).status_code == 200
            confirm_all(crowd)
            answer = crowd.act("reclaim", held, "provider", unitIds=units(0, 1))
            assert answer.status_code == 200, answer.text
            terminated.extend(answer.json()["terminated"])
            claims = Claim.objects.filter(node=crowd.fleet.node).values_list("unit__address", flat=True)
            assert list(claims) == []
            rounds += 1
        return rounds

    *buyers, rounds = together(*[partial(buy, "outsider")] * 2, partial(buy, "manager"), move)
    assert buyers == [None] * 3
    assert isinstance(rounds, int), rounds
    assert rounds > 3
    assert bought, "nobody ever bought, so nothing was shown"
    # Each one that was bought was ended by a reclaim, once.
    assert Counter(terminated) == Counter(bought)
    assert Claim.objects.count() == 0
    assert crowd.create("outsider", tier="spot").status_code == 503
    mine = crowd.create("tenant", nodeId=str(crowd.fleet.node.pk))
    assert mine.status_code == 200, mine.text


def test_a_victim_of_two_reclaims_is_ended_once(crowd: Crowd) -> None:
    held = crowd.reserved(0, 1, 2)
    assert crowd.act("release", held, unitIds=units(0, 1, 2)).status_code == 200
    others = crowd.reserved(3, 4, 5, 6, 7)
    bought = [crowd.create("outsider", tier="spot").json()["id"] for _ in range(3)]
    path = f"/v1/orgs/{crowd.fleet.provider.pk}/provider/nodes/{crowd.fleet.node.pk}/reclaim-spot"
    answers = together(
        *[partial(crowd.act, "reclaim", held, unitIds=units(0, 1, 2))] * 4,
        *[partial(crowd.call, "POST", path, "provider")] * 3,
        *[partial(crowd.terminate, "outsider", vm_id) for vm_id in bought],
    )
    assert statuses(answers) == [200] * 10
    told = [vm_id for answer in answers[:7] for vm_id in answer.json()["terminated"]]
    assert max(Counter(told).values(), default=0) <= 1
    for vm_id in bought:
        assert AuditEvent.objects.filter(target_id=vm_id, event="vm.terminated").count() == 1
    assert crowd.act("cancel", others).status_code == 200


def confirm_all(crowd: Crowd) -> None:
    """The node's agent says of every guest to be torn down that it is gone."""

    for made in Workload.objects.filter(runs__desired="gone", runs__closed_at=None).distinct():
        confirm(made)
