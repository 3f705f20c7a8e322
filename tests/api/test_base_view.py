"""What the base view judges, in which order, and what it leaves in the audit log."""

from typing import Any
from urllib.parse import quote

import pytest
from django.db import DataError, IntegrityError, InternalError, OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response

from openrelay import urls
from openrelay.api.views import OperationView, OrgView
from openrelay.audit.models import AuditEvent
from openrelay.core.errors import NotFound
from openrelay.core.ids import new_id
from openrelay.identity.caller import Caller
from openrelay.identity.operations import OPERATIONS, Access
from tests.identity.factories import bearer, make_key, make_org, make_person

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

OPS = {
    "read_thing": Access("reservation.read", hidden=True),
    "change_thing": Access("reservation.capacity", hidden=True),
    "fail": Access("self.read"),
    "speak": Access(node=True),
    "open": Access(public=True),
    "delete_org_thing": Access("compute.delete"),
}
failure: list[Exception] = []


class ThingView(OperationView):
    operations = {"GET": "read_thing", "POST": "change_thing"}

    def relate(self, caller: Caller, operation: str | None) -> None:
        if self.kwargs["thing_id"] != "mine":
            raise NotFound()

    def get(self, request: Request, thing_id: str) -> Response:
        return Response({})

    def post(self, request: Request, thing_id: str) -> Response:
        self.body()
        return Response({})


class FailView(OperationView):
    operations = {"GET": "fail"}

    def get(self, request: Request) -> Response:
        raise failure[0]


class SpeakView(OperationView):
    operations = {"POST": "speak"}

    def post(self, request: Request) -> Response:
        return Response({})


class OpenView(OperationView):
    operations = {"GET": "open"}

    def get(self, request: Request) -> Response:
        return Response({"known": self.request.caller is not None})  # type: ignore[attr-defined]


class OrgThingView(OrgView):
    operations = {"DELETE": "delete_org_thing"}

    def delete(self, request: Request, org_id: str, thing_id: str) -> Response:
        return Response({"org": str(self.caller.organization_id)})


urlpatterns = [
    path("v1/things/<str:thing_id>", ThingView.as_view()),
    path("v1/fail", FailView.as_view()),
    path("v1/speak", SpeakView.as_view()),
    path("v1/open", OpenView.as_view()),
    path("v1/orgs/<str:org_id>/things/<str:thing_id>", OrgThingView.as_view()),
    *urls.urlpatterns,
]


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, access in OPS.items():
        monkeypatch.setitem(OPERATIONS, name, access)


def shape(response: Any) -> Any:
    headers = {
        name: value for name, value in response.headers.items() if name not in ("X-Request-Id", "Date")
    }
    return response.status_code, response.content, headers


@pytest.mark.parametrize("method", ["get", "head", "post", "put", "patch", "delete", "options"])
@pytest.mark.parametrize("held", ["reservation.capacity", "compute.read"])
def test_hidden_things_and_invented_ones_look_alike(client: Client, method: str, held: str) -> None:
    _, secret = make_key(None, held)
    client.get("/v1/things/mine", **bearer(secret))
    seen = []
    for thing in ("theirs", str(new_id()), "\0", "x" * 3000):
        with CaptureQueriesContext(connection) as queries:
            response = client.generic(
                method.upper(), f"/v1/things/{quote(thing)}", b"{", "application/json", **bearer(secret)
            )
        seen.append((shape(response), len(queries)))
    assert response.status_code == 404
    assert seen.count(seen[0]) == len(seen)


def test_permission_comes_before_method_and_method_before_body(client: Client) -> None:
    _, without = make_key(None, "compute.read")
    _, reader = make_key(None, "reservation.read")
    _, writer = make_key(None, "reservation.capacity")
    assert client.put("/v1/things/mine", b"{", "application/json", **bearer(without)).status_code == 404
    assert client.put("/v1/things/mine", b"{", "application/json", **bearer(reader)).status_code == 405
    assert client.post("/v1/things/mine", b"{", "application/json", **bearer(reader)).status_code == 404
    assert client.post("/v1/things/mine", b"{", "application/json", **bearer(writer)).status_code == 400
    assert client.post("/v1/things/mine", b"{}", "application/json", **bearer(writer)).status_code == 200


