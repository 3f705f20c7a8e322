"""The schema is whole: every route, every code, every example, and what the published client expects."""

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
import yaml
from django.conf import settings
from django.contrib.staticfiles import finders
from django.test import Client

from compute.domain import states
from openrelay.api.schema.auto import public_path
from openrelay.api.schema.book import book
from openrelay.api.serializers import check
from openrelay.identity.operations import OPERATIONS
from tests.api.test_operations import api_views, routes
from tests.schema.reading import faults, operations, schema

ALL = [pytest.param(*row, id=row[2]["operationId"]) for row in operations()]
# Pages and files for people; the rest is the API.
NOT_THE_API = ("console/", "docs", "^openapi", "^(?:v1|api)", "")


def test_every_route_is_in_the_schema_and_nothing_else() -> None:
    served = {
        (public_path("/" + re.sub(r"<str:(\w+)>", r"{\1}", path))[0], method, name)
        for path, view in api_views()
        for method, name in view.operations.items()
    } | {("/livez", "GET", "livez"), ("/readyz", "GET", "readyz")}
    assert {(path, method, row["operationId"]) for path, method, row in operations()} == served


def test_no_route_is_forgotten() -> None:
    for path, _ in routes():
        known = path.startswith(("v1/", "api/", "livez", "readyz", "console/"))
        assert known or path in NOT_THE_API or path.startswith(("docs", "^openapi", "^(?:v1|api)")), path


