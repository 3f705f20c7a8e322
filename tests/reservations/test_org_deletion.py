"""Deleting an organization: what is in the way, what ends, what stays."""

import datetime as dt
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from rest_framework.test import APIClient

from compute import tasks
from compute.models import Claim, UsageSession, Workload
from compute.services.lifecycle import account_stops
from nodes.models import Node
from openrelay.audit.actor import OPERATOR
from openrelay.audit.models import AuditEvent
from openrelay.core.clock import Now, rfc3339
from openrelay.core.errors import Conflict, NotFound
from openrelay.identity.models import Organization
from openrelay.identity.services.callers import forget_keys
from openrelay.identity.services.memberships import add_member
from openrelay.identity.services.organizations import create_organization, set_switches
from openrelay.identity.services.sessions import mint_session
from reservations.services.fleet_loading import FleetFaults, load
from reservations.services.invariants import violations
from reservations.services.org_deletion import delete_organization_as
from tests import factories
from tests.compute.conftest import World, consistent, state, world
from tests.compute.test_pods import Pods, pod_node
from tests.reservations.conftest import Fleet, fleet, refused
from tests.reservations.test_fleet_loading import fleet as fleet_file
from tests.support.travel import Clock

__all__ = ["fleet", "world"]

pytestmark = pytest.mark.django_db

DELETED = "auto_stopped_organization_deleted"


