"""Headers over the wire: no other spelling stands for a header, and one that counts comes once."""

import json

import pytest

from openrelay.identity.models import ApiKey
from openrelay.identity.services.keys import Restrictions, create_key
from tests.identity.factories import make_key, make_person
from tests.identity.test_credentials import caller_of
from tests.support.web import Server
from tests.web.conftest import Start, Wire


def asking(secret: str, *headers: str) -> bytes:
    """GET whoami with that credential and more headers."""
    lines = ["GET /v1/whoami HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {secret}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def test_no_other_spelling_of_forwarded_for_opens_an_address_restriction(start: Start) -> None:
    server = start(TRUSTED_PROXIES="1")
    person = make_person()
    _, secret = create_key(
        caller=caller_of(person.token), name="k", restrictions=Restrictions(ip_ranges=["203.0.113.0/24"])
    )
    inside, outside = "203.0.113.7", "198.51.100.1"
    wire = Wire(server, asking(secret, f"X-Forwarded-For: {inside}"))
    assert wire.answer()[0] == 200
    for name in ("X_forwarded_for", "X_Forwarded-For", "X-Forwarded_For", "x_forwarded_for"):
        for headers in (
            (f"X-Forwarded-For: {outside}", f"{name}: {inside}"),
            (f"{name}: {inside}", f"X-Forwarded-For: {outside}"),
            (f"{name}: {inside}",),
        ):
            wire.send(asking(secret, *headers))
            assert wire.answer()[0] == 403, headers
    # Several headers of one name are one list, in their order: the proxy's is the last.
    wire.send(asking(secret, f"X-Forwarded-For: {inside}", f"X-Forwarded-For: {outside}"))
    assert wire.answer()[0] == 403
    wire.send(asking(secret, f"X-Forwarded-For: {outside}", f"X-Forwarded-For: {inside}:4711"))
    assert wire.answer()[0] == 200


@pytest.mark.parametrize(
    "name", ["Authorization", "Host", "Content-Type", "Idempotency-Key", "X-Forwarded-Proto"]
)
def test_a_header_that_counts_once_comes_once(server: Server, name: str) -> None:
    _, secret = make_key()
    wire = Wire(server, asking(secret, f"{name}: a", f"{name}: b"))
    status, headers, body = wire.answer()
    assert (status, json.loads(body)["code"]) == (400, "VALIDATION_ERROR")
    assert headers["x-request-id"]


def test_a_header_with_an_underscore_is_not_there(server: Server) -> None:
    _, secret = make_key()
    wire = Wire(
        server, asking("none").replace(b"Authorization:", f"Author_ization: Bearer {secret}\r\nX:".encode())
    )
    assert wire.answer()[0] == 401
    person = make_person()
    body = b'{"name": "k"}'
    head = (
        f"POST /v1/orgs/{person.organization.id}/api-keys/create HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {person.token}\r\nContent-Type: application/json\r\nContent_Type: x\r\n"
        f"Content_Length: 0\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    wire.send(head + body)
    assert wire.answer()[0] == 200
    assert ApiKey.objects.filter(name="k").exists()
