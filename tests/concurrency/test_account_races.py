"""Organizations that are deleted, or stopped, at the moment that something is made for them."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from compute import tasks
from compute.models import Workload
from compute.services.lifecycle import account_stops
from compute.services.placement import commit
from nodes.models import Node
from openrelay.audit.actor import OPERATOR
from openrelay.audit.models import AuditEvent
from openrelay.core.errors import ApiError, Conflict, NotFound
from openrelay.identity.models import Membership, Organization
from openrelay.identity.services.memberships import add_member
from openrelay.identity.services.organizations import set_switches
from reservations.models import Reservation
from reservations.services import amending, booking, org_deletion
from tests import factories
from tests.concurrency.conftest import Crowd, statuses, together
from tests.reservations import makers
from tests.reservations.conftest import Fleet

pytestmark = pytest.mark.django_db(transaction=True)

# The test waits this long for something that may not happen.
WAIT = 1.0


def delete(org: Organization) -> None:
    org_deletion.delete_organization_as(actor=OPERATOR, organization_id=org.pk)


def in_a_thread(call: Callable[[], Any], outcome: list[Any]) -> threading.Thread:
    """Start the call in a thread; what it returns or raises goes to `outcome`."""

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def deletes_first(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, org: Organization) -> None:
    """Have the organization deleted, and that committed, just before the function `name` begins."""
    original = getattr(module, name)

    def late(*args: Any, **kwargs: Any) -> Any:
        done: list[Any] = []
        in_a_thread(partial(delete, org), done).join(60)
        assert done == [None]
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, late)


def test_what_is_created_while_the_organization_is_deleted_does_not_stay(crowd: Crowd) -> None:
    org = crowd.fleet.tenant
    for _ in range(6):
        person = factories.session(factories.user(org), org)
        crowd.secrets["person"] = person
        answers = together(
            *[partial(crowd.create, "tenant")] * 4,
            partial(crowd.call, "DELETE", f"/v1/orgs/{org.pk}", "person"),
        )
        # A create is done, or refused for lack of room, for a change in between or for a dead key.
        assert set(statuses(answers[:-1])) <= {200, 401, 409, 503}
        assert answers[-1].status_code == 204, answers[-1].text
        for _ in range(2):
            tasks.sweep_accounts()
        assert not Workload.objects.active().filter(organization=org).exists()
        for workload in Workload.objects.filter(runs__closed_at=None):
            makers.confirm(workload)
        Organization.objects.filter(pk=org.pk).update(deleted_at=None)


def test_a_reservation_and_a_deletion_at_once_leave_one_of_them(crowd: Crowd) -> None:
    org = crowd.fleet.tenant
    for number in range(6):
        crowd.secrets["person"] = factories.session(factories.user(org), org)
        reserved, gone = together(
            partial(crowd.reserve, number), partial(crowd.call, "DELETE", f"/v1/orgs/{org.pk}", "person")
        )
        assert (reserved.status_code, gone.status_code) in {(200, 409), (400, 204)}, (
            reserved.text,
            gone.text,
        )
        if reserved.status_code == 200:
            assert gone.json()["code"] == "ORG_IN_USE"
            assert crowd.act("cancel", reserved.json()).status_code == 200
        else:
            assert reserved.json()["code"] == "UNKNOWN_ORG"
            Organization.objects.filter(pk=org.pk).update(deleted_at=None)


def test_a_create_that_has_decided_is_refused_once_the_organization_is_deleted(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = factories.ssh_key(fleet.tenant)
    deletes_first(monkeypatch, commit, "insert", fleet.tenant)
    client = fleet.client("tenant")
    body = {"name": "vm", "sshKeyIds": [str(key.pk)], "gpuCount": 1}
    answer = client.post(f"/v1/orgs/{fleet.tenant.pk}/vms/create", body, format="json")
    assert answer.status_code == 409, answer.content
    assert not Workload.objects.exists()
    assert not AuditEvent.objects.filter(event="vm.created").exists()


def test_a_reservation_that_has_decided_names_who_was_deleted(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    deletes_first(monkeypatch, booking, "insert", fleet.tenant)
    answer = fleet.reserve(0)
    assert (answer.status_code, answer.json()["code"]) == (400, "UNKNOWN_ORG")
    assert str(fleet.tenant.pk) in answer.json()["error"]
    assert not Reservation.objects.exists()


@pytest.mark.parametrize("how", ["reserve", "amend"])
def test_a_deletion_waits_for_a_reservation_under_way(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """And then sees it: the reservation's transaction has written, and has not ended."""
    made = fleet.reserved(1, allowedOrgIds=[str(fleet.outsider.pk)]) if how == "amend" else None
    outcome: list[Any] = []
    module = booking if how == "reserve" else amending
    threads = []
    wake = module.announcing.wake

    def late(*args: Any) -> None:
        threads.append(in_a_thread(partial(delete, fleet.tenant), outcome))
        threads[0].join(WAIT)
        assert outcome == []
        wake(*args)

    monkeypatch.setattr(module.announcing, "wake", late)
    if made is None:
        assert fleet.reserve(0).status_code == 200
    else:
        assert fleet.amend(made, allowedOrgIds=[str(fleet.tenant.pk)]).status_code == 200
    threads[0].join(60)
    (refusal,) = outcome
    assert isinstance(refusal, Conflict)
    assert refusal.code == "ORG_IN_USE"