def by(secret: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


def session(org: Organization, role: str = "owner") -> APIClient:
    return by(factories.session(factories.user(org, role=role), org))


def delete(org: Organization, client: APIClient | None = None) -> Any:
    return (client or session(org)).delete(f"/v1/orgs/{org.pk}")


def deleted(org: Organization) -> None:
    answer = delete(org)
    assert answer.status_code == 204, answer.content
    forget_keys()


def test_it_takes_a_session_with_the_right(fleet: Fleet) -> None:
    org = fleet.outsider
    answer = fleet.client("outsider").delete(f"/v1/orgs/{org.pk}")
    refused(answer, 403, "FORBIDDEN", "session token")
    assert answer.json()["permission"] == "org.delete"
    for role in ("member", "viewer", "billing"):
        refused(delete(org, session(org, role)), 403, "FORBIDDEN", "org.delete")
    refused(delete(org, session(fleet.tenant)), 403, "FORBIDDEN")
    assert Organization.objects.filter(deleted_at__isnull=False).count() == 0
    deleted(org)
    assert Organization.objects.get(deleted_at__isnull=False) == org


def test_nobody_has_access_any_more(fleet: Fleet) -> None:
    org, other = fleet.outsider, fleet.tenant
    person = factories.user(org)
    add_member(actor=OPERATOR, user_id=person.pk, organization_id=other.pk, role="viewer")
    there, elsewhere = by(factories.session(person, org)), by(factories.session(person, other))
    key = fleet.client("outsider")
    assert key.get("/v1/whoami").status_code == 200
    deleted(org)
    refused(key.get("/v1/whoami"), 401, "REVOKED_API_KEY")
    refused(there.get("/v1/whoami"), 401, "UNAUTHORIZED")
    refused(there.delete(f"/v1/orgs/{org.pk}"), 401, "UNAUTHORIZED")
    assert [place["organizationId"] for place in elsewhere.get("/v1/me").json()["organizations"]] == [
        str(other.pk)
    ]
    assert str(org.pk) not in elsewhere.get("/v1/whoami").content.decode()
    refused(elsewhere.get(f"/v1/orgs/{org.pk}"), 403, "FORBIDDEN")
    with pytest.raises(Conflict):
        mint_session(actor=OPERATOR, user_id=person.pk, organization_id=org.pk)
    with pytest.raises(NotFound):
        add_member(actor=OPERATOR, user_id=factories.user(other).pk, organization_id=org.pk, role="owner")
    with pytest.raises(NotFound):
        set_switches(actor=OPERATOR, organization_id=org.pk, account_status="active")


def test_everything_that_runs_for_it_ends_and_stays_on_the_bill(world: World, clock: Clock) -> None:
    clock.freeze()
    pods = Pods(world, pod_node(world.provider))
    runs, stops, spot = (
        world.running(world.buyer),
        world.running(world.buyer),
        world.running(world.buyer, tier="spot"),
    )
    small = world.running(world.buyer, gpuCount=None, resourceSize="cpu-small")
    pod, idle = pods.running(), pods.stopped()
    assert world.client(world.buyer).post(f"/v1/vms/{stops.pk}/stop").status_code == 200
    deploys = world.vm(world.buyer)
    others = world.running(world.tenant)
    every = [runs, stops, spot, small, pod, idle, deploys]
    clock.advance(3600)
    factories.online(world.node)
    deleted(world.buyer)
    tasks.sweep_accounts()
    assert [state(made) for made in every] == [("terminated", DELETED)] * len(every)
    assert state(others)[0] == "running"
    assert Claim.objects.exclude(workload=others).count() == 0
    billed = UsageSession.objects.filter(organization=world.buyer)
    assert not billed.open().exists()
    assert billed.get(workload=runs).ended_at == clock.now()
    ended = AuditEvent.objects.filter(event="vm.terminated", organization_id=world.buyer.pk)
    assert {event.target_id for event in ended} == {str(made.pk) for made in every}
    assert {event.actor for event in ended} == {"system"}
    tasks.sweep_accounts()
    assert ended.count() == len(every)
    assert account_stops.due() == []
    # Its guests are to go, and their units are free once they are gone.
    assert world.work()[str(runs.pk)]["desired"] == "gone"
    consistent()


def test_what_is_free_of_charge_ends_too(world: World) -> None:
    owned = World(world.node, world.provider, world.provider, world.buyer)
    owned.reserve(0)
    mine = owned.running(world.provider, nodeId=str(world.node.pk))
    assert UsageSession.objects.get(workload=mine).non_billable
    Organization.objects.filter(pk=world.provider.pk).update(deleted_at=Now())
    tasks.sweep_accounts()
    assert state(mine) == ("terminated", DELETED)


def test_reservations_in_force_are_named(fleet: Fleet) -> None:
    held = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
    pending = fleet.reserved(1, startsAt="2126-01-01T00:00:00Z")
    for org, named in ((fleet.tenant, (held, pending)), (fleet.manager, (held,))):
        refused(delete(org), 409, "ORG_IN_USE", org.name, *(one["id"] for one in named))
    fleet.reports(7)
    assert fleet.read(held)["status"] == "needs-review"
    refused(delete(fleet.tenant), 409, "ORG_IN_USE", held["id"], pending["id"])
    for one in (held, pending):
        fleet.act("cancel", one)
    assert violations() == []
    deleted(fleet.tenant)
    deleted(fleet.manager)
    assert violations() == []


def test_what_has_expired_is_not_in_the_way(fleet: Fleet, clock: Clock) -> None:
    clock.freeze()
    fleet.reserved(0, endsAt=rfc3339(clock.now() + dt.timedelta(hours=1)))
    refused(delete(fleet.tenant), 409, "ORG_IN_USE")
    clock.advance(3600)
    deleted(fleet.tenant)


def test_many_things_in_the_way_are_counted(fleet: Fleet) -> None:
    for unit in range(7):
        fleet.reserved(unit)
    refused(delete(fleet.tenant), 409, "ORG_IN_USE", "and 2 more")


def test_enrolled_nodes_are_named(fleet: Fleet) -> None:
    refused(delete(fleet.provider), 409, "ORG_IN_USE", fleet.node.hostname)
    client = fleet.client("provider")
    path = f"/v1/orgs/{fleet.provider.pk}/provider/nodes/{fleet.node.pk}"
    assert client.patch(path, {"status": "draining"}).status_code == 200
    refused(delete(fleet.provider), 409, "ORG_IN_USE", fleet.node.hostname)
    assert client.patch(path, {"status": "removed"}).status_code == 200
    deleted(fleet.provider)


def test_the_platforms_own_organization_stays(fleet: Fleet) -> None:
    refused(delete(fleet.platform), 409, "INVALID_STATE", "platform")
    with pytest.raises(IntegrityError, match="platform_ops_organization_stays"), transaction.atomic():
        Organization.objects.filter(pk=fleet.platform.pk).update(deleted_at=Now())


def test_it_joins_no_reservation_any_more(fleet: Fleet) -> None:
    made = fleet.reserved(0, allowedOrgIds=[str(fleet.tenant.pk)])
    deleted(fleet.outsider)
    gone = str(fleet.outsider.pk)
    refused(fleet.reserve(1, allowedOrgIds=[gone]), 400, "UNKNOWN_ORG", gone)
    refused(fleet.reserve(1, managingOrgIds=[gone]), 400, "UNKNOWN_ORG", gone)
    refused(fleet.amend(made, allowedOrgIds=[gone]), 400, "UNKNOWN_ORG", gone)
    refused(fleet.amend(made, managingOrgIds=[gone]), 400, "UNKNOWN_ORG", gone)


def test_it_is_one_event_with_what_it_was(fleet: Fleet) -> None:
    org = fleet.outsider
    deleted(org)
    (event,) = AuditEvent.objects.filter(event="org.deleted")
    assert (event.target_type, event.target_id, event.organization_id) == ("org", str(org.pk), org.pk)
    assert event.before == {"name": org.name, "slug": org.slug}
    assert event.actor.startswith("user:")


def test_its_slug_is_kept(fleet: Fleet) -> None:
    deleted(fleet.outsider)
    with pytest.raises(Conflict, match="taken"):
        create_organization(actor=OPERATOR, name="Again", slug=fleet.outsider.slug)


def test_the_command_deletes_and_says_why(fleet: Fleet) -> None:
    call_command("delete_org", fleet.outsider.slug, "--reason=left us")
    assert AuditEvent.objects.get(event="org.deleted").reason == "left us"
    for slug, says in (
        (fleet.outsider.slug, "was deleted before"),
        (fleet.platform.slug, "platform's own"),
        (fleet.provider.slug, fleet.node.hostname),
        ("nobody", "no organization nobody"),
    ):
        with pytest.raises(CommandError, match=says):
            call_command("delete_org", slug)
    with pytest.raises(CommandError, match="no organization"):
        call_command("set_org", fleet.outsider.slug, "--stop-enabled=true")


def test_a_fleet_file_enrols_nothing_for_it(fleet: Fleet) -> None:
    data = fleet_file("late")
    org = create_organization(actor=OPERATOR, name="Northwind", slug="northwind")
    deleted(org)
    with pytest.raises(FleetFaults, match=r"nodes\[0\]\.organization: northwind was deleted"):
        load(data, actor=OPERATOR)
    assert not Node.objects.filter(hostname="late").exists()


@pytest.mark.parametrize("what", ["workload", "restart", "audience", "manager", "node", "node again"])
def test_the_database_gives_it_nothing_whoever_writes(world: World, what: str) -> None:
    """Behind the services, for a careless script and for what is under way when it is deleted."""
    org = world.buyer
    made = world.running(org)
    assert world.client(org).post(f"/v1/vms/{made.pk}/stop").status_code == 200
    contract = world.reserve(7)
    gone = factories.node(org)
    Node.objects.filter(pk=gone.pk).update(removed_at=Now())
    Organization.objects.filter(pk=org.pk).update(deleted_at=Now())
    made.refresh_from_db()

    def write() -> None:
        if what == "workload":
            Workload(
                organization=org,
                name="late",
                status="deploying",
                node=world.node,
                disk_size_gb=1,
                created_by="script",
                created_at=Now(),
                updated_at=Now(),
            ).save(force_insert=True)
        elif what == "restart":
            Workload.objects.filter(organization=org).update(status="deploying")
        elif what == "audience":
            contract.hold.audience_rows.create(organization=org)
        elif what == "manager":
            contract.manager_rows.create(organization=org)
        elif what == "node":
            factories.node(org)
        else:
            Node.objects.filter(pk=gone.pk).update(removed_at=None)

    with pytest.raises(IntegrityError, match="was deleted"), transaction.atomic():
        write()


def test_a_deleted_organization_is_not_deleted_again(fleet: Fleet) -> None:
    delete_organization_as(actor=OPERATOR, organization_id=fleet.outsider.pk)
    with pytest.raises(Conflict, match="before"):
        delete_organization_as(actor=OPERATOR, organization_id=fleet.outsider.pk)
