"""Model rows by a statement that is compiled once.

The ORM compiles its SQL anew each time, which costs more than most of these queries take. For the few that
every change runs under its lock, and no others.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from django.db import connection, models

M = TypeVar("M", bound=models.Model)


def fetch(
    model: type[M], tail: str, params: Sequence[Any], *, extra: tuple[str, str] | None = None
) -> list[M]:
    """Instances of `model` by `SELECT` of every column, followed by `tail` ("WHERE … FOR UPDATE").

    `extra` is the name and the SQL of one more attribute to give them. For models whose columns need no
    conversion by Django, which excludes JSON fields.
    """
    select, names = _select(model, extra[1] if extra else "")
    with connection.cursor() as cursor:
        cursor.execute(select + tail, params)
        rows = cursor.fetchall()
    found = [model.from_db(connection.alias, names, row[: len(names)]) for row in rows]
    if extra:
        for instance, row in zip(found, rows, strict=True):
            setattr(instance, extra[0], row[-1])
    return found


@cache
def _select(model: type[models.Model], extra: str) -> tuple[str, list[str]]:
    fields = model._meta.concrete_fields
    columns = ", ".join(connection.ops.quote_name(field.column) for field in fields)
    table = connection.ops.quote_name(model._meta.db_table)
    if extra:
        columns += f", {extra}"
    return f"SELECT {columns} FROM {table} ", [  # noqa: S608  (names of our own models)
        field.attname for field in fields
    ]
