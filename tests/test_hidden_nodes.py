"""Under /v1/nodes/ nothing tells a real id from an invented one, unless the caller has to do with the node.

The same status, body, headers (but date and request id), number of queries and audit record, on every path
and method there is, whatever the body.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from openrelay.audit.models import AuditEvent, AuditRepeat
from openrelay.core.errors import NotFound
from openrelay.identity.services.callers import forget_keys
from tests import factories
from tests.reservations import makers
from tests.reservations.conftest import Fleet, fleet
from tests.support.web import Server
from tests.test_permission_matrix import INVENTED, ROUTES

__all__ = ["fleet"]

pytestmark = pytest.mark.django_db

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
WITH_BODY = ("POST", "PATCH")
UNDER_NODES = [route for route in ROUTES if route.path.startswith("v1/nodes/")]
PATHS = sorted({route.path for route in UNDER_NODES})
MALFORMED = ("x", "%00", "units", "..%20", "\u00e9", "a" * 300, INVENTED.upper(), f"{{{INVENTED}}}", "0")


@dataclass(frozen=True)
class Told:
    """All that a caller can see of an answer, and all that the log keeps of the request."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]
    queries: int
    audited: tuple[str, ...]


class Asker:
    """Sends requests as somebody, and notes what comes back."""

    def __init__(self, secret: str) -> None:
        self.client = Client(raise_request_exception=False)
        self.headers = {"Authorization": f"Bearer {secret}"}

    def ask(self, method: str, path: str, body: bytes = b"") -> Told:
        """What the caller is told. Nothing remembered from an earlier request takes part."""
        forget_keys()
        AuditRepeat.objects.all().delete()
        seen = AuditEvent.objects.order_by("-id").values_list("id", flat=True).first()
        with CaptureQueriesContext(
            connection,
        ) as queries:
            answer = self.client.generic(method, path, body, "application/json", headers=self.headers)
        events = AuditEvent.objects.order_by("id")
        if seen is not None:
            events = events.filter(id__gt=seen)
        headers = {
            name: value for name, value in answer.headers.items() if name not in ("Date", "X-Request-Id")
        }
        return Told(
            status=answer.status_code,
            body=answer.content,
            headers=tuple(sorted(headers.items())),
            queries=len(queries),
            audited=tuple(
                json.dumps(
                    [event.event, event.target_type, str(event.organization_id), event.after, event.before]
                )
                for event in events
            ),
        )


def bodies(method: str) -> Iterator[bytes]:
    yield b""
    if method in WITH_BODY:
        yield json.dumps(
            {"unitIds": [factories.address(0)], "allowedOrgIds": [INVENTED], "reason": "x"}
        ).encode()
        yield b'{"unitIds": ['
    if method == "POST":
        yield b'{"reason": "' + b"x" * (1024 * 1024) + b'"}'


def fill(path: str, node: object, reservation: object = "") -> str:
    return "/" + path.replace("<str:node_id>", str(node)).replace("<str:reservation_id>", str(reservation))


# Who tries every method with every body; the rest try what each path takes, and one method that it does not.
THOROUGHLY = ("the audience", "the owner's key without the action")


def cases(*, thorough: bool) -> Iterator[tuple[str, str, bytes]]:
    """Path, method and body of each request to try."""
    taken = {(route.path, route.method) for route in UNDER_NODES}
    for path in PATHS:
        for method in METHODS:
            if thorough:
                yield from ((path, method, body) for body in bodies(method))
            elif (path, method) in taken or method == "PUT":
                yield path, method, b""


@pytest.fixture
def reservation(fleet: Fleet) -> dict[str, Any]:
    """A reservation of unit 0 for the tenant, managed by the manager."""
    return fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])