@pytest.mark.parametrize(("path", "method", "operation"), ALL)
def test_an_operation_is_explained(path: str, method: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert len(operation["description"]) > 40
    assert len(operation["tags"]) == 1
    assert operation["tags"][0] in {tag["name"] for tag in schema()["tags"]}
    for parameter in operation.get("parameters", []):
        assert parameter["description"]
        assert parameter["schema"]
    assert set(re.findall(r"{(\w+)}", path)) == {
        row["name"] for row in operation.get("parameters", []) if row["in"] == "path"
    }


def test_every_property_is_described() -> None:
    def missing(node: Any, path: str) -> list[str]:
        found = []
        if isinstance(node, dict):
            for name, inner in (node.get("properties") or {}).items():
                if not inner.get("description"):
                    found.append(f"{path}.{name}")
            for name, inner in node.items():
                found += missing(inner, path if name == "properties" else f"{path}.{name}")
        elif isinstance(node, list):
            for inner in node:
                found += missing(inner, path)
        return found

    assert missing(schema()["components"]["schemas"], "") == []


def test_every_state_and_every_reason_is_explained() -> None:
    for shape in ("VmSummary", "VmDetail"):
        properties = schema()["components"]["schemas"][shape]["properties"]
        for state in states.ALL:
            assert f"`{state}`:" in properties["status"]["description"]
        fixed = {value for value in vars(states).values() if isinstance(value, str) and "_" in value}
        fixed -= {name for name in fixed if name.startswith("__") or "." in name}
        assert fixed >= {"node_lost", "user_stopped", "auto_stopped_organization_deleted"}
        for reason in fixed:
            assert f"`{reason}`:" in properties["statusReason"]["description"], reason


def test_the_schema_names_its_server() -> None:
    assert schema()["servers"] == [{"url": "/", "description": "The server that this schema was read from."}]
    served = Client().get("/openapi.json").json()
    assert [server["url"] for server in served["servers"]] == [settings.BASE_URL]


@pytest.mark.parametrize(("path", "method", "operation"), ALL)
def test_an_operation_says_who_may(path: str, method: str, operation: dict[str, Any]) -> None:
    access = OPERATIONS.get(operation["operationId"])
    if access is None:
        assert operation["security"] == []
        return
    if access.public:
        assert operation["security"] == []
        assert "No credential" in operation["description"]
        return
    assert operation["security"] == [{"nodeCredential": []} if access.node else {"bearer": []}]
    assert access.action in operation["description"]
    schemes = schema()["components"]["securitySchemes"]
    assert all(scheme["type"] == "http" and scheme["scheme"] == "bearer" for scheme in schemes.values())


@pytest.mark.parametrize(("path", "method", "operation"), ALL)
def test_the_examples_are_true_to_their_shapes(path: str, method: str, operation: dict[str, Any]) -> None:
    contents = [
        (status, content)
        for status, answer in operation["responses"].items()
        for content in answer.get("content", {}).values()
    ]
    contents += [
        ("body", content) for content in operation.get("requestBody", {}).get("content", {}).values()
    ]
    assert contents or "204" in operation["responses"]
    for where, content in contents:
        assert content["examples"], where
        for name, example in content["examples"].items():
            assert faults(example["value"], content["schema"]) == [], f"{where} {name}"


@pytest.mark.parametrize("name", book().operations)
def test_the_example_of_a_body_is_taken(name: str) -> None:
    operation = book().operations[name]
    if operation.body is not None:
        _, wrong = check(operation.body, operation.body_example)
        assert wrong == []


@pytest.mark.parametrize(("path", "method", "operation"), ALL)
def test_the_codes_of_each_refusal_are_listed(path: str, method: str, operation: dict[str, Any]) -> None:
    if operation["operationId"] not in OPERATIONS:
        return
    answers = operation["responses"]
    refusals = {status: row for status, row in answers.items() if int(status) >= 400}
    if not OPERATIONS[operation["operationId"]].public:
        assert {"401", "403"} <= refusals.keys()
    for status, answer in refusals.items():
        content = answer["content"]["application/json"]
        shapes = {book().codes[code].shape for code in content["examples"]}
        assert content["schema"] == {"$ref": f"#/components/schemas/{shapes.pop()}"}
        assert not shapes
        for code, example in content["examples"].items():
            assert f"`{code}`" in answer["description"]
            assert example["value"]["code"] == code
            assert book().codes[code].status == int(status)


def test_every_code_in_the_source_is_explained() -> None:
    found = set()
    for app in ("openrelay", "nodes", "compute", "reservations"):
        for file in (settings.BASE_DIR / app).rglob("*.py"):
            found |= set(re.findall(r'\bcode(?:: str)? ?= ?"([A-Z][A-Z_]+)"', file.read_text()))
    # These two come before any operation is known.
    assert found - {"METHOD_NOT_ALLOWED", "RATE_LIMITED"} <= book().codes.keys()


def test_every_shape_code_and_tag_serves_some_operation() -> None:
    text = str(schema())
    for name in schema()["components"]["schemas"]:
        assert f"#/components/schemas/{name}'" in text, name
    for code in book().codes:
        assert f"`{code}`" in text, code
    for tag in schema()["tags"]:
        assert any(tag["name"] in operation["tags"] for _, _, operation in operations()), tag


def test_unknown_fields_of_a_body_are_refused_in_the_schema_too() -> None:
    for path, method, operation in operations():
        if "requestBody" in operation:
            (content,) = operation["requestBody"]["content"].values()
            name = content["schema"]["$ref"].rsplit("/")[-1]
            assert schema()["components"]["schemas"][name]["additionalProperties"] is False, (
                f"{method} {path}"
            )


def test_the_committed_file_is_what_the_code_says(client: Client) -> None:
    served = yaml.safe_load(client.get("/openapi.yaml").content)
    committed = yaml.safe_load((settings.BASE_DIR / "docs" / "openapi.yaml").read_bytes())
    # Which server it is differs from one installation to the next.
    assert {**committed, "servers": ...} == {**served, "servers": ...}


# What the client's models of the same name have, and ours leave out.
LEFT_OUT: dict[str, set[str]] = {}
# What ours have beside them; the client keeps it in `additional_properties`.
ADDED = {"AuditEvent": {"reason", "serverRequestId"}}


def _client_models(sdk: ModuleType) -> dict[str, Any]:
    models = importlib.import_module(f"{sdk.__name__}.models")
    return {
        name: model
        for name in schema()["components"]["schemas"]
        if attrs.has(model := getattr(models, name, object))
    }


def test_shapes_agree_with_the_published_client(sdk: ModuleType) -> None:
    models = _client_models(sdk)
    assert len(models) > 30
    for name, model in models.items():
        shape = schema()["components"]["schemas"][name]
        required = set()
        optional = set()
        for field in attrs.fields(model):
            if field.name == "additional_properties":
                continue
            wire = _camel(field.name)
            (required if field.default is attrs.NOTHING else optional).add(wire)
        assert set(shape.get("required", [])) == required, name
        expected = (optional - LEFT_OUT.get(name, set())) | ADDED.get(name, set())
        assert shape["properties"].keys() - required == expected, name


def _camel(name: str) -> str:
    head, *tail = name.rstrip("_").split("_")
    return head + "".join(part.title() for part in tail)


@pytest.mark.parametrize(("path", "kind"), [("/openapi.json", "json"), ("/openapi.yaml", "yaml")])
def test_the_schema_is_served(client: Client, path: str, kind: str) -> None:
    response = client.get(path)
    assert (response.status_code, response["Content-Type"]) == (200, f"application/{kind}")
    refused = client.post(path)
    assert (refused.status_code, refused.json()["code"], refused["Allow"]) == (
        405,
        "METHOD_NOT_ALLOWED",
        "GET, HEAD",
    )


@pytest.mark.django_db
def test_the_page_brings_everything_itself(client: Client) -> None:
    assert not settings.DEBUG
    page = client.get("/docs")
    assert page.status_code == 200
    text = page.content.decode()
    addresses = re.findall(r'(?:src|href|data-schema)="([^"]+)"', text)
    assert len(addresses) > 5
    assert "//" not in "".join(addresses)
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code == 200, address
    assert "default-src 'none'" in page["Content-Security-Policy"]


def test_what_the_page_loads_names_no_other_host() -> None:
    sheet = _static("drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css")
    assert not re.search(r"url\(\s*[\"']?(?:https?:)?//", sheet)
    own = _static("docs/docs.js") + _static("docs/docs.css")
    assert "//" not in own.replace("// The page", "")


def _static(name: str) -> str:
    return Path(str(finders.find(name))).read_text()
