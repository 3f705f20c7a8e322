"""Organizations that operators suspended, or that have nothing left, start nothing that is billed."""

import datetime as dt
from typing import Any
from uuid import UUID

import pytest
from rest_framework.test import APIClient

from compute.models import Claim, UsageSession, Workload
from compute.services.billing import accounts, burn
from nodes.models import Node
from openrelay.audit.actor import OPERATOR
from openrelay.core import clock as database_clock
from openrelay.identity.models import Organization
from openrelay.identity.services.organizations import set_switches
from tests import factories
from tests.compute.conftest import World, consistent, refused, state
from tests.compute.test_pods import Pods, pod_node
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db

HOUR = dt.timedelta(hours=1)
SUSPENDED = (409, "ACCOUNT_RESTRICTED", "suspended", "operator")
SPENT = (409, "INSUFFICIENT_BALANCE", "cents left", "balance")


def set_to(org: Organization, **switches: Any) -> None:
    """What `manage.py set_org` does."""
    set_switches(actor=OPERATOR, organization_id=org.pk, **switches)


def act(world: World, made: Workload, verb: str) -> Any:
    return world.client(made.organization).post(f"/v1/vms/{made.pk}/{verb}")


def stopped(world: World, **body: Any) -> Workload:
    """A VM of the buyer that ran and was stopped."""
    made = world.running(world.buyer, **body)
    assert act(world, made, "stop").status_code == 200
    world.says((made, "gone"), node=made.node)
    return made


@pytest.mark.parametrize(
    ("worse", "better", "why"),
    [
        ({"account_status": "suspended"}, {"account_status": "active"}, SUSPENDED),
        ({"balance_cents": 0}, {"balance_cents": 1_000}, SPENT),
        ({"balance_cents": -7}, {"balance_cents": None}, SPENT),
    ],
)
def test_nothing_is_started_and_what_runs_goes_on(
    world: World, worse: dict[str, Any], better: dict[str, Any], why: tuple[Any, ...]
) -> None:
    pods = Pods(world, pod_node(world.provider))
    small = {"gpuCount": None, "resourceSize": "cpu-small"}
    idle, bare, runs = stopped(world), stopped(world, **small), world.running(world.buyer)
    pod = pods.stopped()
    set_to(world.buyer, **worse)
    made = Workload.objects.count()
    for answer in (
        world.ask(world.buyer),
        world.ask(world.buyer, tier="spot"),
        world.ask(world.buyer, **small),
        pods.ask(),
        *(act(world, workload, "restart") for workload in (idle, bare, pod)),
    ):
        refused(answer, *why)
    assert Workload.objects.count() == made
    assert Claim.objects.count() == 1
    assert [state(workload)[0] for workload in (idle, bare, pod, runs)] == ["stopped"] * 3 + ["running"]
    assert act(world, runs, "restart").status_code == 200
    # Others are not concerned.
    assert world.ask(world.tenant).status_code == 200

    set_to(world.buyer, **better)
    for workload in (idle, bare, pod):
        assert act(world, workload, "restart").status_code == 200
    assert world.ask(world.buyer).status_code == 200
    consistent()


@pytest.mark.parametrize(
    ("worse", "why"),
    [({"account_status": "suspended"}, SUSPENDED), ({"balance_cents": 0}, SPENT)],
)
def test_an_account_is_judged_before_there_is_room_for_it(
    world: World, worse: dict[str, Any], why: tuple[Any, ...]
) -> None:
    """That there is no room, now or ever, is not what keeps it from starting anything."""
    pods = Pods(world, pod_node(world.provider))
    small = {"gpuCount": None, "resourceSize": "cpu-small"}
    idle, bare, pod = stopped(world), stopped(world, **small), pods.stopped()
    gone = stopped(world)
    Workload.objects.filter(pk=gone.pk).update(status_reason="node_removed")
    world.reserve(0, 1)
    set_to(world.tenant, **worse)
    set_to(world.buyer, **worse)
    set_to(world.provider, **worse)
    here = str(world.node.pk)
    Node.objects.update(owner_hold="maintenance")
    for answer in (
        world.ask(world.buyer),
        world.ask(world.buyer, gpuCount=64),
        world.ask(world.buyer, tier="spot"),
        world.ask(world.buyer, **small),
        pods.ask(),
        world.ask(world.tenant, nodeId=here),
        world.ask(world.tenant, nodeId=here, **small),
        world.ask(world.provider, nodeId=here),
        *(act(world, workload, "restart") for workload in (idle, bare, pod, gone)),
    ):
        refused(answer, *why)
    # Who may have what it is not billed for there is told of the room instead.
    set_to(world.provider, account_status="active")
    World(world.node, world.provider, world.provider, world.buyer).reserve(2)
    refused(world.ask(world.provider, nodeId=here), 503, "INSUFFICIENT_GPU_CAPACITY")


