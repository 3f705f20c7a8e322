"""Every reservation operation on the running server, by the published client: models, fields, errors."""

import datetime as dt
import importlib
import types
import typing
from types import ModuleType
from typing import Any

import httpx
import pytest

from openrelay.core import clock as database_clock
from openrelay.core.clock import rfc3339
from tests import factories
from tests.reservations import makers
from tests.reservations.conftest import Fleet
from tests.support.web import Server

HOUR = dt.timedelta(hours=1)
INVENTED = "0198c0de-0000-7000-8000-000000000000"
ALWAYS = {
    "allowed_org_ids",
    "created_at",
    "id",
    "managing_org_ids",
    "node_id",
    "released_unit_ids",
    "reserved_unit_ids",
    "starts_at",
    "status",
    "topology_gen",
    "updated_at",
}


class ByClient:
    """The published client, as whom one likes, on one fleet."""

    def __init__(self, sdk: ModuleType, server: Server, fleet: Fleet) -> None:
        self.sdk, self.url, self.fleet = sdk, server.url, fleet
        self.node = str(fleet.node.pk)
        self.models = importlib.import_module("openrelay_sdk.models")
        self.clients: dict[str, Any] = {}

    def client(self, who: str) -> Any:
        if who not in self.clients:
            token = factories.api_key(getattr(self.fleet, who)) if hasattr(self.fleet, who) else who
            self.clients[who] = self.sdk.AuthenticatedClient(
                base_url=self.url, token=token, raise_on_unexpected_status=True
            )
        return self.clients[who]

    def call(
        self, operation: str, *args: Any, by: str = "platform", area: str = "reservations", **kwargs: Any
    ) -> Any:
        """What the client makes of the answer, with its types checked against its own annotations."""
        module = importlib.import_module(f"openrelay_sdk.api.{area}.{operation}")
        answer = module.sync_detailed(*args, client=self.client(by), **kwargs)
        assert answer.parsed is not None, answer
        for model in answer.parsed if isinstance(answer.parsed, list) else [answer.parsed]:
            exact(model)
        return answer.parsed

    def reservation(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        found = self.call(operation, *args, **kwargs)
        assert isinstance(found, self.models.NodeReservation), found
        assert present(found) >= ALWAYS
        return found

    def error(self, operation: str, code: str, *args: Any, **kwargs: Any) -> Any:
        found = self.call(operation, *args, **kwargs)
        assert isinstance(found, self.models.Error), found
        assert found.code == code, found
        assert found.error
        return found

    def create(self, *units: int, by: str = "platform", **fields: Any) -> Any:
        body = self.models.CreateNodeReservationRequest(
            unit_ids=[factories.address(unit) for unit in units],
            allowed_org_ids=[str(self.fleet.tenant.pk)],
            **fields,
        )
        return {"args": (self.node,), "kwargs": {"body": body, "by": by}}

    def created(self, *units: int, **fields: Any) -> Any:
        call = self.create(*units, **fields)
        return self.reservation("create_node_reservation", *call["args"], **call["kwargs"])


def present(model: Any) -> set[str]:
    """The fields of a model that the answer had."""
    unset = importlib.import_module("openrelay_sdk.types").Unset
    return {
        field.name
        for field in model.__attrs_attrs__
        if field.name != "additional_properties" and not isinstance(getattr(model, field.name), unset)
    }


def exact(model: Any) -> None:
    """Every field has the type that the client declares, and nothing came that it does not know."""
    assert model.additional_properties == {}
    # Models name each other, and import each other only for type checkers.
    names = {
        **vars(importlib.import_module("openrelay_sdk.models")),
        **vars(importlib.import_module(type(model).__module__)),
    }
    hints = typing.get_type_hints(type(model), names)
    for name, hint in hints.items():
        if name != "additional_properties":
            assert fits(getattr(model, name), hint), (
                f"{type(model).__name__}.{name}: {getattr(model, name)!r}"
            )


def fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in typing.get_args(hint))
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin is list:
        return isinstance(value, list) and all(fits(each, typing.get_args(hint)[0]) for each in value)
    return type(value) is hint


