"""Lists that are answered whole: read and sent a page at a time, and paged for callers who ask for pages."""

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from openrelay.api import lists
from openrelay.api.lists import PAGE_ROWS
from tests import test_query_counts as filling
from tests.reservations.conftest import Fleet, fleet

__all__ = ["fleet"]

pytestmark = pytest.mark.django_db

ROWS = 2 * PAGE_ROWS + 1


def content(answer: Any) -> Any:
    """The JSON of an answer, streamed or not."""
    return json.loads(b"".join(answer.streaming_content) if answer.streaming else answer.content)


def path(fleet: Fleet) -> str:
    """The reservations of the tenant."""
    return f"/v1/orgs/{fleet.tenant.pk}/reservations"


def walk(fleet: Fleet, address: str | None) -> list[dict[str, Any]]:
    """Every row of a list, by following its `Link` headers from `address`."""
    rows: list[dict[str, Any]] = []
    while address is not None:
        answer = fleet.client("tenant").get(address)
        assert answer.status_code == 200, answer.content
        rows += answer.json()
        link = answer.headers.get("Link")
        assert link is None or link.endswith('>; rel="next"')
        address = link and link[1:].partition(">")[0]
    return rows


def test_a_long_list_has_every_row_once_in_order(fleet: Fleet) -> None:
    filling.reservations(fleet, ROWS)
    rows = content(fleet.client("tenant").get(path(fleet)))
    assert len({row["id"] for row in rows}) == len(rows) == ROWS
    assert [row["createdAt"] for row in rows] == sorted((row["createdAt"] for row in rows), reverse=True)


def test_a_short_list_and_an_empty_one_are_whole(fleet: Fleet) -> None:
    assert content(fleet.client("tenant").get(path(fleet))) == []
    fleet.reserved(0)
    assert len(content(fleet.client("tenant").get(path(fleet)))) == 1


@pytest.mark.parametrize("rows", [PAGE_ROWS, PAGE_ROWS + 1, 2 * PAGE_ROWS])
def test_a_list_that_ends_with_its_page_is_whole(fleet: Fleet, rows: int) -> None:
    filling.reservations(fleet, rows)
    assert len(content(fleet.client("tenant").get(path(fleet)))) == rows


def test_a_long_list_never_reads_more_than_one_page_at_a_time(fleet: Fleet) -> None:
    filling.reservations(fleet, ROWS)
    answer = fleet.client("tenant").get(path(fleet))
    pages = iter(answer.streaming_content)
    with CaptureQueriesContext(connection) as queries:
        sizes = [len(next(pages)), len(next(pages))]
    assert len(queries) == 1, "the first page was read before the answer began"
    assert 0 < sizes[1] < 1.1 * sizes[0]


def test_a_row_that_comes_or_goes_meanwhile_costs_no_other_row(fleet: Fleet) -> None:
    filling.reservations(fleet, ROWS)
    client = fleet.client("tenant")
    before = {row["id"] for row in content(client.get(path(fleet)))}
    answer = client.get(path(fleet))
    pages = iter(answer.streaming_content)
    first = next(pages)
    new = fleet.reserved(7, startsAt="2200-01-01T00:00:00Z")
    gone = json.loads(first + b"]")[3]["id"]
    assert fleet.client("platform").post(f"{fleet.path}/{gone}/cancel").status_code in (200, 404)
    rows = json.loads(first + b"".join(pages))
    assert {row["id"] for row in rows} == before
    assert new["id"] not in before


def test_a_list_is_paged_for_callers_who_ask(fleet: Fleet) -> None:
    filling.reservations(fleet, 25)
    whole = content(fleet.client("tenant").get(path(fleet)))
    first = fleet.client("tenant").get(path(fleet), {"limit": 10})
    assert len(first.json()) == 10
    query = parse_qs(urlsplit(first.headers["Link"][1:].partition(">")[0]).query)
    assert query["limit"] == ["10"]
    assert walk(fleet, f"{path(fleet)}?limit=10") == whole


def test_a_page_keeps_the_other_parameters(fleet: Fleet) -> None:
    filling.nodes(fleet, 5)
    provider = fleet.client("provider")
    nodes = f"/v1/orgs/{fleet.provider.pk}/provider/nodes"
    first = provider.get(nodes, {"class": "persistent", "limit": 3})
    assert "class=persistent" in first.headers["Link"]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "cursor=x", "limit=ten", "cursor=", "other=1"])
def test_a_bad_page_is_refused_by_name(fleet: Fleet, query: str) -> None:
    answer = fleet.client("tenant").get(f"{path(fleet)}?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["error"]


def test_an_error_after_the_first_page_leaves_the_array_open(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    filling.reservations(fleet, ROWS)
    pages = iter(fleet.client("tenant").get(path(fleet)).streaming_content)
    sent = next(pages)

    def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("the database went away")

    monkeypatch.setattr(lists, "_encode", fail)
    with pytest.raises(RuntimeError):
        next(pages)
    assert not sent.endswith(b"]")
