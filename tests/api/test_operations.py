"""Every path declares its operations, and each operation what it needs."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from openrelay.api.views import OperationView
from openrelay.identity.operations import OPERATIONS
from openrelay.identity.permissions import ACTIONS
from tests.identity.factories import bearer, make_key, make_org


def routes(resolver: URLResolver | None = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for pattern in (resolver or get_resolver()).url_patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield path, pattern.callback
        else:
            yield from routes(pattern, path)


def api_views() -> list[tuple[str, type[OperationView]]]:
    return [
        (path, callback.view_class)
        for path, callback in routes()
        if path.startswith(("v1/", "api/")) and hasattr(callback, "view_class")
    ]


def test_every_api_path_is_an_operation_view() -> None:
    views = api_views()
    assert len(views) > 5
    for path, view in views:
        assert issubclass(view, OperationView), path


def test_every_method_is_a_declared_operation() -> None:
    for path, view in api_views():
        methods = {name.upper() for name in view.http_method_names if name != "head" and hasattr(view, name)}
        assert methods == set(view.operations), path
        for operation in view.operations.values():
            assert operation in OPERATIONS, f"{path}: {operation} is not declared"


def test_no_operation_is_served_twice() -> None:
    served = [operation for _, view in api_views() for operation in view.operations.values()]
    assert len(served) == len(set(served))


def test_declared_actions_exist() -> None:
    for operation, access in OPERATIONS.items():
        assert access.action in ACTIONS or access.public or access.node, operation


def test_no_view_takes_apart_what_the_base_judges() -> None:
    for path, view in api_views():
        for method in ("initial", "dispatch", "handle_exception", "require"):
            assert getattr(view, method) is getattr(OperationView, method), f"{path} overrides {method}"


@pytest.mark.django_db
def test_an_undeclared_operation_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    _, secret = make_key(make_org())
    monkeypatch.delitem(OPERATIONS, "whoami")
    response = client.get("/v1/whoami", **bearer(secret))
    assert (response.status_code, response.json()["code"]) == (403, "FORBIDDEN")