@pytest.fixture
def by(sdk: ModuleType, server: Server, fleet: Fleet) -> ByClient:
    return ByClient(sdk, server, fleet)


def test_the_type_check_can_fail(by: ByClient) -> None:
    good = {
        "allocClass": "a",
        "gpuModelId": "b",
        "id": "c",
        "reservable": True,
        "sellableGpus": 1,
        "state": "free",
    }
    exact(by.models.NodeGpuUnitItem.from_dict(good))
    for wrong in ({"sellableGpus": "1"}, {"sellableGpus": True}, {"claimedBy": None}, {"more": 1}):
        with pytest.raises(AssertionError):
            exact(by.models.NodeGpuUnitItem.from_dict(good | wrong))


def test_a_reservations_life(by: ByClient) -> None:
    fleet, node = by.fleet, by.node
    start = database_clock.read() + HOUR
    manager = str(fleet.manager.pk)

    made = by.created(0, 1, managing_org_ids=[manager], contract_ref="C-7", reason="training")
    assert present(made) == ALWAYS | {"contract_ref", "reason"}
    assert (made.status, made.contract_ref, made.reason) == ("active", "C-7", "training")
    assert made.topology_gen == 1
    later = by.created(2, starts_at=rfc3339(start), ends_at=rfc3339(start + HOUR))
    assert present(later) == ALWAYS | {"ends_at"}
    assert (later.status, later.starts_at, later.ends_at) == (
        "pending",
        rfc3339(start),
        rfc3339(start + HOUR),
    )

    listed = by.call("list_node_reservations", node, by="provider")
    assert [row.id for row in listed] == [later.id, made.id]
    assert by.reservation("get_node_reservation", node, made.id, by="manager") == made
    mine = by.call("list_org_reservations", str(fleet.tenant.pk), by="tenant")
    assert [row.id for row in mine] == [later.id, made.id]

    units = [factories.address(0)]
    release = by.models.ReservationUnitsRequest(unit_ids=units, reason="idle")
    released = by.reservation("release_reservation_units", node, made.id, body=release, by="manager")
    assert released.released_unit_ids == units
    guest = makers.workload(fleet.node, fleet.outsider, [0])
    ordinary = makers.workload(fleet.node, fleet.tenant, [1], tier=makers.ORDINARY, by=made.id)

    shown = {unit.id: unit for unit in by.call("list_reservation_units", node, by="provider")}
    assert len(shown) == 8
    always = {"alloc_class", "gpu_model_id", "gpu_model_name", "id", "reservable", "sellable_gpus", "state"}
    on_market, free = shown[factories.address(0)], shown[factories.address(7)]
    assert present(on_market) == always | {"claimed_by", "released", "reservation_id"}
    assert (on_market.state, on_market.claimed_by) == ("claimed", f"vm:{guest.pk}")
    assert (on_market.released, on_market.reservation_id) == (True, made.id)
    assert present(free) == always
    assert (free.state, free.reservable, free.sellable_gpus) == ("free", True, 1)

    both = [factories.address(0), factories.address(1)]
    dry = by.models.ReservationReclaimRequest(unit_ids=both, dry_run=True)
    would = by.reservation("reclaim_reservation_units", node, made.id, body=dry, by="provider")
    assert present(would) == ALWAYS | {"contract_ref", "reason", "would_skip", "would_terminate"}
    assert (would.would_terminate, would.would_skip) == ([str(guest.pk)], [str(ordinary.pk)])
    real = by.models.ReservationReclaimRequest(unit_ids=both, reason="back")
    done = by.reservation("reclaim_reservation_units", node, made.id, body=real, by="provider")
    assert present(done) == ALWAYS | {"contract_ref", "reason", "skipped", "terminated"}
    assert (done.terminated, done.skipped) == ([str(guest.pk)], [str(ordinary.pk)])
    assert done.released_unit_ids == []
    again = by.reservation("reclaim_reservation_units", node, made.id, body=real, by="provider")
    assert (again.terminated, again.skipped) == ([], [str(ordinary.pk)])

    factories.inventory(fleet.node, [factories.unit_report(number) for number in range(7)])
    assert by.reservation("get_node_reservation", node, made.id).status == "needs-review"
    affirm = by.models.UpdateNodeReservationRequest(reaffirm=True, ends_at=rfc3339(start))
    affirmed = by.reservation("update_node_reservation", node, made.id, body=affirm)
    assert (affirmed.status, affirmed.topology_gen, affirmed.ends_at) == ("active", 2, rfc3339(start))
    open_ended = by.models.UpdateNodeReservationRequest(ends_at="", managing_org_ids=[])
    amended = by.reservation("update_node_reservation", node, made.id, body=open_ended)
    assert "ends_at" not in present(amended)
    assert amended.managing_org_ids == []
    cancelled = by.reservation("cancel_node_reservation", node, made.id)
    assert cancelled.status == "cancelled"


