"""Short words for JSON schemas, so that a shape reads as a table of its fields."""

from typing import Any

Schema = dict[str, Any]


def _typed(kind: str, note: str, nullable: bool, more: Schema) -> Schema:
    schema: Schema = {"type": [kind, "null"] if nullable else kind}
    if note:
        schema["description"] = note
    return schema | more


def text(note: str = "", *, nullable: bool = False, **more: Any) -> Schema:
    """A string."""
    return _typed("string", note, nullable, more)


def an_id(note: str = "") -> Schema:
    """An opaque id."""
    return text(note, format="uuid")


def time(note: str = "", *, nullable: bool = False) -> Schema:
    """An RFC 3339 time in UTC."""
    return text(note, nullable=nullable, format="date-time")


def one_of(choices: Any, note: str = "") -> Schema:
    """One of some strings."""
    return text(note, enum=list(choices))


def integer(note: str = "", **more: Any) -> Schema:
    """A whole number."""
    return _typed("integer", note, False, more)


def number(note: str = "", *, nullable: bool = False) -> Schema:
    """A number."""
    return _typed("number", note, nullable, {})


def flag(note: str = "") -> Schema:
    """True or false."""
    return _typed("boolean", note, False, {})


def many(items: Schema, note: str = "") -> Schema:
    """A list of `items`."""
    return _typed("array", note, False, {"items": items})


def ids(note: str = "") -> Schema:
    """A list of opaque ids."""
    return many(an_id(), note)


def words(note: str = "") -> Schema:
    """A list of strings."""
    return many(text(), note)


def ref(name: str, note: str = "") -> Schema:
    """The shape of that name."""
    schema: Schema = {"$ref": f"#/components/schemas/{name}"}
    return schema | {"description": note} if note else schema


def shape(note: str, required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """An object: the fields that are always there, and those that are absent when there is nothing to say."""
    schema: Schema = {"type": "object", "description": note, "properties": required | (optional or {})}
    if required:
        schema["required"] = list(required)
    return schema


def listed(name: str, note: str = "") -> Schema:
    """An answer that is a plain list of the shape of that name."""
    return many(ref(name), note)


def page(name: str, note: str) -> Schema:
    """One page of a list."""
    return shape(
        note,
        {"items": many(ref(name), "What is on this page.")},
        {"nextCursor": text("Where the next page begins; absent on the last one.")},
    )
