"""Whatever a client sends, the answer is JSON with a sentence and a code, and never a 500."""

import json
from typing import Any

import pytest
from django.test import Client

from tests.identity.factories import Person, bearer, make_person

pytestmark = pytest.mark.django_db


@pytest.fixture
def person() -> Person:
    return make_person()


def send(client: Client, person: Person, raw: bytes, content_type: str = "application/json") -> Any:
    path = f"/v1/orgs/{person.organization.id}/api-keys/create"
    return client.post(path, raw, content_type=content_type, **bearer(person.token))


def error_of(response: Any, status: int, code: str) -> str:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/json"
    body = response.json()
    assert set(body) <= {"error", "code", "permission", "deniedBy"}
    assert body["code"] == code
    assert "Traceback" not in body["error"]
    return str(body["error"])


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'"name"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"name": "a", "name": "b"}', "'name' twice"),
        (b'{"name": "a\\u0000"}', "NUL"),
        (b'{"\\u0000": 1}', "NUL"),
        (b'{"name": "\\ud800"}', "surrogate"),
        (b'{"name": "\xed\xa0\x80"}', "UTF-8"),
        (b'{"name": "\xff"}', "UTF-8"),
        (b'{"name": NaN}', "NaN"),
        (b'{"name": -Infinity}', "Infinity"),
        (b'{"name": 1e999}', "too large"),
        (b'{"name": 9223372036854775808}', "64 bits"),
        (b'{"name": ' + b"9" * 5000 + b"}", "64 bits"),
        (b'{"name": ' + b"[" * 33 + b"]" * 33 + b"}", "deeper"),
        (b'{"name": ' + b"[" * 100_000, "deeper"),
        (b"[" * 500_000 + b"]" * 500_000, "deeper"),
        (b'\xef\xbb\xbf{"name": "a"}', "not JSON"),
        (b'{"name": "tab\there"}', "not JSON"),
        (b'{"name": "bell\\u0007"}', "control characters"),
    ],
)
def test_malformed_bodies_are_refused_by_name(client: Client, person: Person, raw: bytes, says: str) -> None:
    assert says in error_of(send(client, person, raw), 400, "VALIDATION_ERROR")


def test_strings_with_brackets_are_not_depth(client: Client, person: Person) -> None:
    response = send(client, person, json.dumps({"name": "[" * 100 + '"{' + "\\"}).encode())
    assert response.status_code == 200


def test_whole_surrogate_pairs_pass(client: Client, person: Person) -> None:
    assert send(client, person, b'{"name": "\\ud83d\\ude00"}').json()["name"] == "😀"


@pytest.mark.parametrize("size", [1024 * 1024 + 1, 5 * 1024 * 1024])
def test_bodies_over_one_mebibyte_are_413(client: Client, person: Person, size: int) -> None:
    error_of(send(client, person, b" " * size), 413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_other_content_types_are_415(client: Client, person: Person, content_type: str) -> None:
    error_of(send(client, person, b'{"name": "a"}', content_type), 415, "UNSUPPORTED_MEDIA_TYPE")


def test_another_charset_is_415(client: Client, person: Person) -> None:
    response = send(client, person, b'{"name": "a"}', "application/json; charset=utf-16")
    error_of(response, 415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "name is required"),
        ({"name": None}, "name must not be null"),
        ({"name": ""}, "name must not be empty"),
        ({"name": 5}, "name must be a string"),
        ({"name": "a", "colour": "red"}, "colour is not a field of this request"),
        ({"name": "a", "expiresInSeconds": "5"}, "expiresInSeconds must be an integer"),
        ({"name": "a", "expiresInSeconds": True}, "expiresInSeconds must be an integer"),
        ({"name": "a", "expiresInSeconds": 5.0}, "expiresInSeconds must be an integer"),
        ({"name": "a", "ephemeral": 1}, "ephemeral must be true or false"),
        ({"name": "a", "permissions": "compute.read"}, "permissions must be a list"),
        ({"name": "a", "permissions": {"0": "compute.read"}}, "permissions must be a list"),
        ({"name": "a", "permissions": ["compute.read", "audit.read", 3]}, "permissions[2] must be a string"),
        ({"name": "a", "restrictions": {"colour": 1}}, "restrictions.colour is not a field"),
        (
            {"name": "a", "restrictions": {"ipRanges": ["10.0.0.0/8", 7]}},
            "restrictions.ipRanges[1] must be a string",
        ),
        ({"name": "a", "restrictions": []}, "restrictions must be an object"),
        ({"name": "a", "kind": "legacy"}, "kind must be one of org, personal"),
        ({"name": "a" * 201}, "name must be at most 200 characters"),
    ],
)
def test_faulty_fields_are_named(client: Client, person: Person, body: dict[str, Any], says: str) -> None:
    assert says in error_of(send(client, person, json.dumps(body).encode()), 400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/v1/whoami/",
        "/v1/whoami%2F",
        "/v1/whoami%00",
        "/v1/whoami%0A",
        "/v1//whoami",
        "/v1/%FF",
        "/v1/orgs/a%2Fb/api-keys",
        "/api",
        "/api/nomad/nothing",
    ],
)
@pytest.mark.parametrize("method", ["get", "post", "put", "delete", "options", "head"])
def test_unknown_paths_are_json(client: Client, person: Person, path: str, method: str) -> None:
    response = getattr(client, method)(path, HTTP_ACCEPT="text/html", **bearer(person.token))
    assert response.status_code == 404
    assert response["Content-Type"] == "application/json"