def test_reclaim_spot_with_and_without_a_body(by: ByClient) -> None:
    fleet, org = by.fleet, str(by.fleet.provider.pk)
    result = by.models.ReclaimSpotWorkloadsResult

    def reclaim(*body: Any) -> Any:
        kwargs = {"body": body[0]} if body else {}
        found = by.call("reclaim_spot_workloads", org, by.node, by="provider", area="provider", **kwargs)
        assert isinstance(found, result)
        return found

    first, second = (makers.workload(fleet.node, fleet.outsider, [unit]) for unit in (0, 1))
    ordinary = makers.workload(fleet.node, fleet.tenant, [2], tier=makers.ORDINARY)
    request = by.models.ReclaimSpotWorkloadsRequest
    narrowed = reclaim(request(unit_ids=[factories.address(0)], dry_run=True, reason="heat"))
    assert (narrowed.terminated, narrowed.skipped) == ([str(first.pk)], [])
    all_of_them = reclaim()
    assert sorted(all_of_them.terminated) == sorted([str(first.pk), str(second.pk)])
    assert all_of_them.skipped == [str(ordinary.pk)]
    by.error(
        "reclaim_spot_workloads",
        "NOT_FOUND",
        str(fleet.outsider.pk),
        by.node,
        by="outsider",
        area="provider",
    )
    by.error("reclaim_spot_workloads", "FORBIDDEN", org, by.node, by="outsider", area="provider")
    # For a malformed body the client has no row and parses nothing; the answer itself has the shape.
    raw = httpx.post(
        f"{by.url}/v1/orgs/{org}/provider/nodes/{by.node}/reclaim-spot",
        json={"unitIds": []},
        headers={"Authorization": f"Bearer {by.client('provider').token}"},
    )
    assert raw.status_code == 400
    assert raw.json().keys() == {"error", "code"}
    assert raw.json()["code"] == "VALIDATION_ERROR"


