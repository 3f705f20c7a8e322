"""The schema as tests read it: which operation a request is, and whether an answer is as it says."""

import copy
import functools
import json
import re
from typing import Any

from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator, FormatChecker


@functools.cache
def schema() -> dict[str, Any]:
    """The schema, made from the code."""
    return json.loads(json.dumps(SchemaGenerator().get_schema(public=True)))


@functools.cache
def _closed() -> dict[str, Any]:
    """The same with every object closed: an answer with a field that is not described fails."""
    closed = copy.deepcopy(schema())

    def close(node: Any) -> None:
        if isinstance(node, dict):
            if "properties" in node and "additionalProperties" not in node:
                node["additionalProperties"] = False
            for inner in node.values():
                close(inner)
        elif isinstance(node, list):
            for inner in node:
                close(inner)

    close(closed["components"]["schemas"])
    return closed


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Every operation with its path and method."""
    return [
        (path, method.upper(), operation)
        for path, item in schema()["paths"].items()
        for method, operation in item.items()
    ]


def faults(value: Any, shape: dict[str, Any]) -> list[str]:
    """What is wrong with `value` as an example of `shape`."""
    validator = Draft202012Validator(
        {**shape, "components": _closed()["components"]}, format_checker=FormatChecker()
    )
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def operation_of(method: str, path: str) -> dict[str, Any]:
    """The operation that a request is."""
    found = []
    for pattern, verb, operation in operations():
        expression = re.sub(r"{\w+}", "[^/]+", pattern)
        if verb == method and re.fullmatch(expression, path):
            found.append((pattern.count("{"), operation))
    assert found, f"{method} {path} is not in the schema"
    # A literal segment goes before a parameter, as in the routes.
    return min(found, key=lambda pair: pair[0])[1]


def check(method: str, path: str, response: Any) -> None:
    """Fail unless the answer is one that the schema announces, in shape and in code."""
    operation = operation_of(method, path)
    name = f"{operation['operationId']} {response.status_code}"
    announced = operation["responses"].get(str(response.status_code))
    assert announced, f"{name}: not announced. {response.content!r}"
    if "content" not in announced:
        assert not response.content, name
        return
    content = announced["content"]["application/json"]
    wrong = faults(response.json(), content["schema"])
    assert not wrong, f"{name}: {wrong}"
    if response.status_code >= 400 and "code" in response.json():
        assert response.json()["code"] in content["examples"], f"{name}: {response.json()}"