def without_relation(fleet: Fleet) -> dict[str, str]:
    """Credentials of those to whom no path under the node answers anything but 404."""
    rival = factories.organization("Rival", is_provider=True)
    factories.node(rival)
    lapsed = factories.organization("Lapsed")
    old = fleet.reserved(7, managingOrgIds=[str(lapsed.pk)])
    fleet.act("cancel", old)
    makers.workload(fleet.node, fleet.tenant, [0], tier=makers.ORDINARY)
    keep = ["compute.write", "provider.write", "audit.read", "catalog.read"]
    viewer = factories.user(fleet.provider, role="viewer")
    return {
        "the audience": factories.api_key(fleet.tenant),
        "an outsider": factories.api_key(fleet.outsider),
        "another provider": factories.api_key(rival),
        "a manager of what has ended": factories.api_key(lapsed),
        "the owner's key without the action": factories.api_key(fleet.provider, keep),
        "the owner's viewer": factories.session(viewer, fleet.provider),
        "an operator's key without the action": factories.api_key(fleet.platform, keep),
        "a manager's key without the action": factories.api_key(fleet.manager, keep),
    }


def test_there_is_something_to_walk() -> None:
    assert len(PATHS) >= 6
    assert len(UNDER_NODES) >= 8


def test_nobody_without_relation_can_tell_a_node_that_is_there(
    fleet: Fleet, reservation: dict[str, Any]
) -> None:
    sentence = json.dumps(
        {"error": NotFound().message, "code": "NOT_FOUND"}, separators=(",", ":"), ensure_ascii=False
    ).encode()
    real = (fleet.node.pk, reservation["id"])
    for who, secret in without_relation(fleet).items():
        asker = Asker(secret)
        asker.ask("GET", "/v1/whoami")  # the first use of a key in a minute is noted
        for path, method, body in cases(thorough=who in THOROUGHLY):
            pairs = [real, ("x", "x")]
            if "reservation_id" in path:
                pairs += [(real[0], INVENTED), (INVENTED, real[1])]
            invented = asker.ask(method, fill(path, INVENTED, INVENTED), body)
            case = f"{who}: {method} {path} {body[:20]!r}"
            assert invented.status == 404, case
            if method != "HEAD":
                assert invented.body == sentence, case
            reading = method in ("GET", "HEAD", "OPTIONS", "TRACE")
            assert len(invented.audited) == (0 if reading else 1), case
            for node, held in pairs:
                told = asker.ask(method, fill(path, node, held), body)
                assert told == invented, f"{case} told {node}/{held} from what was never there"


def test_no_malformed_id_is_told_from_another(fleet: Fleet, reservation: dict[str, Any]) -> None:
    asker = Asker(factories.api_key(fleet.tenant))
    operator = Asker(factories.api_key(fleet.platform))
    for each in (asker, operator):
        each.ask("GET", "/v1/whoami")
    for route in UNDER_NODES:
        body = b"" if route.method == "GET" else b'{"unitIds": ["0000:05:00.0"], "allowedOrgIds": ["b"]}'
        if route.operation == "update_node_reservation":
            body = b'{"endsAt": null}'
        for each in (asker, operator):
            baseline = each.ask(route.method, fill(route.path, INVENTED, INVENTED), body)
            assert baseline.status == 404
            for text in MALFORMED:
                if text == "units" and route.path.endswith("<str:reservation_id>"):
                    continue  # that is a path of its own
                told = each.ask(route.method, fill(route.path, text, text), body)
                assert told == baseline, f"{route.operation}: {text}"


@pytest.mark.parametrize("who", ["owner", "manager"])
def test_what_only_operators_do_is_hidden_even_from_those_who_may_look(
    fleet: Fleet, reservation: dict[str, Any], who: str
) -> None:
    org = {"owner": fleet.provider, "manager": fleet.manager}[who]
    asker = Asker(factories.api_key(org))
    asker.ask("GET", "/v1/whoami")
    assert asker.ask("GET", fill("v1/nodes/<str:node_id>/reservations", fleet.node.pk)).status == 200
    walked = 0
    for route in UNDER_NODES:
        if route.operation not in (
            "create_node_reservation",
            "update_node_reservation",
            "cancel_node_reservation",
        ):
            continue
        for body in bodies(route.method):
            walked += 1
            invented = asker.ask(route.method, fill(route.path, INVENTED, INVENTED), body)
            assert invented.status == 404
            told = asker.ask(route.method, fill(route.path, fleet.node.pk, reservation["id"]), body)
            assert told == invented, f"{route.operation} {body[:20]!r}"
    assert walked == 11


