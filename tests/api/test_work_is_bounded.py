"""The work of reading a request is a small multiple of its size, whatever it holds."""

import functools
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework import serializers as drf

from openrelay.api import serializers
from openrelay.api.parser import parse_object
from openrelay.api.schema.book import book
from openrelay.core.errors import Invalid

KB = 256
# How many times the processor time of reading a plain body of the same size. Quadratic work takes thousands.
MOST = 25


def cpu_seconds(act: Callable[[], Any]) -> float:
    """The least processor time of three tries."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        act()
        taken.append(time.process_time() - began)
    return min(taken)


@functools.cache
def plain() -> float:
    """What a body of many small values costs."""
    raw = b'{"a":[' + b"[0]," * (KB * 256 - 3) + b"0]}"
    assert len(raw) > KB * 1000
    return cpu_seconds(lambda: json.loads(raw))


def check(act: Callable[[], Any], label: str) -> None:
    ratio = cpu_seconds(act) / plain()
    assert ratio < MOST, f"{label}: {ratio:.0f} times the work of reading a plain body of {KB} KB"


def refused(raw: bytes) -> None:
    try:
        parse_object(raw)
    except Invalid:
        return


SIZE = KB * 1024
BODIES = {
    "an open string of escaped quotes": b'{"' + b"[" * 33 + b'\\"' * (SIZE // 2),
    "open strings and brackets": b'{"a":[' + b'["\\\\' * (SIZE // 4),
    "escapes without an end": b'{"' + b"[" * 33 + b"\\" * SIZE,
    "brackets": b"[" * SIZE,
    "objects in objects": b'{"a":' * (SIZE // 5),
    "one long integer": b'{"a":' + b"9" * SIZE + b"}",
    "one long fraction": b'{"a":0.' + b"3" * SIZE + b"}",
    "one long exponent": b'{"a":1e' + b"9" * SIZE + b"}",
    "many fields": b"{" + b",".join(b'"%d":0' % n for n in range(SIZE // 10)) + b"}",
    "one field many times": b"{" + b",".join([b'"a":0'] * (SIZE // 6)) + b"}",
    "white space": b"{" + b" " * SIZE + b"}",
    "unicode escapes": b'{"a":"' + b"\\ud83d\\ude00" * (SIZE // 12) + b'"}',
    "many strings of unicode escapes": b'{"a":[' + b'"\\u00e9",' * (SIZE // 9) + b'""]}',
}


@pytest.mark.parametrize("name", BODIES)
def test_parsing_is_linear(name: str) -> None:
    check(lambda: refused(BODIES[name]), name)


# Wrong values for a field, each of about the size of a plain body.
VALUES: dict[str, Any] = {
    "numbers": [0] * (SIZE // 2),
    "strings": ["x"] * (SIZE // 4),
    "objects": [{}] * (SIZE // 3),
    "wrong objects": [{"x": 0}] * (SIZE // 8),
    "lists": [[]] * (SIZE // 3),
    "nulls": [None] * (SIZE // 5),
    "names": {str(n): 0 for n in range(SIZE // 12)},
    "names of strings": {str(n): "x" for n in range(SIZE // 14)},
    "a long string": "a" * SIZE,
    "escape sequences": "\x1b[" * (SIZE // 2),
    "an open escape sequence": "\x1b[" + ";" * SIZE,
    "spaces": " " * SIZE,
    "dashes": "a" + "-" * SIZE,
    "dots": "a." * (SIZE // 2),
    "colons": "0:" * (SIZE // 2),
    "slashes": "https://a" + "/" * SIZE,
    "digits": "9" * SIZE,
    "a number": 2**62,
}
INPUTS = sorted(
    {
        (shape, query)
        for operation in book().operations.values()
        for shape, query in ((operation.body, False), (operation.query, True))
        if shape is not None
    },
    key=lambda each: each[0].__name__,
)


def fields_of(shape: type[drf.Serializer]) -> list[str]:
    return list(shape().fields)


@pytest.mark.parametrize(("shape", "query"), INPUTS, ids=lambda each: getattr(each, "__name__", str(each)))
def test_checking_any_input_is_linear(shape: type[drf.Serializer], query: bool) -> None:
    unknown = {f"unknown{number}": 0 for number in range(SIZE // 14)}
    check(lambda: serializers.check(shape, unknown, query=query), f"{shape.__name__}, unknown fields")
    for label, value in VALUES.items():
        # All fields at once, each with its part; then the one that costs most alone would show as well.
        body = dict.fromkeys(fields_of(shape), value)
        check(
            lambda body=body: serializers.check(shape, body, query=query),  # type: ignore[misc]
            f"{shape.__name__}, each field with {label}",
        )


@pytest.mark.parametrize(("shape", "query"), INPUTS, ids=lambda each: getattr(each, "__name__", str(each)))
def test_checking_what_is_inside_is_linear(shape: type[drf.Serializer], query: bool) -> None:
    for name, field in shape().fields.items():
        inner = getattr(field, "child", field)
        if isinstance(inner, drf.Serializer):
            wrong = dict.fromkeys(inner.fields, [0] * 1000)
            value: Any = wrong if inner is field else [wrong] * 200
            check(
                lambda value=value, name=name: serializers.check(shape, {name: value}),  # type: ignore[misc]
                f"{shape.__name__}.{name}",
            )


def test_the_first_five_faults_end_validation() -> None:
    class Shape(serializers.StrictSerializer):
        names = serializers.StrictListField(child=serializers.StrictCharField(), max_length=100)

    _, faults = serializers.check(Shape, {"names": [0] * 100})
    assert faults == [f"names[{position}] must be a string" for position in range(5)]
    _, faults = serializers.check(Shape, {f"x{number}": 0 for number in range(50)})
    assert faults == [f"x{number} is not a field of this request" for number in range(5)]


def test_a_length_is_checked_before_any_item() -> None:
    seen: list[Any] = []

    class Child(serializers.StrictCharField):
        def to_internal_value(self, data: Any) -> str:
            seen.append(data)
            return super().to_internal_value(data)

    class Shape(serializers.StrictSerializer):
        names = serializers.StrictListField(child=Child(), max_length=3)

    _, faults = serializers.check(Shape, {"names": ["a"] * 4})
    assert faults == ["names must have at most 3 items"]
    assert seen == []
