"""Pages by position, not by count: a row that stays is seen once, whatever comes or goes meanwhile."""

import base64
import binascii
import datetime as dt
import json
import uuid
from typing import Any, TypeVar

from django.db import models

from openrelay.api.serializers import StrictCharField, StrictIntegerField, StrictSerializer
from openrelay.core.errors import Invalid

M = TypeVar("M", bound=models.Model)

DEFAULT_LIMIT = 50
MAX_LIMIT = 100


class PageQuery(StrictSerializer):
    """The parameters of a list that pages."""

    limit = StrictIntegerField(required=False, min_value=1, max_value=MAX_LIMIT, default=DEFAULT_LIMIT)
    cursor = StrictCharField(required=False, max_length=500, default=None)


def paginate(
    queryset: "models.QuerySet[M]",
    *,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
    order: tuple[str, ...] = ("-created_at", "-id"),
) -> tuple[list[M], str | None]:
    """One page of `queryset` by one query, and the cursor of the next, None on the last page.

    `order` names model fields, all descending or all ascending, that together are unique. Raises Invalid
    (VALIDATION_ERROR) for a limit outside 1..100 or a cursor that this list did not give.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise Invalid(f"limit must be from 1 to {MAX_LIMIT}.")
    names = [name.removeprefix("-") for name in order]
    tag = f"{queryset.model._meta.label_lower}:{','.join(order)}"
    position = None if cursor is None else _decode(cursor, tag, queryset.model, names)
    rows, position = read_page(queryset, limit=limit, position=position, order=order)
    return rows, None if position is None else _encode(tag, position)


def read_page(
    queryset: "models.QuerySet[M]", *, limit: int, position: list[Any] | None, order: tuple[str, ...]
) -> tuple[list[M], list[Any] | None]:
    """The `limit` rows that follow `position`, and the position of the last one if more follow it.

    A position is the row's values of the fields in `order`; None begins at the first row.
    """
    names = [name.removeprefix("-") for name in order]
    page = queryset.order_by(*order) if position is None else after(queryset, position, order)
    rows = list(page[: limit + 1])
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], [getattr(rows[limit - 1], name) for name in names]


def after(
    queryset: "models.QuerySet[M]", position: list[Any], order: tuple[str, ...]
) -> "models.QuerySet[M]":
    """The rows that follow `position`, in order."""
    names = [name.removeprefix("-") for name in order]
    return queryset.order_by(*order).filter(_after(names, position, order[0].startswith("-")))


def paginate_forward(
    queryset: "models.QuerySet[M]", *, limit: int, after: str | None, order: tuple[str, ...]
) -> tuple[list[M], str]:
    """The next page of a list that grows at its end, and the cursor that follows it, also when there is
    nothing new: asking with it again later gets what was added meanwhile.

    `after` is such a cursor, None for the beginning. `order` names fields, all ascending, that together are
    unique. Raises Invalid (VALIDATION_ERROR) for a cursor that this list did not give.
    """
    names = list(order)
    tag = f"{queryset.model._meta.label_lower}:{','.join(order)}"
    page = queryset.order_by(*order)
    if after == _encode(tag, []):
        after = None
    if after is not None:
        page = page.filter(_after(names, _decode(after, tag, queryset.model, names), descending=False))
    rows = list(page[:limit])
    if rows:
        return rows, _encode(tag, [getattr(rows[-1], name) for name in names])
    return rows, _encode(tag, []) if after is None else after


def _after(names: list[str], values: list[Any], descending: bool) -> models.Q:
    past = "lt" if descending else "gt"
    condition = models.Q()
    for position, name in enumerate(names):
        same = models.Q(**dict(zip(names[:position], values, strict=False)))
        condition |= same & models.Q(**{f"{name}__{past}": values[position]})
    # Redundant, and what lets the index begin at the right place.
    return models.Q(**{f"{names[0]}__{past}e": values[0]}) & condition


def _encode(tag: str, values: list[Any]) -> str:
    texts = [value.isoformat() if isinstance(value, dt.datetime) else str(value) for value in values]
    return base64.urlsafe_b64encode(json.dumps([tag, *texts]).encode()).decode().rstrip("=")


def _decode(cursor: str, tag: str, model: type[models.Model], names: list[str]) -> list[Any]:
    try:
        raw = base64.b64decode(
            cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True
        )
        parts = json.loads(raw)
        given, *texts = parts
        if given != tag or len(texts) != len(names) or not all(isinstance(text, str) for text in texts):
            raise ValueError
        return [_value(_stored_field(model, name), text) for name, text in zip(names, texts, strict=True)]
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error):
        raise Invalid("cursor is not one that this list gave. Leave it out to begin again.") from None


def _stored_field(model: type[models.Model], name: str) -> Any:
    """The field of `name`; of a foreign key, the field that it holds the value of."""
    field: Any = model._meta.get_field(name)
    while field.is_relation:
        field = field.target_field
    return field


def _value(field: Any, text: str) -> Any:
    if isinstance(field, models.DateTimeField):
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError
        return moment.astimezone(dt.UTC)
    if isinstance(field, models.UUIDField):
        return uuid.UUID(text)
    if isinstance(field, models.IntegerField):
        value = int(text)
        if abs(value) >= 2**63:
            raise ValueError
        return value
    if "\x00" in text:
        raise ValueError
    return text
