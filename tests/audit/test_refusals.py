"""A refused change leaves an audit event, for lack of a right or by state; equal ones are counted in one."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from openrelay.audit.models import AuditEvent
from openrelay.audit.services.repeats import write_counted
from tests import factories
from tests.compute.conftest import World, world
from tests.reservations.conftest import Fleet, fleet
from tests.support.travel import Clock

__all__ = ["fleet", "world"]

pytestmark = pytest.mark.django_db


def refusals() -> list[dict[str, Any]]:
    return list(
        AuditEvent.objects.filter(event="request.refused")
        .order_by("created_at", "id")
        .values_list("after", flat=True)
    )


def test_a_refusal_by_state_is_audited_and_repeats_are_counted(fleet: Fleet, clock: Clock) -> None:
    clock.freeze()
    made = fleet.reserved(0)
    assert fleet.act("cancel", made).status_code == 200
    for _ in range(5):
        assert fleet.act("cancel", made).status_code == 409
    (event,) = AuditEvent.objects.filter(event="request.refused")
    assert (event.target_type, event.target_id) == ("reservation", made["id"])
    assert (event.after["status"], event.after["code"]) == (409, "RESERVATION_ENDED")
    assert event.after["operation"] == "cancel_node_reservation"
    clock.advance(61)
    write_counted()
    assert [after.get("times", 1) for after in refusals()] == [1, 4]


def test_a_refusal_by_state_costs_one_statement_more_than_the_same_unaudited(fleet: Fleet) -> None:
    made = fleet.reserved(0)
    fleet.act("cancel", made)
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            assert fleet.act("cancel", made).status_code == 409
        noted = [query["sql"] for query in queries if "audit_" in query["sql"]]
        assert len(noted) == 1
        # After what was refused, so that it is not undone with it.
        assert "audit_" in queries.captured_queries[-1]["sql"]


def test_naming_a_node_that_one_may_not_is_audited_for_real_and_invented_ones_alike(world: World) -> None:
    outsider = factories.organization("Outsider")
    for node_id in (str(world.node.pk), "0198c0de-0000-7000-8000-000000000000"):
        assert world.ask(outsider, nodeId=node_id).json()["code"] == "UNKNOWN_NODE"
    # Equal in all but the node, which the event does not name.
    (after,) = refusals()
    assert (after["status"], after["code"]) == (400, "UNKNOWN_NODE")
    assert str(world.node.pk) not in str(after)


def test_a_malformed_request_is_no_refusal(world: World) -> None:
    assert world.ask(world.buyer, gpuCount=-1).status_code == 400
    assert refusals() == []