def test_refusals_on_mutating_methods_are_audited_alike(client: Client) -> None:
    org = make_org()
    key, secret = make_key(org, "compute.read")
    client.get("/v1/things/theirs", **bearer(secret))
    assert not AuditEvent.objects.filter(event="request.refused").exists()
    client.post("/v1/things/theirs%00", HTTP_X_REQUEST_ID="r1", **bearer(secret))
    event = AuditEvent.objects.get(event="request.refused")
    assert (event.actor, event.organization_id) == (f"key:{key.id}", org.id)
    assert (event.target_type, event.target_id) == ("thing", "theirs\ufffd")
    assert (event.request_id, event.source_ip) == ("r1", "127.0.0.1")
    assert event.after["operation"] == "change_thing"
    assert event.after["status"] == 404
    client.delete(f"/v1/orgs/{new_id()}/things/x", **bearer(secret))
    client.delete(f"/v1/orgs/{org.id}/things/x", **bearer(secret))
    assert AuditEvent.objects.filter(event="request.refused").count() == 3
    client.delete(f"/v1/orgs/{org.id}/things/x")
    assert AuditEvent.objects.filter(event="request.refused").count() == 3


def test_another_organization_and_none_are_refused_alike_before_any_look_up(client: Client) -> None:
    theirs = make_org()
    _, secret = make_key()
    client.get("/v1/whoami", **bearer(secret))
    seen = []
    for org_id in (theirs.id, new_id(), "x"):
        with CaptureQueriesContext(connection) as queries:
            response = client.delete(f"/v1/orgs/{org_id}/things/x", **bearer(secret))
        seen.append((shape(response), len(queries)))
    assert response.status_code == 403
    assert "permission" not in response.json()
    assert len(queries) == 1  # the refusal's own audit event; the key is remembered
    assert seen.count(seen[0]) == 3


def test_a_session_acts_where_the_path_says(client: Client) -> None:
    person = make_person()
    other = make_person(make_org())
    response = client.delete(f"/v1/orgs/{person.organization.id}/things/x", **bearer(person.token))
    assert response.json() == {"org": str(person.organization.id)}
    assert (
        client.delete(f"/v1/orgs/{other.organization.id}/things/x", **bearer(person.token)).status_code == 403
    )


def test_a_missing_action_is_told_with_what_refused(client: Client) -> None:
    org = make_org()
    _, secret = make_key(org, "compute.operate")
    response = client.delete(f"/v1/orgs/{org.id}/things/x", **bearer(secret))
    body = response.json()
    assert (response.status_code, body["permission"], body["deniedBy"]) == (403, "compute.delete", "key")
    viewer = make_person(org, role="viewer")
    body = client.delete(f"/v1/orgs/{org.id}/things/x", **bearer(viewer.token)).json()
    assert body["deniedBy"] == "role"


def test_a_nodes_path_is_for_nodes_only(client: Client) -> None:
    assert client.post("/v1/speak", **bearer(make_person().token)).status_code == 403


def test_a_public_path_takes_anyone_but_no_bad_credential(client: Client) -> None:
    assert client.get("/v1/open").json() == {"known": False}
    assert client.get("/v1/open", **bearer(make_person().token)).json() == {"known": True}
    assert client.get("/v1/open", **bearer("or_nonsense")).status_code == 401
    assert client.put("/v1/open").status_code == 401


class Cause(Exception):
    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


def caused(error: Exception, sqlstate: str) -> Exception:
    error.__cause__ = Cause(sqlstate)
    return error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (caused(OperationalError("serialization"), "40001"), 503, "TRY_AGAIN"),
        (caused(OperationalError("deadlock"), "40P01"), 503, "TRY_AGAIN"),
        (caused(OperationalError("lock timeout"), "55P03"), 503, "TRY_AGAIN"),
        (caused(OperationalError("statement timeout"), "57014"), 503, "TRY_AGAIN"),
        (caused(InternalError("idle in transaction"), "25P03"), 503, "TRY_AGAIN"),
        (caused(InternalError("transaction timeout"), "25P04"), 503, "TRY_AGAIN"),
        (caused(OperationalError("gone"), "57P01"), 503, "DATABASE_UNAVAILABLE"),
        (OperationalError("connection refused"), 503, "DATABASE_UNAVAILABLE"),
        (caused(DataError("numeric overflow"), "22003"), 400, "VALIDATION_ERROR"),
        (caused(IntegrityError("duplicate"), "23505"), 409, "INVALID_STATE"),
        (KeyError("secret thing"), 500, "INTERNAL_ERROR"),
    ],
)
def test_what_goes_wrong_inside_is_told_without_its_inside(
    client: Client, error: Exception, status: int, code: str
) -> None:
    failure[:] = [error]
    response = client.get("/v1/fail", HTTP_X_REQUEST_ID="req-7", **bearer(make_person().token))
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert str(error.args[0]) not in response.json()["error"]
    if status == 500:
        assert "req-7" in response.json()["error"]
    if status == 503:
        assert int(response["Retry-After"]) > 0