def test_a_balance_is_what_is_left_of_it(world: World, clock: Clock) -> None:
    runs = world.vm(world.buyer)
    clock.freeze(database_clock.read())
    world.says((runs, "running"))
    set_to(world.buyer, balance_cents=200)  # as much as one hour costs
    clock.freeze(clock.now() + dt.timedelta(minutes=59))
    factories.online(world.node)
    assert world.ask(world.buyer).status_code == 200
    clock.freeze(clock.now() + dt.timedelta(minutes=1))
    factories.online(world.node)
    refused(world.ask(world.buyer), *SPENT, "0 cents left")
    assert state(runs)[0] == "running"


def test_where_no_balance_is_set_nothing_is_summed_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def spent(organization_id: UUID) -> burn.Spent:
        asked.append(organization_id)
        return burn.spent(organization_id)

    monkeypatch.setattr(accounts, "spent", spent)
    assert world.ask(world.buyer).status_code == 200
    assert asked == []
    set_to(world.buyer, balance_cents=100)
    assert world.ask(world.buyer).status_code == 200
    assert asked == [world.buyer.pk]


def test_a_provider_on_its_own_reserved_units_needs_no_balance(world: World) -> None:
    owner = world.provider
    owned = World(node=world.node, provider=owner, tenant=owner, buyer=world.buyer)
    here = str(world.node.pk)
    owned.release(owned.reserve(0, 1), 0, 1)
    victims = [world.vm(world.buyer, tier="spot") for _ in range(2)]
    assert [owned.units(victim) for victim in victims] == [[0], [1]]
    set_to(owner, balance_cents=-5)
    # More than is reserved to it: the rest would be billed, and nobody is preempted for it.
    refused(owned.ask(owner, nodeId=here, gpuCount=3), *SPENT)
    refused(owned.ask(owner), *SPENT)
    assert [state(victim)[0] for victim in victims] == ["deploying"] * 2
    mine = owned.vm(owner, nodeId=here, gpuCount=2)
    assert [state(victim)[0] for victim in victims] == ["terminated"] * 2
    owned.says(*((victim, "gone") for victim in victims))
    owned.says((mine, "running"))
    assert UsageSession.objects.get(workload=mine).non_billable
    # Suspended it is all the same.
    set_to(owner, account_status="suspended")
    refused(owned.ask(owner, nodeId=here), *SUSPENDED)


def test_a_person_acts_for_the_organization_they_are_in(world: World) -> None:
    person = factories.user(world.buyer)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.session(person, world.buyer)}")
    set_to(world.buyer, account_status="suspended")
    body = {"name": "vm", "sshKeyIds": [str(factories.ssh_key(world.buyer).pk)], "gpuCount": 1}
    path = f"/v1/orgs/{world.buyer.pk}/vms/create"
    refused(client.post(path, body), *SUSPENDED)
    set_to(world.buyer, account_status="active", balance_cents=0)
    refused(client.post(path, body), *SPENT)
    set_to(world.buyer, balance_cents=None)
    assert client.post(path, body).status_code == 200
    shown = client.get(f"/v1/orgs/{world.buyer.pk}").json()
    assert shown["accountStatus"] == "active"