@pytest.mark.parametrize("org_id", ["x", "%00", "%2e%2e", "0" * 5000, "00000000-0000-0000-0000-000000000000"])
def test_bad_org_ids_are_foreign(client: Client, person: Person, org_id: str) -> None:
    response = client.post(
        f"/v1/orgs/{org_id}/api-keys/create", b"{", "application/json", **bearer(person.token)
    )
    error_of(response, 403, "FORBIDDEN")


@pytest.mark.parametrize("key_id", ["x", "%00", "%F0%9F%98%80", "0" * 5000, "%0A"])
def test_bad_ids_are_not_found(client: Client, person: Person, key_id: str) -> None:
    response = client.delete(f"/v1/orgs/{person.organization.id}/api-keys/{key_id}", **bearer(person.token))
    error_of(response, 404, "NOT_FOUND")


def test_other_methods_are_405_with_allow(client: Client, person: Person) -> None:
    for method in ("post", "put", "patch", "delete", "options"):
        response = getattr(client, method)("/v1/whoami", **bearer(person.token))
        error_of(response, 405, "METHOD_NOT_ALLOWED")
        assert response["Allow"] == "GET, HEAD"
    response = client.generic("BREW", "/v1/whoami", **bearer(person.token))
    error_of(response, 405, "METHOD_NOT_ALLOWED")


def test_head_follows_get(client: Client, person: Person) -> None:
    response = client.head("/v1/whoami", **bearer(person.token))
    assert (response.status_code, response.content) == (200, b"")


def test_authentication_comes_before_the_method(client: Client) -> None:
    error_of(client.put("/v1/whoami"), 401, "UNAUTHORIZED")


@pytest.mark.parametrize("accept", ["text/html", "image/png", "application/xml;q=0.9", "nonsense", ""])
def test_answers_are_json_whatever_is_accepted(client: Client, person: Person, accept: str) -> None:
    response = client.get("/v1/whoami", HTTP_ACCEPT=accept, **bearer(person.token))
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "Bearer or_" + "x" * 43,
        "Bearer ors_" + "x" * 43,
        "Bearer onc_" + "x" * 43,
        "Bearer or_\udcff".encode("utf-8", "surrogateescape").decode("latin-1"),
        "Bearer " + "x" * 10_000,
        "Token abc",
    ],
)
def test_bad_credentials_are_401(client: Client, header: str) -> None:
    response = client.get("/v1/whoami", HTTP_AUTHORIZATION=header)
    error_of(response, 401, "UNAUTHORIZED")
    assert response["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("given", ["an-id.1:2_3", "x" * 100])
def test_a_sane_request_id_comes_back(client: Client, given: str) -> None:
    assert client.get("/v1/x", HTTP_X_REQUEST_ID=given)["X-Request-Id"] == given


@pytest.mark.parametrize("given", ["", "x" * 101, "a b", "a\x00", "é"])
def test_another_request_id_is_replaced(client: Client, given: str) -> None:
    answered = client.get("/v1/x", HTTP_X_REQUEST_ID=given)["X-Request-Id"]
    assert answered != given
    assert len(answered) == 36


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("limit=0", "limit must be at least 1"),
        ("limit=101", "limit must be at most 100"),
        ("limit=x", "limit must be an integer"),
        ("limit=1&limit=2", "limit is given 2 times"),
        ("limit=" + "9" * 5000, "limit must be an integer"),
        ("cursor=", "cursor must not be empty"),
        ("cursor=abc", "cursor is not one"),
        ("cursor=%00", "cursor"),
        ("cursor=" + "A" * 499, "cursor is not one"),
        ("colour=red", "colour is not a field"),
        ("since=2030-01-01", "since must be an RFC 3339 time"),
        ("since=2030-01-01T00:00:00", "since must have an offset"),
        ("since=2030-02-30T00:00:00Z", "since is not a time that exists"),
        ("since=2030-01-01T23:59:60Z", "since is not a time that exists"),
        ("since=9999-12-31T23:59:59-01:00", "since is not a time that exists"),
        ("since=0001-01-01T00:00:00%2B01:00", "since is not a time that exists"),
        ("since=2030-01-01T00:00:00.1234567Z", "since must have at most 6 digits"),
        ("since=2030-01-01T00:00:00%2B24:00", "since is not a time that exists"),
        ("since=2030-01-01T00:00:00%2B01:60", "since is not a time that exists"),
        ("since=%D9%A2030-01-01T00:00:00Z", "since must be an RFC 3339 time"),
    ],
)
def test_faulty_queries_are_named(client: Client, person: Person, query: str, says: str) -> None:
    response = client.get(f"/v1/audit-events?{query}", **bearer(person.token))
    assert says in error_of(response, 400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "since",
    [
        "2030-01-01T00:00:00Z",
        "2030-01-01t00:00:00z",
        "2030-01-01 00:00:00.5%2B05:30",
        "2030-01-01T00:00:00.123456-23:59",
        "2030-01-01T00:00:00+01:00",
    ],
)
def test_times_with_an_offset_are_taken(client: Client, person: Person, since: str) -> None:
    response = client.get(f"/v1/audit-events?since={since}", **bearer(person.token))
    assert response.json() == {"items": []}
