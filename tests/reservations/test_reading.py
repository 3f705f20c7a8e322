"""Reading: a node's reservations, its units, and what concerns an organization."""

import datetime as dt
from typing import Any

import pytest

from nodes.models import GpuUnit
from openrelay.core import clock as database_clock
from openrelay.core.clock import rfc3339
from tests import factories
from tests.reservations import makers
from tests.reservations.conftest import Fleet, refused
from tests.reservations.test_capacity import units


def in_hours(hours: float) -> str:
    return rfc3339(database_clock.read() + dt.timedelta(hours=hours))


# A node's reservations


def test_a_node_lists_every_reservation_the_newest_first(fleet: Fleet) -> None:
    first = fleet.reserved(0)
    second = fleet.reserved(1, startsAt=in_hours(1))
    fleet.act("cancel", first)
    other = factories.node(fleet.provider)
    listed = fleet.get().json()
    assert [row["id"] for row in listed] == [second["id"], first["id"]]
    assert [row["status"] for row in listed] == ["pending", "cancelled"]
    assert fleet.client("platform").get(f"/v1/nodes/{other.pk}/reservations").json() == []


def test_who_may_read_a_nodes_reservations(fleet: Fleet, clock: Any) -> None:
    made = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)], endsAt=in_hours(1))
    foreign = fleet.reserved(1)
    for name in ("platform", "provider", "manager"):
        # Who may read sees all of that node's.
        listed = fleet.get(by=name).json()
        assert [row["id"] for row in listed] == [foreign["id"], made["id"]], name
        assert fleet.get(f"/{foreign['id']}", by=name).json() == listed[0]
    for name in ("tenant", "outsider"):
        refused(fleet.get(by=name), 404, "NOT_FOUND")
        refused(fleet.get(f"/{made['id']}", by=name), 404, "NOT_FOUND")
    clock.advance(3600)
    refused(fleet.get(by="manager"), 404, "NOT_FOUND")


@pytest.mark.parametrize("state", ["pending", "needs-review"])
def test_a_manager_that_is_not_active_reads_units_but_not_reservations(fleet: Fleet, state: str) -> None:
    term = {"startsAt": in_hours(1)} if state == "pending" else {}
    made = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)], **term)
    if state == "needs-review":
        fleet.reports(7)
    refused(fleet.get(by="manager"), 404, "NOT_FOUND")
    refused(fleet.get(f"/{made['id']}", by="manager"), 404, "NOT_FOUND")
    assert fleet.get("/units", by="manager").status_code == 200
    fleet.act("cancel", made)
    refused(fleet.get("/units", by="manager"), 404, "NOT_FOUND")


def test_units_are_read_by_owner_operator_and_managers_only(fleet: Fleet) -> None:
    fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
    for name, expected in (
        ("platform", 200),
        ("provider", 200),
        ("manager", 200),
        ("tenant", 404),
        ("outsider", 404),
    ):
        assert fleet.get("/units", by=name).status_code == expected, name


@pytest.mark.parametrize("suffix", ["", "/units", "/0198c0de-0000-7000-8000-000000000000"])
def test_a_node_that_is_not_there_is_not_there(fleet: Fleet, suffix: str) -> None:
    for node in ("0198c0de-0000-7000-8000-000000000000", "node-1", "%00", "units", "%ff"):
        answer = fleet.client("platform").get(f"/v1/nodes/{node}/reservations{suffix}")
        refused(answer, 404, "NOT_FOUND")


# Units


def test_a_unit_shows_what_it_is(fleet: Fleet) -> None:
    fleet.reports(
        [
            factories.unit_report(0, gpus=2),
            factories.unit_report(1, sellable=False, notSellableReason="it drives the display"),
            factories.unit_report(2, allocClass="shared", sellable=False, notSellableReason="not for sale"),
        ]
    )
    model = factories.gpu_model()
    listed = fleet.get("/units").json()
    assert listed == [
        {
            "id": factories.address(0),
            "allocClass": "vfio-group",
            "gpuModelId": str(model.pk),
            "gpuModelName": "NVIDIA H100 SXM5 80 GB",
            "sellableGpus": 2,
            "reservable": True,
            "state": "free",
        },
        {
            "id": factories.address(1),
            "allocClass": "vfio-group",
            "gpuModelId": str(model.pk),
            "gpuModelName": "NVIDIA H100 SXM5 80 GB",
            "sellableGpus": 0,
            "reservable": False,
            "notReservableReason": "it drives the display",
            "state": "free",
        },
        {
            "id": factories.address(2),
            "allocClass": "shared",
            "gpuModelId": str(model.pk),
            "gpuModelName": "NVIDIA H100 SXM5 80 GB",
            "sellableGpus": 0,
            "reservable": False,
            "notReservableReason": "its class shared cannot be reserved",
            "state": "free",
        },
    ]