def test_a_manager_cannot_tell_a_reservation_it_does_not_manage(
    fleet: Fleet, reservation: dict[str, Any]
) -> None:
    foreign = fleet.reserved(1)
    asker = Asker(factories.api_key(fleet.manager))
    asker.ask("GET", "/v1/whoami")
    for verb in ("release", "reclaim"):
        path = f"v1/nodes/<str:node_id>/reservations/<str:reservation_id>/{verb}"
        for method in METHODS:
            for body in bodies(method):
                invented = asker.ask(method, fill(path, INVENTED, INVENTED), body)
                assert invented.status == 404
                for node, held in (
                    (fleet.node.pk, foreign["id"]),
                    (fleet.node.pk, INVENTED),
                    (fleet.node.pk, "x"),
                    (INVENTED, reservation["id"]),
                ):
                    assert asker.ask(method, fill(path, node, held), body) == invented, f"{method} {verb}"


def test_a_refusal_is_on_record_with_what_was_named(fleet: Fleet, reservation: dict[str, Any]) -> None:
    client = fleet.client("outsider")
    answer = client.post(f"{fleet.path}/{reservation['id']}/cancel")
    event = AuditEvent.objects.get(event="request.refused")
    assert event.target_id == reservation["id"]
    assert event.organization_id == fleet.outsider.pk
    assert event.request_id == answer.headers["X-Request-Id"]
    assert event.after["operation"] == "cancel_node_reservation"
    assert event.after["status"] == 404


def test_over_the_wire_too(server: Server, fleet: Fleet, reservation: dict[str, Any]) -> None:
    secret = factories.api_key(fleet.tenant)
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {secret}"}, timeout=30) as http:
        for route in UNDER_NODES:
            told = []
            for node, held in ((fleet.node.pk, reservation["id"]), (INVENTED, INVENTED), ("x", "x")):
                answer = http.request(route.method, fill(route.path, node, held), content=b'{"unitIds": [')
                headers = {
                    name: value
                    for name, value in answer.headers.items()
                    if name not in ("date", "x-request-id")
                }
                assert answer.headers["x-request-id"]
                told.append((answer.status_code, answer.content, headers))
            assert told[0] == told[1] == told[2], route.operation
            assert told[0][0] == 404


HOSTILE_BODIES = [
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"5",
    b"\xff\xfe",
    b'{"unitIds": ["a\\u0000"]}',
    b'{"reason": "\\ud800"}',
    b'{"reason": "a", "reason": "b"}',
    b'{"unitIds": NaN}',
    b'{"unitIds": ' + b"[" * 100 + b"]" * 100 + b"}",
    b'{"unitIds": ' + b"9" * 400 + b"}",
    b'{"unitIds": [[]]}',
    b'{"unitIds": [{"a": 1}]}',
    b'{"unitIds": {"0": "a"}}',
    b'{"unitIds": ["' + b"a" * 5000 + b'"]}',
    b'{"unitIds": [' + b",".join([b'"0000:10:00.0"'] * 2000) + b"]}",
    b'{"unitIds": ["0000:10:00.0"], "allowedOrgIds": ["x"], "startsAt": "9999-12-31T23:59:59-14:00"}',
    b'{"unitIds": ["0000:10:00.0"], "allowedOrgIds": ["x"], "endsAt": "0001-01-01T00:00:00+14:00"}',
    b'{"unitIds": ["0000:10:00.0"], "allowedOrgIds": ["x"], "endsAt": "2030-02-30T00:00:00Z"}',
    b'{"endsAt": "9999-12-31T23:59:59-00:01"}',
    b'{"endsAt": "2030-01-01T00:00:00"}',
    b'{"endsAt": true}',
    b'{"reaffirm": null}',
    b'{"dryRun": 1}',
    b'{"allowedOrgIds": ["\\u202e"], "unitIds": ["\\u202e"], "managingOrgIds": ["\\uffff"]}',
    b'{"__proto__": {}, "constructor": 1}',
    b'{"reason": "' + b"x" * (1024 * 1024 + 1) + b'"}',
]
HOSTILE_KINDS = (
    "text/plain",
    "application/xml",
    "multipart/form-data; boundary=x",
    "application/x-www-form-urlencoded",
    "application/json; charset=utf-16",
)
REFUSALS = ("VALIDATION_ERROR", "PAYLOAD_TOO_LARGE", "UNKNOWN_ORG", "UNKNOWN_UNIT")
WRITES = [
    route
    for route in ROUTES
    if route.method != "GET" and ("reservation" in route.operation or "spot" in route.operation)
]


