"""JSON, and nothing but: what two parsers could read in two ways is refused."""

import json
import math
import re
from typing import IO, Any, Final, NoReturn

from rest_framework.parsers import BaseParser

from openrelay.core.errors import ApiError, Invalid

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 32
# A string, whether or not it ends, or a bracket outside of strings. Each character is read once: a string
# without an end is taken as it is, and not looked at again from its next quotation mark on.
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{\]}]', re.DOTALL)
_MAX_INTEGER = 2**63 - 1


class TooLarge(ApiError):
    """413: more than a request may carry."""

    status = 413
    code = "PAYLOAD_TOO_LARGE"


class UnsupportedMedia(ApiError):
    """415: not JSON."""

    status = 415
    code = "UNSUPPORTED_MEDIA_TYPE"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise Invalid(f"The body has the field {_shown(name)} twice. Send it once.")
            seen.add(name)
    return found


def _integer(text: str) -> int:
    # 20 characters hold every 64-bit integer; Python itself would spend quadratic time on a very long one.
    if len(text) > 20 or abs(value := int(text)) > _MAX_INTEGER:
        raise Invalid("The body has an integer beyond 64 bits. Send a smaller one.")
    return value


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise Invalid("The body has a number that is too large. Send a smaller one.")
    return value


def _constant(text: str) -> NoReturn:
    raise Invalid(f"The body has {text}, which is not JSON. Send a number.")


def _shown(name: str) -> str:
    return ascii(name[:60])


def _depth(text: str) -> int:
    depth = deepest = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        character = found[0]
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _check_text(value: Any) -> None:
    """Refuse NUL, which PostgreSQL cannot store, and half a surrogate pair, which is no character."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, str):
            if "\x00" in current:
                raise Invalid("The body has a NUL character. Leave it out.")
            try:
                current.encode()
            except UnicodeEncodeError:
                raise Invalid("The body has half a surrogate pair. Send whole characters.") from None
        elif isinstance(current, dict):
            waiting.extend(current.keys())
            waiting.extend(current.values())
        elif isinstance(current, list):
            waiting.extend(current)


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`. Raises Invalid (VALIDATION_ERROR) or TooLarge (PAYLOAD_TOO_LARGE)."""
    if len(raw) > MAX_BYTES:
        raise TooLarge("The body is larger than 1 MiB. Send less at once.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Invalid("The body is not UTF-8. Send JSON in UTF-8.") from None
    # Counting first keeps the exact look for bodies that could be deep at all.
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise Invalid(f"The body is nested deeper than {MAX_DEPTH} levels. Send a flatter one.")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_no_duplicates,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise Invalid(f"The body is not JSON: line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise Invalid(f"The body is nested deeper than {MAX_DEPTH} levels. Send a flatter one.") from None
    if not isinstance(value, dict):
        raise Invalid("The body must be a JSON object.")
    if "\\u" in text:  # only an escape can spell either: raw ones were refused as no UTF-8 or no JSON
        _check_text(value)
    return value


class StrictJSONParser(BaseParser):
    """Reads a request's body by `parse_object`."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None
    ) -> dict[str, Any]:
        _, _, parameters = (media_type or "").partition(";")
        charset = re.search(r"charset\s*=\s*\"?([^\s\";]+)", parameters, re.IGNORECASE)
        if charset is not None and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
            raise UnsupportedMedia("The body must be JSON in UTF-8.")
        raw = stream.read(MAX_BYTES + 1)
        return parse_object(raw) if raw.strip(b" \t\r\n") else {}
