"""What the apps say of their operations, put together."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string
from rest_framework.serializers import Serializer

from openrelay.api.schema.shapes import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. What its declaration as an operation implies, such as 401, is not repeated here.

    `answer` is the shape of a success, None for 204. `errors` are the codes of its own.
    """

    tag: str
    summary: str
    description: str
    answer: Schema | None
    example: Any = None
    body: type[Serializer] | None = None
    body_example: Any = None
    query: type[Serializer] | None = None
    errors: tuple[str, ...] = ()
    takes_idempotency_key: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """How an input serializer is called in the schema, and what its fields mean."""

    name: str
    note: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Code:
    """An error code: its status, when it is answered, and a sentence as it may read.

    `extra` are further fields that such an answer carries; `shape` is its shape, where every code of a status
    has the same and it is not the common one.
    """

    status: int
    when: str
    sentence: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    shape: str = "Error"


@dataclass(frozen=True, slots=True)
class Description:
    """What one app describes: its part of the book."""

    operations: Mapping[str, Operation] = field(default_factory=dict)
    shapes: Mapping[str, Schema] = field(default_factory=dict)
    bodies: Mapping[Any, Body] = field(default_factory=dict)
    codes: Mapping[str, Code] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, Schema] = field(default_factory=dict)


@functools.cache
def book() -> Description:
    """Every app's description as one. Raises ValueError when two describe the same thing."""
    whole: dict[str, dict[Any, Any]] = {name: {} for name in Description.__slots__}
    for module in settings.API_DESCRIPTIONS:
        part = import_string(f"{module}.DESCRIPTION")
        for name, entries in whole.items():
            given = getattr(part, name)
            if twice := entries.keys() & given.keys():
                raise ValueError(f"{module} describes {', '.join(map(str, twice))} a second time")
            entries.update(given)
    return Description(**whole)
