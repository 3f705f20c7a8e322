"""Terms by the clock alone: at their exact ends rights change, with no worker there to change them."""

import datetime as dt
from typing import Any

import pytest

from nodes.services.survey import survey_units
from openrelay.core import clock as database_clock
from openrelay.core.clock import rfc3339
from reservations.models import Announcement
from tests import factories
from tests.reservations.conftest import Fleet, refused
from tests.reservations.test_capacity import units

MICROSECOND = dt.timedelta(microseconds=1)
HOUR = dt.timedelta(hours=1)


@pytest.fixture
def ends(fleet: Fleet, clock: Any) -> tuple[dt.datetime, dt.datetime]:
    """Start and end of a term in the future."""
    start = database_clock.read().replace(microsecond=250_001) + HOUR
    return start, start + HOUR


def serving(fleet: Fleet) -> set[str]:
    """Which organizations may place on unit 0 as an audience, by the survey that placement decides on."""
    held = survey_units(fleet.node, database_clock.read())[0].held
    names = ("tenant", "outsider", "manager")
    return {name for name in names if held is not None and held.serves(getattr(fleet, name).pk)}


def test_the_status_turns_at_the_exact_ends(
    fleet: Fleet, clock: Any, ends: tuple[dt.datetime, dt.datetime]
) -> None:
    start, end = ends
    made = fleet.reserved(0, startsAt=rfc3339(start), endsAt=rfc3339(end))
    for at, status in (
        (start - MICROSECOND, "pending"),
        (start, "active"),
        (end - MICROSECOND, "active"),
        (end, "expired"),
    ):
        clock.freeze(at)
        assert fleet.read(made)["status"] == status
        assert fleet.get().json()[0]["status"] == status
        reserved = fleet.units()[factories.address(0)].get("reservationId")
        assert reserved == (made["id"] if status == "active" else None)
        assert serving(fleet) == ({"tenant"} if status == "active" else set())
        org_list = fleet.client("tenant").get(f"/v1/orgs/{fleet.tenant.pk}/reservations").json()
        assert [row["status"] for row in org_list] == ([] if status == "expired" else [status])
    assert not Announcement.objects.exists()  # no worker had a hand in it


def test_the_boundary_can_be_moved_only_within_the_term(
    fleet: Fleet, clock: Any, ends: tuple[dt.datetime, dt.datetime]
) -> None:
    start, end = ends
    made = fleet.reserved(
        0, startsAt=rfc3339(start), endsAt=rfc3339(end), managingOrgIds=[str(fleet.manager.pk)]
    )
    for at, owner, manager in (
        (start - MICROSECOND, "RESERVATION_NOT_ACTIVE", 404),
        (start, None, 200),
        (end - MICROSECOND, None, 200),
        (end, "RESERVATION_ENDED", 404),
    ):
        clock.freeze(at)
        for verb in ("release", "reclaim"):
            for name in ("provider", "platform"):
                answer = fleet.act(verb, made, by=name, unitIds=units(0))
                if owner:
                    refused(answer, 409, owner)
                else:
                    assert answer.status_code == 200
            assert fleet.act(verb, made, by="manager", unitIds=units(0)).status_code == manager
        assert fleet.reclaim_spot("manager").status_code == manager
        assert fleet.get(by="manager").status_code == manager
        assert fleet.get(f"/{made['id']}", by="manager").status_code == manager


def test_managers_read_units_until_the_exact_end(
    fleet: Fleet, clock: Any, ends: tuple[dt.datetime, dt.datetime]
) -> None:
    start, end = ends
    fleet.reserved(0, startsAt=rfc3339(start), endsAt=rfc3339(end), managingOrgIds=[str(fleet.manager.pk)])
    for at, status in ((start - HOUR / 2, 200), (start, 200), (end - MICROSECOND, 200), (end, 404)):
        clock.freeze(at)
        assert fleet.get("/units", by="manager").status_code == status


