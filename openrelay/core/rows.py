"""Rows by statements that are written once.

The ORM compiles its SQL anew each time, which costs more than most of these queries take. For the few that
every change runs under its lock, and no others. Columns come as Django stores them, which excludes models
with JSON fields from being read so.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Generic, TypeVar

from django.db import connection, models

from openrelay.core.database.statements import Params, Row

M = TypeVar("M", bound=models.Model)
T = TypeVar("T")


def query(statement: str, params: Params = (), *, closing: bool = False) -> list[Row]:
    """The rows of a statement that never changes; see `DatabaseWrapper.query_all`, for `closing` too."""
    (found,) = query_all((statement, params), closing=closing)
    return found


def query_all(*statements: tuple[str, Params], closing: bool = False) -> list[list[Row]]:
    """The rows of several such statements, in one round trip; each begins when the one before has ended."""
    found: list[list[Row]] = connection.query_all(statements, closing=closing)  # type: ignore[attr-defined]
    return found


@dataclass(frozen=True, slots=True)
class Reading:
    """One value that another's statement reads along with its own: a scalar subquery that never changes.

    A change reads its rights and the clock under its lock in any case; what else it needs then comes with
    them, in the same snapshot, instead of costing everybody who waits another round trip.
    """

    sql: str
    params: tuple[Any, ...] = ()


NOTHING = Reading("NULL")


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One statement with its parameters, and what is made of the rows it gives."""

    sql: str
    params: Sequence[Any]
    read: Callable[[list[Row]], T]


def ask(question: Question[T]) -> T:
    """The question's answer."""
    return question.read(query(question.sql, question.params))


def ask_all(*questions: Question[Any]) -> list[Any]:
    """The answers to several questions, in one round trip.

    The statements go out as one message. Each sees what was committed when it began, as if sent alone; but
    the statement's own time is the same for all of them.
    """
    answers = []
    with connection.cursor() as cursor:
        cursor.execute(
            "; ".join(question.sql for question in questions),
            [value for question in questions for value in question.params],
        )
        for number, question in enumerate(questions):
            if number:
                cursor.nextset()
            answers.append(question.read(cursor.fetchall()))
    return answers


@cache
def columns(model: type[models.Model], alias: str = "") -> str:
    """The columns of `model`, as a SELECT names them."""
    prefix = f"{alias}." if alias else ""
    return ", ".join(
        prefix + connection.ops.quote_name(field.column) for field in model._meta.concrete_fields
    )


def build(model: type[M], row: Row) -> M:
    """The instance that a row of `columns` is; what follows them in the row is left alone."""
    names = _names(model)
    instance: M = model.from_db(connection.alias, names, row[: len(names)])
    return instance


def build_partial(model: type[M], names: Sequence[str], row: Sequence[Any]) -> M:
    """An instance of which only these attributes were read; another is fetched when it is asked for."""
    instance: M = model.from_db(connection.alias, list(names), list(row))
    return instance


@cache
def _names(model: type[models.Model]) -> list[str]:
    return [field.attname for field in model._meta.concrete_fields]


def array(items: Iterable[object]) -> str:
    """An array parameter of what needs no quoting, such as ids, for a `%s` that is cast to its type.

    Written at once, which is quicker than having each element adapted.
    """
    return "{" + ",".join(["NULL" if item is None else str(item) for item in items]) + "}"


def as_json(instance: models.Model) -> str:
    """The instance's row as `json_populate_record` takes it, for a table whose columns hold what is JSON, or
    text, or reads as its text.
    """
    names, read = _columns(type(instance))
    return _encode(dict(zip(names, read(instance), strict=True)))


_encode = json.JSONEncoder(default=str).encode


@cache
def _columns(model: type[models.Model]) -> tuple[list[str], Callable[[models.Model], Row]]:
    fields = model._meta.concrete_fields
    return [field.column for field in fields], attrgetter(*[field.attname for field in fields])


def fresh_as_json(model: type[models.Model], **given: Any) -> str:
    """The row of a new instance, as `as_json` gives it, without making the instance: `given` by column, else
    the fields' defaults. What has a default that is called has to be given.
    """
    return _encode({**_defaults(model), **given})


@cache
def _defaults(model: type[models.Model]) -> dict[str, Any]:
    return {
        field.column: None if field.has_default() and callable(field.default) else field.get_default()
        for field in model._meta.concrete_fields
    }