def test_nobody_becomes_a_member_of_an_organization_that_is_being_deleted(fleet: Fleet) -> None:
    org, person = fleet.tenant, factories.user(fleet.outsider)
    outcome: list[Any] = []
    add = partial(add_member, actor=OPERATOR, user_id=person.pk, organization_id=org.pk, role="viewer")
    with transaction.atomic():
        delete(org)
        thread = in_a_thread(add, outcome)
        thread.join(WAIT)
        assert outcome == []
    thread.join(60)
    (refusal,) = outcome
    assert isinstance(refusal, NotFound)
    assert not Membership.objects.filter(user=person, organization=org).exists()


def test_it_is_deleted_once_however_many_ask(fleet: Fleet) -> None:
    outcomes = together(*[partial(delete, fleet.tenant)] * 6)
    assert sorted(isinstance(outcome, ApiError) for outcome in outcomes) == [False] + [True] * 5
    assert AuditEvent.objects.filter(event="org.deleted").count() == 1


def test_a_node_that_others_hold_does_not_keep_the_other_nodes_waiting(
    fleet: Fleet, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SUSPENSION_GRACE_MINUTES = 0
    monkeypatch.setattr(account_stops, "_LOCK_SECONDS", 0.2)
    other = factories.node(fleet.provider)
    made = [makers.workload(node, fleet.tenant, [0]) for node in (fleet.node, other)]
    set_switches(actor=OPERATOR, organization_id=fleet.tenant.pk, account_status="suspended")
    with transaction.atomic():
        list(Node.objects.select_for_update(no_key=True).filter(pk=fleet.node.pk))
        (swept,) = together(tasks.sweep_accounts)
        assert swept is None
    assert [makers.status(workload)[0] for workload in made] == ["running", "stopped"]
    tasks.sweep_accounts()
    assert makers.status(made[0]) == ("stopped", "auto_stopped_account_suspended")


def test_two_sweeps_at_once_stop_each_workload_once(fleet: Fleet, settings: Any) -> None:
    settings.SUSPENSION_GRACE_MINUTES = 0
    for unit in range(8):
        makers.workload(fleet.node, fleet.tenant, [unit])
    set_switches(actor=OPERATOR, organization_id=fleet.tenant.pk, account_status="suspended")
    assert together(*[tasks.sweep_accounts] * 4) == [None] * 4
    assert Workload.objects.filter(status="stopped").count() == 8
    assert AuditEvent.objects.filter(event="vm.stopped").count() == 8