def test_reservable_speaks_of_the_hardware(fleet: Fleet) -> None:
    fleet.reserved(0)
    makers.workload(fleet.node, fleet.outsider, [1])
    listed = fleet.units()
    for unit in units(0, 1):
        assert listed[unit]["reservable"] is True
        assert "notReservableReason" not in listed[unit]


def test_a_claim_shows_until_the_guest_is_confirmed_gone(fleet: Fleet) -> None:
    guest = makers.workload(fleet.node, fleet.outsider, [0, 1])
    for unit in units(0, 1):
        assert fleet.units()[unit]["state"] == "claimed"
        assert fleet.units()[unit]["claimedBy"] == f"vm:{guest.pk}"
    makers.terminate(guest)
    # Draining reads as claimed: nobody else can have it yet.
    assert fleet.units()[factories.address(0)]["claimedBy"] == f"vm:{guest.pk}"
    makers.confirm(guest)
    assert fleet.units()[factories.address(0)]["state"] == "free"
    assert "claimedBy" not in fleet.units()[factories.address(0)]


def test_a_claim_counts_before_the_guest_that_drains_there(fleet: Fleet) -> None:
    gone = makers.workload(fleet.node, fleet.outsider, [0])
    makers.terminate(gone)
    there = makers.workload(fleet.node, fleet.tenant, [0], status="pending")
    assert fleet.units()[factories.address(0)]["claimedBy"] == f"vm:{there.pk}"


def test_a_unit_shows_the_reservation_in_term_now(fleet: Fleet, clock: Any) -> None:
    middle = database_clock.read() + dt.timedelta(hours=1)
    first = fleet.reserved(0, endsAt=rfc3339(middle))
    second = fleet.reserved(0, startsAt=rfc3339(middle))
    clock.freeze(middle - dt.timedelta(microseconds=1))
    assert fleet.units()[factories.address(0)]["reservationId"] == first["id"]
    clock.freeze(middle)
    assert fleet.units()[factories.address(0)]["reservationId"] == second["id"]
    fleet.act("cancel", second)
    assert "reservationId" not in fleet.units()[factories.address(0)]
    assert "released" not in fleet.units()[factories.address(0)]


def test_a_reservation_in_review_still_shows_on_its_units(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    fleet.reports(7)
    assert fleet.units()[factories.address(0)]["reservationId"] == made["id"]


def test_an_unknown_gpu_has_a_placeholder_model(fleet: Fleet) -> None:
    fleet.reports([factories.unit_report(0, model="acme-q1")])
    unit = fleet.units()[factories.address(0)]
    placeholder = GpuUnit.objects.get(node=fleet.node, address=factories.address(0)).gpu_model
    assert unit["gpuModelId"] == str(placeholder.pk)
    assert "acme-q1" in unit["gpuModelName"]
    assert placeholder.hidden


# What concerns an organization


def listed(fleet: Fleet, name: str) -> list[dict[str, Any]]:
    org = getattr(fleet, name)
    answer = fleet.client(name).get(f"/v1/orgs/{org.pk}/reservations")
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_an_organization_sees_what_is_kept_for_it_or_managed_by_it(fleet: Fleet) -> None:
    made = fleet.reserved(
        0,
        1,
        managingOrgIds=[str(fleet.manager.pk)],
        endsAt=in_hours(2),
        contractRef="C-7",
        reason="training",
    )
    released = fleet.act("release", made, unitIds=units(1)).json()
    assert released["releasedUnitIds"] == units(1)
    for name in ("tenant", "manager", "platform"):
        assert listed(fleet, name) == [released], name
    for name in ("outsider", "provider"):
        assert listed(fleet, name) == []


def test_only_live_ones_are_listed(fleet: Fleet, clock: Any) -> None:
    expired = fleet.reserved(0, endsAt=in_hours(1))
    cancelled = fleet.reserved(1)
    pending = fleet.reserved(2, startsAt=in_hours(50))
    active = fleet.reserved(3)
    fleet.act("cancel", cancelled)
    clock.advance(3600)
    assert [row["id"] for row in listed(fleet, "tenant")] == [active["id"], pending["id"]]
    fleet.reports(7)
    assert {row["status"] for row in listed(fleet, "tenant")} == {"needs-review"}
    assert expired["id"] not in str(listed(fleet, "tenant"))


def test_it_is_empty_where_reservations_are_not_enabled(fleet: Fleet) -> None:
    fleet.reserved(0)
    fleet.tenant.reservations_enabled = False
    fleet.tenant.save()
    assert listed(fleet, "tenant") == []


def test_another_organizations_list_is_refused_like_one_that_does_not_exist(fleet: Fleet) -> None:
    client = fleet.client("tenant")
    real = client.get(f"/v1/orgs/{fleet.provider.pk}/reservations")
    invented = client.get("/v1/orgs/0198c0de-0000-7000-8000-000000000000/reservations")
    malformed = client.get("/v1/orgs/x/reservations")
    refused(real, 403, "FORBIDDEN")
    assert real.json() == invented.json() == malformed.json()