@pytest.mark.parametrize("route", WRITES, ids=lambda route: route.operation)
def test_every_hostile_body_has_its_json_error(fleet: Fleet, reservation: dict[str, Any], route: Any) -> None:
    if route.operation == "cancel_node_reservation":
        pytest.skip("takes no body")
    before = fleet.read(reservation)
    client = Client(raise_request_exception=False)
    org = fleet.provider if "org_id" in route.path else fleet.platform
    headers = {"Authorization": f"Bearer {factories.api_key(org)}"}
    path = fill(route.path, fleet.node.pk, reservation["id"]).replace("<str:org_id>", str(org.pk))
    for body in HOSTILE_BODIES:
        answer = client.generic(route.method, path, body, "application/json", headers=headers)
        assert answer.status_code in (400, 413), (body[:60], answer.status_code, answer.content)
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.json().keys() == {"error", "code"}
        assert answer.json()["code"] in (
            "VALIDATION_ERROR",
            "PAYLOAD_TOO_LARGE",
            "UNKNOWN_ORG",
            "UNKNOWN_UNIT",
        )
    for kind in HOSTILE_KINDS:
        answer = client.generic(route.method, path, b"{}", kind, headers=headers)
        assert answer.status_code in (400, 415), (kind, answer.content)
        assert answer.headers["Content-Type"] == "application/json"
    assert fleet.read(reservation) == before


STRANGE_PATHS = [
    "/v1/nodes/{node}/reservations/",
    "/v1/nodes/{node}/reservations/{reservation}/",
    "/v1/nodes/{node}/reservations/units/",
    "/v1/nodes/{node}/reservations//",
    "/v1/nodes/{node}",
    "/v1/nodes/{node}/",
    "/v1/nodes",
    "/v1/nodes/",
    "/v1/nodes/{node}/reservations/{reservation}/delete",
    "/v1/nodes/{node}/reservations/{reservation}/cancel/now",
    "/v1//nodes/{node}/reservations",
    "/v1/nodes/../nodes/{node}/reservations",
    "/v1/Nodes/{node}/reservations",
    "/v1/nodes/{node}/reservations%00",
    "/v1/nodes/{node}/reservations%0a",
    "/v1/",
    "/v1",
]


@pytest.mark.parametrize("path", STRANGE_PATHS)
def test_a_strange_path_is_not_there_in_json(fleet: Fleet, reservation: dict[str, Any], path: str) -> None:
    operator, nobody = Asker(factories.api_key(fleet.platform)), Asker("or_nothing")
    for asker in (operator, nobody):
        for method in METHODS:
            body = b"{}" if method in WITH_BODY else b""
            asked = path.format(node=fleet.node.pk, reservation=reservation["id"])
            told = asker.ask(method, asked, body)
            assert told.status in (404, 401)
            assert dict(told.headers)["Content-Type"] == "application/json"
            if method != "HEAD":
                assert json.loads(told.body).keys() == {"error", "code"}
    assert fleet.read(reservation) == reservation


@pytest.mark.parametrize(
    "path",
    [
        "/v1/nodes/{node}%2Freservations",
        "/v1/nodes/{node}/reservations%2Funits",
        "/v1/nodes/{node}/reservations/{reservation}%2Fcancel",
    ],
)
def test_an_escaped_slash_is_a_slash(fleet: Fleet, reservation: dict[str, Any], path: str) -> None:
    # A WSGI server hands on the path unescaped, so the two cannot be told apart; what matters is the answer.
    asked = path.format(node=fleet.node.pk, reservation=reservation["id"])
    for secret in (factories.api_key(fleet.platform), factories.api_key(fleet.tenant)):
        for method in METHODS:
            escaped = Asker(secret).ask(method, asked, b"{")
            assert dict(escaped.headers)["Content-Type"] == "application/json"
            assert escaped.status in (200, 400, 404, 405, 409)
