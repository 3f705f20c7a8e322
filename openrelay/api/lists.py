"""Lists that are answered whole unless the caller asks for pages.

A whole list is read and sent a page at a time, so its memory does not grow with its rows. Between two pages
it holds no database connection, and the server may answer other requests.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.db import connection, models
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from openrelay.api.pagination import DEFAULT_LIMIT, MAX_LIMIT, after, paginate, read_page
from openrelay.api.serializers import StrictCharField, StrictIntegerField, StrictSerializer

M = TypeVar("M", bound=models.Model)
Present = Callable[[list[Any]], list[dict[str, Any]]]

# Rows that a whole list reads by one query: some 50 ms of work, after which others have their turn.
PAGE_ROWS = 500
_JSON = "application/json"


class ListQuery(StrictSerializer):
    """The parameters of a list that is answered whole unless one of them is given."""

    limit = StrictIntegerField(required=False, min_value=1, max_value=MAX_LIMIT, default=None)
    cursor = StrictCharField(required=False, max_length=500, default=None)


def answer_list(
    queryset: "models.QuerySet[M]",
    present: Present,
    *,
    request: Request,
    limit: int | None = None,
    cursor: str | None = None,
    order: tuple[str, ...] = ("-created_at", "-id"),
) -> HttpResponseBase:
    """The rows of `queryset` as a JSON array, in `order`, each page made by `present(rows)`.

    With `limit` or `cursor`, one page; the header `Link` with `rel="next"` has the address of the next one,
    if there is one. Without both, every row: a row that exists throughout is there exactly once. An error
    after the first page ends the connection before the array is closed.

    Raises Invalid (VALIDATION_ERROR) for a cursor that this list did not give.
    """
    if limit is not None or cursor is not None:
        rows, following = paginate(queryset, limit=limit or DEFAULT_LIMIT, cursor=cursor, order=order)
        answer = HttpResponse(_encode(present(rows)), content_type=_JSON)
        if following is not None:
            query = request.query_params.dict() | {"limit": str(limit or DEFAULT_LIMIT), "cursor": following}
            answer.headers["Link"] = f'<{request.path}?{urlencode(query)}>; rel="next"'
        return answer
    first, position = read_page(queryset, limit=PAGE_ROWS, position=None, order=order)
    shown = _encode(present(first))
    if position is None:
        return HttpResponse(shown, content_type=_JSON)
    following_ids = list(after(queryset, position, order).values_list("pk", flat=True))
    pages = _pages(shown, queryset.order_by(*order), present, following_ids)
    return StreamingHttpResponse(pages, content_type=_JSON)


def _pages(
    first: bytes, queryset: "models.QuerySet[M]", present: Present, following_ids: list[Any]
) -> Iterator[bytes]:
    """The parts of the array: the first page, then the rows of `following_ids` a page at a time.

    The ids are read once: to find the place of each page anew would sort the whole list for every page.
    """
    _give_connection_back()
    yield first[:-1]
    for start in range(0, len(following_ids), PAGE_ROWS):
        rows = list(queryset.filter(pk__in=following_ids[start : start + PAGE_ROWS]))
        shown = _encode(present(rows))[1:-1]
        _give_connection_back()
        if shown:
            yield b"," + shown
    yield b"]"


def _give_connection_back() -> None:
    """Return the connection to its pool: how long the caller takes to read the page is not known."""
    if not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()


def _encode(rows: list[dict[str, Any]]) -> bytes:
    encoded: bytes = JSONRenderer().render(rows)
    return encoded