def test_back_to_back_the_second_audience_begins_where_the_first_ends(
    fleet: Fleet, clock: Any, ends: tuple[dt.datetime, dt.datetime]
) -> None:
    start, end = ends
    fleet.reserved(0, startsAt=rfc3339(start), endsAt=rfc3339(end))
    fleet.reserved(0, startsAt=rfc3339(end), allowedOrgIds=[str(fleet.outsider.pk)])
    for at, who in (
        (start - MICROSECOND, set()),
        (start, {"tenant"}),
        (end - MICROSECOND, {"tenant"}),
        (end, {"outsider"}),
    ):
        clock.freeze(at)
        assert serving(fleet) == who


def test_what_has_just_expired_frees_its_units_and_nothing_earlier(
    fleet: Fleet, clock: Any, ends: tuple[dt.datetime, dt.datetime]
) -> None:
    start, end = ends
    fleet.reserved(0, startsAt=rfc3339(start), endsAt=rfc3339(end))
    clock.freeze(end - MICROSECOND)
    refused(fleet.reserve(0), 409, "RESERVATION_OVERLAP")
    clock.freeze(end)
    assert fleet.reserved(0)["status"] == "active"


def test_in_review_it_serves_nobody_and_withholds_from_everybody(fleet: Fleet, clock: Any) -> None:
    made = fleet.reserved(0)
    fleet.act("release", made, unitIds=units(0))
    assert serving(fleet) == {"tenant"}
    fleet.reports(7)
    assert serving(fleet) == set()
    held = survey_units(fleet.node, database_clock.read())[0].held
    assert held is not None
    assert not held.active
    refused(fleet.reserve(0), 409, "RESERVATION_OVERLAP")


def test_ended_comes_before_review_and_review_before_pending(
    fleet: Fleet, clock: Any, ends: tuple[dt.datetime, dt.datetime]
) -> None:
    start, end = ends
    made = fleet.reserved(0, startsAt=rfc3339(start), endsAt=rfc3339(end))
    other = fleet.reserved(1, startsAt=rfc3339(start), endsAt=rfc3339(end))
    fleet.reports(7)
    for at, status in ((start - HOUR / 2, "needs-review"), (start, "needs-review"), (end, "expired")):
        clock.freeze(at)
        assert fleet.read(made)["status"] == status
    fleet.node.refresh_from_db()
    assert fleet.read(other)["status"] == "expired"


def test_cancelled_comes_before_all(fleet: Fleet, clock: Any, ends: tuple[dt.datetime, dt.datetime]) -> None:
    start, end = ends
    made = fleet.reserved(0, startsAt=rfc3339(start), endsAt=rfc3339(end))
    fleet.act("cancel", made)
    fleet.reports(7)
    for at in (start - HOUR / 2, start, end):
        clock.freeze(at)
        assert fleet.read(made)["status"] == "cancelled"


def test_an_end_must_lie_after_now_and_after_the_start(
    fleet: Fleet, clock: Any, ends: tuple[dt.datetime, dt.datetime]
) -> None:
    start, _ = ends
    now = clock.freeze(start)
    refused(fleet.reserve(0, endsAt=rfc3339(now)), 400, "VALIDATION_ERROR", "endsAt")
    refused(
        fleet.reserve(0, startsAt=rfc3339(now + HOUR), endsAt=rfc3339(now + HOUR)),
        400,
        "VALIDATION_ERROR",
        "endsAt",
    )
    assert fleet.reserved(0, endsAt=rfc3339(now + MICROSECOND))["status"] == "active"


def test_a_start_up_to_sixty_seconds_ago_is_now_and_an_earlier_one_is_refused(
    fleet: Fleet, clock: Any, ends: tuple[dt.datetime, dt.datetime]
) -> None:
    now = clock.freeze(ends[0])
    grace = dt.timedelta(seconds=60)
    assert fleet.reserved(0, startsAt=rfc3339(now - grace))["startsAt"] == rfc3339(now)
    refused(
        fleet.reserve(1, startsAt=rfc3339(now - grace - MICROSECOND)), 400, "VALIDATION_ERROR", "startsAt"
    )
    # Within the grace the end is still judged by the clock.
    refused(
        fleet.reserve(1, startsAt=rfc3339(now - grace), endsAt=rfc3339(now)),
        400,
        "VALIDATION_ERROR",
        "endsAt",
    )
