"""Rights are judged again under the lock: what lapsed while a request waited for it gives nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from nodes.models import HoldUnit
from openrelay.core import clock as database_clock
from openrelay.core.errors import ApiError
from openrelay.identity.caller import Caller
from openrelay.identity.models import ApiKey, Membership
from openrelay.identity.services.callers import authenticate
from reservations.models import Reservation
from reservations.services import amending, booking, capacity, reclaim_spot
from tests import factories
from tests.reservations import makers
from tests.reservations.conftest import Fleet
from tests.reservations.test_capacity import units

HOUR = 3600


@pytest.fixture
def made(fleet: Fleet) -> dict[str, Any]:
    """A reservation of unit 0, managed by the manager, with a spot workload on it."""
    made = fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
    fleet.act("release", made, unitIds=units(0))
    makers.workload(fleet.node, fleet.outsider, [0])
    return made


def services(fleet: Fleet, made: dict[str, Any]) -> dict[str, Callable[[Caller], Any]]:
    node = {"node_id": fleet.node.pk}
    one = {**node, "reservation_id": Reservation.objects.get(pk=made["id"]).pk}
    return {
        "reserve": lambda caller: booking.reserve(
            caller=caller, **node, unit_ids=units(5), allowed_org_ids=[str(fleet.tenant.pk)]
        ),
        "amend": lambda caller: amending.amend(
            caller=caller, **one, changes=amending.Changes(managing_org_ids=[])
        ),
        "cancel": lambda caller: amending.cancel(caller=caller, **one),
        "release": lambda caller: capacity.release(caller=caller, **one, unit_ids=units(0)),
        "reclaim": lambda caller: capacity.reclaim(caller=caller, **one, unit_ids=units(0)),
        "reclaim_spot": lambda caller: reclaim_spot.reclaim_spot(caller=caller, **node),
    }


def told(call: Callable[[Caller], Any], caller: Caller) -> str:
    """The code of the refusal, or "" when the service did its work."""
    try:
        call(caller)
    except ApiError as refusal:
        return refusal.code
    return ""


OPERATORS_ONLY = ("reserve", "amend", "cancel")


def test_each_service_judges_for_itself(fleet: Fleet, made: dict[str, Any]) -> None:
    for name, call in services(fleet, made).items():
        for who in ("tenant", "outsider"):
            assert told(call, factories.caller(getattr(fleet, who))) == "NOT_FOUND", (name, who)
        for who in ("provider", "manager"):
            expected = "NOT_FOUND" if name in OPERATORS_ONLY else ""
            assert told(call, factories.caller(getattr(fleet, who))) == expected, (name, who)
    assert Reservation.objects.count() == 1


@pytest.mark.parametrize("state", ["needs-review", "cancelled", "expired"])
def test_a_managers_relation_that_lapsed_while_it_waited_gives_nothing(
    fleet: Fleet, made: dict[str, Any], clock: Any, state: str
) -> None:
    manager = factories.caller(fleet.manager)
    if state == "needs-review":
        fleet.reports(7)
    elif state == "cancelled":
        fleet.act("cancel", made)
    else:
        fleet.amend(made, endsAt=f"{clock.now().year + 1}-01-01T00:00:00Z")
        clock.set(clock.now().replace(year=clock.now().year + 2, day=1))
    calls = services(fleet, made)
    for name in ("release", "reclaim", "reclaim_spot"):
        assert told(calls[name], manager) == "NOT_FOUND", name
    assert HoldUnit.objects.get(hold_id=made["id"]).released
    assert len(makers.claimed(fleet.node)) == 1


@pytest.mark.parametrize("name", ["reserve", "amend", "cancel", "release", "reclaim", "reclaim_spot"])
def test_a_key_that_died_while_its_request_waited_changes_nothing(
    fleet: Fleet, made: dict[str, Any], name: str
) -> None:
    call = services(fleet, made)[name]
    caller = factories.caller(fleet.provider if name == "reclaim_spot" else fleet.platform)
    key = ApiKey.objects.filter(pk=caller.key_id)
    before = fleet.read(made)
    key.update(revoked_at=database_clock.read())
    assert told(call, caller) == "REVOKED_API_KEY"
    key.update(revoked_at=None, expires_at=database_clock.read())
    assert told(call, caller) == "EXPIRED_API_KEY"
    key.update(expires_at=None, permissions=["catalog.read"])
    assert told(call, caller) == ("FORBIDDEN" if name == "reclaim_spot" else "NOT_FOUND")
    assert fleet.read(made) == before
    assert len(makers.claimed(fleet.node)) == 1


def test_a_person_who_was_demoted_while_their_request_waited_changes_nothing(
    fleet: Fleet, made: dict[str, Any]
) -> None:
    person = factories.user(fleet.platform)
    secret = factories.session(person, fleet.platform)
    caller = authenticate(secret, source_ip="127.0.0.1", request_id="test")
    Membership.objects.filter(user=person).update(role="member")
    calls = services(fleet, made)
    for name in ("reserve", "amend", "cancel", "release", "reclaim"):
        assert told(calls[name], caller) == "NOT_FOUND", name
    Membership.objects.filter(user=person).delete()
    for name in ("reserve", "amend", "cancel", "release", "reclaim"):
        assert told(calls[name], caller) in ("UNAUTHORIZED", "FORBIDDEN"), name