def test_every_refusal_is_the_clients_error_with_its_code(by: ByClient, clock: Any) -> None:
    fleet, node, models = by.fleet, by.node, by.models
    other = factories.node(
        fleet.provider, [factories.unit_report(0), factories.unit_report(1, allocClass="device-request")]
    )
    seven = [factories.unit_report(number) for number in range(7)]
    factories.inventory(fleet.node, [*seven, factories.unit_report(7, sellable=False)])
    made = by.created(0)

    def create(code: str, *units: int, by_: str = "platform", on: str = node, **fields: Any) -> Any:
        call = by.create(*units, by=by_, **fields)
        return by.error("create_node_reservation", code, on, **call["kwargs"])

    create("RESERVATION_OVERLAP", 0)
    create("UNKNOWN_UNIT", 60)
    create("UNIT_NOT_RESERVABLE", 7)
    create("UNKNOWN_ORG", 1, managing_org_ids=[INVENTED])
    create("VALIDATION_ERROR", 1, ends_at="yesterday")
    create("NODE_NOT_SINGLE_CLASS", 0, on=str(other.pk))
    create("NOT_FOUND", 1, on=INVENTED)
    create("NOT_FOUND", 1, by_="tenant")
    other.removed_at = database_clock.read()
    other.save()
    create("NODE_DECOMMISSIONED", 0, on=str(other.pk))

    update = models.UpdateNodeReservationRequest
    by.error("update_node_reservation", "VALIDATION_ERROR", node, made.id, body=update())
    by.error("update_node_reservation", "UNKNOWN_ORG", node, made.id, body=update(managing_org_ids=["x"]))
    by.error("update_node_reservation", "NOT_FOUND", node, INVENTED, body=update(reaffirm=True))
    by.error("get_node_reservation", "NOT_FOUND", node, INVENTED)
    by.error("list_node_reservations", "NOT_FOUND", INVENTED)
    by.error("list_reservation_units", "NOT_FOUND", node, by="outsider")
    by.error("cancel_node_reservation", "NOT_FOUND", node, made.id, by="provider")
    foreign = models.ReservationUnitsRequest(unit_ids=[factories.address(3)])
    reclaim = models.ReservationReclaimRequest(unit_ids=[factories.address(3)])
    by.error("release_reservation_units", "UNIT_NOT_IN_RESERVATION", node, made.id, body=foreign)
    by.error("reclaim_reservation_units", "UNIT_NOT_IN_RESERVATION", node, made.id, body=reclaim)
    by.error("release_reservation_units", "NOT_FOUND", node, made.id, body=foreign, by="tenant")

    pending = by.created(1, starts_at=rfc3339(database_clock.read() + HOUR))
    mine = models.ReservationUnitsRequest(unit_ids=[factories.address(1)])
    by.error("release_reservation_units", "RESERVATION_NOT_ACTIVE", node, pending.id, body=mine)
    by.error(
        "reclaim_reservation_units",
        "RESERVATION_NOT_ACTIVE",
        node,
        pending.id,
        body=models.ReservationReclaimRequest(unit_ids=[factories.address(1)]),
    )
    factories.inventory(fleet.node, [factories.unit_report(n) for n in range(1, 7)])
    by.error("update_node_reservation", "TOPOLOGY_UNITS_MISSING", node, made.id, body=update(reaffirm=True))
    by.reservation("cancel_node_reservation", node, made.id)
    by.error("cancel_node_reservation", "RESERVATION_ENDED", node, made.id)
    by.error("update_node_reservation", "RESERVATION_ENDED", node, made.id, body=update(ends_at=""))
    by.error(
        "release_reservation_units",
        "RESERVATION_ENDED",
        node,
        made.id,
        body=models.ReservationUnitsRequest(unit_ids=[factories.address(0)]),
    )


@pytest.mark.parametrize(
    ("operation", "args"),
    [
        ("list_node_reservations", 1),
        ("list_reservation_units", 1),
        ("get_node_reservation", 2),
        ("cancel_node_reservation", 2),
        ("list_org_reservations", 0),
    ],
)
def test_a_bad_credential_is_the_clients_error(by: ByClient, operation: str, args: int) -> None:
    ids = (by.node, INVENTED)[:args] or (str(by.fleet.tenant.pk),)
    error = by.error(operation, "UNAUTHORIZED", *ids, by="or_of_nobody")
    assert present(error) == {"error", "code"}


def test_a_denial_names_the_action_and_what_denied_it(by: ByClient) -> None:
    org = by.fleet.provider
    secret = factories.api_key(org, ["catalog.read"])
    error = by.error("list_org_reservations", "FORBIDDEN", str(org.pk), by=secret)
    assert (error.permission, error.denied_by) == ("provider.read", "key")
    error = by.error("reclaim_spot_workloads", "FORBIDDEN", str(org.pk), by.node, by=secret, area="provider")
    assert (error.permission, error.denied_by) == ("provider.write", "key")
