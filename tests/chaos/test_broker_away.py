"""The broker only wakes work up: while it is silent or gone requests succeed, and what it would have woken is
picked up from the database when it is back.
"""

import datetime as dt
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from tests.chaos.running import Whole

pytestmark = pytest.mark.slow


@contextmanager
def silent(whole: Whole) -> Iterator[None]:
    """The broker takes connections, and answers nothing."""
    pid = whole.children()["valkey"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def gone(whole: Whole) -> Iterator[None]:
    """The broker is killed, and its supervisor held so that it cannot start it again."""
    assert whole.supervisor is not None
    whole.supervisor.send_signal(signal.SIGSTOP)
    try:
        os.kill(whole.children()["valkey"], signal.SIGKILL)
        yield
    finally:
        whole.supervisor.send_signal(signal.SIGCONT)


def vm_made_and_ended(whole: Whole) -> None:
    """Create a VM and terminate it, which queues its teardown. Who waits for a broker that says nothing waits
    longer than this client does.
    """
    org = whole.demo["orgs"]["buyer"]
    with whole.caller("buyer") as buyer:
        for _ in range(2):
            body = {
                "name": f"away-{uuid4().hex[:8]}",
                "sshKeyIds": [whole.demo["sshKeys"]["buyer"]],
                "gpuCount": 1,
            }
            made = buyer.post(f"/v1/orgs/{org}/vms/create", json=body)
            assert made.status_code == 200, made.text
            ended = buyer.post(f"/v1/vms/{made.json()['id']}/terminate")
            assert ended.json()["status"] == "terminated", ended.text


def test_requests_succeed_without_a_broker_and_work_is_picked_up_when_it_returns(whole: Whole) -> None:
    node = whole.demo["nodes"]["vm"][2]
    with silent(whole):
        vm_made_and_ended(whole)

    with gone(whole):
        with whole.caller("operator") as operator:
            units = operator.get(f"/v1/nodes/{node}/reservations/units").json()
            unit = next(row["id"] for row in units if row["reservable"] and row["state"] == "free")
            ((now,),) = whole.rows("SELECT now()")
            starts, ends = now + dt.timedelta(seconds=8), now + dt.timedelta(seconds=9)
            made = operator.post(
                f"/v1/nodes/{node}/reservations",
                json={
                    "unitIds": [unit],
                    "allowedOrgIds": [whole.demo["orgs"]["tenant"]],
                    "startsAt": starts.isoformat(),
                    "endsAt": ends.isoformat(),
                },
            )
        assert made.status_code == 200, made.text
        vm_made_and_ended(whole)
        # Nodes ask for their work themselves: guests go without any broker.
        whole.until(
            "the guests are gone",
            lambda: not whole.rows("SELECT id FROM compute_occupancy WHERE closed_at IS NULL"),
        )
        # And rights go by the clock: the term is over although nobody was told of it.
        whole.until("the term is over", lambda: whole.rows("SELECT now() > %s", ends) == [(True,)])
        with whole.caller("operator") as operator:
            read = operator.get(f"/v1/nodes/{node}/reservations/{made.json()['id']}").json()
        assert read["status"] == "expired"
        announced = "SELECT event, occurred_at FROM reservations_announcement WHERE reservation_id = %s"
        assert whole.rows(announced, made.json()["id"]) == []

    whole.until(
        "both moments are announced",
        lambda: len(whole.rows(announced, made.json()["id"])) == 2,
    )
    assert sorted(whole.rows(announced, made.json()["id"])) == [
        ("reservation.activated", starts),
        ("reservation.expired", ends),
    ]
    whole.until("all is well again", whole.ready)
