"""What only a real server shows: framing, raw paths, and the console's cookies beside the API."""

import http.client
import json
import re
import socket
import urllib.parse
import uuid
from typing import Any

import httpx
import pytest
from django.contrib.auth import SESSION_KEY
from django.test import Client

from openrelay.audit.actor import SYSTEM
from openrelay.identity.models import ApiKey
from openrelay.identity.services.memberships import add_member
from tests.identity.factories import make_key, make_org, make_person, make_user
from tests.support.web import Server


def raw(server: Server, text: bytes) -> tuple[int, dict[str, str], Any]:
    """Send bytes as they are and read one answer."""
    address = urllib.parse.urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(text)
        response = http.client.HTTPResponse(connection)
        response.begin()
        body = response.read()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return response.status, headers, json.loads(body) if body else None


def test_a_chunked_body_is_read_or_refused_but_never_dropped(server: Server) -> None:
    person = make_person()
    body = b'{"name": 5}'
    status, _, answer = raw(
        server,
        f"POST /v1/orgs/{person.organization.id}/api-keys/create HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {person.token}\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
        + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n",
    )  # fmt: skip
    assert status == 400
    assert "is required" not in answer["error"]
    assert not ApiKey.objects.exists()


def test_a_body_that_is_refused_unread_leaves_the_connection_for_the_next_request(server: Server) -> None:
    _, key = make_key(make_org())
    body = {"name": "x" * 100_000}
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}) as client:
        told = [client.patch(f"/v1/roles/{uuid.uuid4()}", json=body).status_code for _ in range(150)]
        assert set(told) == {403}


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/whoami/",
        b"/v1/whoami%2F",
        b"/v1/whoami%00",
        b"/v1/%ff%fe",
        b"/v1/..%2f..%2fetc/passwd",
        b"/v1/\xc3\xa9",
        b"/v1/orgs/%",
        b"/v1/?%00=%ff",
    ],
)
def test_odd_paths_are_json(server: Server, path: bytes) -> None:
    _, secret = make_key()
    status, headers, answer = raw(
        server,
        b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html\r\n"
        b"Authorization: Bearer " + secret.encode() + b"\r\nConnection: close\r\n\r\n",
    )
    assert status in (400, 403, 404)
    if path.startswith(b"/v1") and status == 404:
        assert headers["content-type"] == "application/json"
        assert answer["code"] == "NOT_FOUND"


def test_a_large_body_is_refused_without_being_read(server: Server) -> None:
    person = make_person()
    status, _, answer = raw(
        server,
        f"POST /v1/orgs/{person.organization.id}/api-keys/create HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {person.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {2**20 + 1}\r\nConnection: close\r\n\r\n".encode()
        + b" " * (2**20 + 1),
    )
    assert (status, answer["code"]) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.django_db
def test_the_console_takes_operators_by_cookie_and_checks_forms(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    ops = make_org(is_platform_ops=True)
    password = "correct horse battery"
    operator, outsider = make_user(password=password), make_user(password=password)
    add_member(actor=SYSTEM, user_id=operator.id, organization_id=ops.id, role="owner")
    add_member(actor=SYSTEM, user_id=outsider.id, organization_id=make_org().id, role="owner")
    client = Client(enforce_csrf_checks=True)
    form = {"username": operator.email.upper(), "password": password, "next": "/console/"}
    assert client.post("/console/login/", form).status_code == 403
    page = client.get("/console/login/").content.decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token is not None
    signed_in = client.post("/console/login/", {**form, "csrfmiddlewaretoken": token[1]})
    assert signed_in.status_code == 302
    assert client.session[SESSION_KEY] == str(operator.id)
    assert client.get("/console/").status_code == 200
    # The console's cookie is nothing on the API.
    refused = client.get("/v1/whoami")
    assert (refused.status_code, refused.json()["code"]) == (401, "UNAUTHORIZED")
    assert not refused.cookies
    form = {**form, "username": outsider.email, "csrfmiddlewaretoken": token[1]}
    other = Client()
    assert other.post("/console/login/", form).status_code == 200
    assert SESSION_KEY not in other.session


@pytest.mark.django_db
def test_the_api_sets_no_cookie_and_the_console_varies_by_it(client: Client, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    assert "Cookie" not in client.get("/v1/nothing").get("Vary", "")
    assert client.get("/console/login/")["X-Frame-Options"] == "DENY"
