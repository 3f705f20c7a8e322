"""Input serializers that take a body exactly as it is: nothing coerced, nothing unknown ignored."""

import datetime as dt
import re
import uuid
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from itertools import islice
from typing import Any, Final

from django.core.validators import ProhibitNullCharactersValidator
from rest_framework import serializers
from rest_framework.fields import SkipField, empty, get_error_detail
from rest_framework.settings import api_settings
from rest_framework.validators import ProhibitSurrogateCharactersValidator

from openrelay.core.errors import Invalid
from openrelay.core.ids import parse_id
from openrelay.core.text import fault_of_name, fault_of_text

# So many faults of an object or a list end its validation, and a refusal names so many.
MOST_FAULTS: Final = 5
# Also half a surrogate pair, which is no character and cannot be stored.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
# A terminal's escape sequences, single control characters, half a surrogate pair, and characters that change
# the direction of the text beside them or show nothing. Joiners stay: scripts need them.
_UNSHOWN = re.compile(
    r"(?:\x1b\[|\x9b)[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]"
    r"|[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)

#: What DRF's own messages become after a field's name.
_COMMON: Final = {"required": "is required", "null": "must not be null"}


_CHARACTER_VALIDATORS = (ProhibitNullCharactersValidator, ProhibitSurrogateCharactersValidator)


def _in_query(field: serializers.Field) -> bool:
    return bool(field.context.get("query"))


class StrictCharField(serializers.CharField):
    """A string, as given: not trimmed, without control characters but tab and newline.

    `max_length` and `min_length` are in characters; an empty one is refused unless `allow_blank`.
    """

    default_error_messages = {
        **_COMMON,
        "invalid": "must be a string",
        "blank": "must not be empty",
        "max_length": "must be at most {max_length} characters",
        "min_length": "must be at least {min_length} characters",
        "control": "must not have control characters",
    }

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("trim_whitespace", False)
        kwargs.setdefault("max_length", 1000)
        super().__init__(**kwargs)
        # What DRF looks for character by character is looked for below at once.
        self.validators = [
            validator for validator in self.validators if not isinstance(validator, _CHARACTER_VALIDATORS)
        ]

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        if _CONTROL.search(data):
            self.fail("control")
        return data

    def run_validation(self, data: Any = empty) -> Any:
        if data == "" or (isinstance(data, str) and not data.strip()):
            if not self.allow_blank:
                self.fail("blank")
            return data
        return super().run_validation(data)


class NameField(StrictCharField):
    """A name, as given, without characters that cannot be seen; see `openrelay.core.text`."""

    default_error_messages = {"unseen": "{fault}"}

    def to_internal_value(self, data: Any) -> str:
        name = super().to_internal_value(data)
        if fault := fault_of_name(name[: self.max_length]):
            self.fail("unseen", fault=fault)
        return name


class FreeTextField(StrictCharField):
    """A text of several lines, without characters that cannot be seen; see `openrelay.core.text`."""

    default_error_messages = {"unseen": "{fault}"}

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if fault := fault_of_text(text[: self.max_length]):
            self.fail("unseen", fault=fault)
        return text


class ToldField(StrictCharField):
    """What a program passes on that somebody else wrote, such as a driver's message: terminals' escape
    sequences, other control characters but tab and newline, and characters that change the direction of text
    or show nothing are left out. What is longer than `max_length` is cut, unless the program is to do that
    itself: nothing of it is a reason to refuse all else it says.
    """

    def __init__(self, *, cut: bool = True, **kwargs: Any) -> None:
        self.cut = cut
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        text = _UNSHOWN.sub("", data.replace("\r\n", "\n"))
        return text[: self.max_length] if self.cut else text


class StrictIntegerField(serializers.IntegerField):
    """An integer written as one: neither "5" nor true nor 5.0. In a query, plain digits."""

    default_error_messages = {
        **_COMMON,
        "invalid": "must be an integer",
        "max_value": "must be at most {max_value}",
        "min_value": "must be at least {min_value}",
    }

    def __init__(self, **kwargs: Any) -> None:
        # What a PostgreSQL bigint holds, unless the field knows better.
        kwargs.setdefault("max_value", 2**63 - 1)
        kwargs.setdefault("min_value", -(2**63))
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> int:
        if _in_query(self) and isinstance(data, str) and re.fullmatch(r"-?[0-9]{1,18}", data):
            return int(data)
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return data


class StrictBooleanField(serializers.BooleanField):
    """true or false, not what reads like one. In a query, the words."""

    default_error_messages = {**_COMMON, "invalid": "must be true or false"}

    def to_internal_value(self, data: Any) -> bool:
        if _in_query(self) and data in ("true", "false"):
            return bool(data == "true")
        if not isinstance(data, bool):
            self.fail("invalid")
        return data


class StrictChoiceField(serializers.ChoiceField):
    """One of some strings."""

    default_error_messages = {**_COMMON, "invalid_choice": "must be one of {allowed}"}

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or data not in self.choices:
            self.fail("invalid_choice", allowed=", ".join(str(choice) for choice in self.choices))
        return data


class StrictListField(serializers.ListField):
    """A list; `max_length` is in items (1000 unless given)."""

    default_error_messages = {
        **_COMMON,
        "not_a_list": "must be a list",
        "empty": "must not be empty",
        "max_length": "must have at most {max_length} items",
        "min_length": "must have at least {min_length} items",
    }

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", 1000)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> list[Any]:
        if not isinstance(data, list):
            self.fail("not_a_list")
        # The length first: items beyond it are not looked at.
        if self.max_length is not None and len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        if not data and not self.allow_empty:
            self.fail("empty")
        return validate_items(self.child, data)


def validate_items(child: serializers.Field, data: Iterable[Any]) -> list[Any]:
    """What `child` makes of each item. Raises ValidationError with the first `MOST_FAULTS` faults."""
    values: list[Any] = []
    faults: dict[Any, Any] = {}
    for position, item in enumerate(data):
        try:
            values.append(child.run_validation(item))
        except serializers.ValidationError as error:
            faults[position] = error.detail
            if len(faults) == MOST_FAULTS:
                break
    if faults:
        raise serializers.ValidationError(faults)
    return values


class StrictMapField(serializers.DictField):
    """An object of names the caller chooses; `max_length` is in entries."""

    default_error_messages = {
        **_COMMON,
        "not_a_dict": "must be an object",
        "max_length": "must have at most {max_length} entries",
    }

    def __init__(self, *, max_length: int = 200, **kwargs: Any) -> None:
        self.max_length = max_length
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            self.fail("not_a_dict", input_type=type(data).__name__)
        if len(data) > self.max_length:
            self.fail("max_length", max_length=self.max_length)
        values: dict[str, Any] = {}
        faults: dict[str, Any] = {}
        for name, value in data.items():
            try:
                values[name] = self.child.run_validation(value)
            except serializers.ValidationError as error:
                faults[name[:60]] = error.detail
                if len(faults) == MOST_FAULTS:
                    break
        if faults:
            raise serializers.ValidationError(faults)
        return values


class IdField(serializers.Field):
    """An id in its canonical form, as a UUID."""

    default_error_messages = {**_COMMON, "invalid": "must be an id"}

    def to_internal_value(self, data: Any) -> uuid.UUID:
        value = parse_id(data)
        if value is None:
            self.fail("invalid")
        return value

    def to_representation(self, value: Any) -> str:
        return str(value)


class TimeField(serializers.Field):
    """An RFC 3339 time with its offset, as an aware time in UTC.

    With `empty_is_none`, "" and null read as None.
    """

    default_error_messages = {
        **_COMMON,
        "invalid": "must be an RFC 3339 time such as 2030-01-31T12:00:00Z",
        "offset": "must have an offset: end it with Z or +hh:mm",
        "precision": "must have at most 6 digits after the second",
        "unreal": "is not a time that exists",
    }

    def __init__(self, *, empty_is_none: bool = False, **kwargs: Any) -> None:
        self.empty_is_none = empty_is_none
        kwargs.setdefault("allow_null", empty_is_none)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> dt.datetime | None:
        if data == "" and self.empty_is_none:
            return None
        if not isinstance(data, str) or len(data) > 64:
            self.fail("invalid")
        # A query spells a plus as a space unless it is escaped, which few remember.
        text = re.sub(r" ([0-9]{2}:[0-9]{2})$", r"+\1", data) if _in_query(self) and len(data) > 19 else data
        match = _RFC3339.fullmatch(text)
        if match is None:
            self.fail("offset" if _RFC3339.fullmatch(text + "Z") else "invalid")
        date, time, fraction, offset = match.groups()
        if fraction is not None and len(fraction) > 7:
            self.fail("precision")
        if offset[0] in "+-" and offset[4:] > "59":
            self.fail("unreal")
        try:
            moment = dt.datetime.fromisoformat(
                f"{date}T{time}{(fraction or '.0').ljust(7, '0')}{offset.upper()}"
            )
            return moment.astimezone(dt.UTC)
        except (ValueError, OverflowError):
            self.fail("unreal")

    def to_representation(self, value: Any) -> Any:
        return value


class StrictListSerializer(serializers.ListSerializer):
    """A list of objects; `max_length` is in items."""

    child: serializers.Field
    max_length: int | None

    def to_internal_value(self, data: Any) -> list[Any]:
        key = api_settings.NON_FIELD_ERRORS_KEY
        if not isinstance(data, list):
            raise serializers.ValidationError({key: ["must be a list"]})
        if self.max_length is not None and len(data) > self.max_length:
            raise serializers.ValidationError({key: [f"must have at most {self.max_length} items"]})
        if not data and not self.allow_empty:
            raise serializers.ValidationError({key: ["must not be empty"]})
        return validate_items(self.child, data)


class StrictSerializer(serializers.Serializer):
    """The shape of one operation's input. Fields are named as in JSON, with `source` for Python's name."""

    class Meta:
        list_serializer_class = StrictListSerializer

    default_error_messages = {**_COMMON, "invalid": "must be an object"}

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError({api_settings.NON_FIELD_ERRORS_KEY: ["must be an object"]})
        unknown = (name for name in data if name not in self.fields)
        errors: dict[str, Any] = {
            str(name)[:60]: [f"is not a field of this {self.context.get('whole', 'request')}"]
            for name in islice(unknown, MOST_FAULTS)
        }
        values: dict[str, Any] = {}
        for field, judge, may_be_absent in self._plan:
            if len(errors) >= MOST_FAULTS:
                break
            if may_be_absent and field.field_name not in data:
                continue
            try:
                value = field.run_validation(data.get(field.field_name, empty))
                if judge is not None:
                    value = judge(value)
            except serializers.ValidationError as error:
                errors[str(field.field_name)] = error.detail
            except SkipField:
                continue
            else:
                values[str(field.source)] = value
        if errors:
            raise serializers.ValidationError(errors)
        return values

    @cached_property
    def _plan(self) -> list[tuple[serializers.Field, Any, bool]]:
        """Each field, its `validate_` method, and whether nothing comes of it when it is absent."""
        return [
            (
                field,
                getattr(self, f"validate_{field.field_name}", None),
                not field.required and field.default is empty,
            )
            for field in self._writable_fields
        ]


def check(
    serializer_class: type[serializers.Serializer],
    data: Any,
    *,
    query: bool = False,
    whole: str = "request",
) -> tuple[dict[str, Any], list[str]]:
    """What `serializer_class` makes of `data`, and its first faults: sentences that begin with their paths.

    Validation of each object and list ends with its fifth fault.
    `whole` is what `data` is called in a fault that has no path.
    """
    try:
        return _shared(serializer_class, query, whole).run_validation(data), []
    except serializers.ValidationError as error:
        faults = _faults(get_error_detail(error) if not hasattr(error, "detail") else error.detail, "")
        return {}, [fault if fault[0] != " " else f"The {whole}{fault}" for fault in faults]


@cache
def _shared(serializer_class: type[Any], query: bool, whole: str) -> Any:
    """One instance for all requests: a field keeps nothing of what it validates."""
    return serializer_class(context={"query": query, "whole": whole})


def read(
    serializer_class: type[serializers.Serializer],
    data: Any,
    *,
    query: bool = False,
) -> dict[str, Any]:
    """What `serializer_class` makes of `data`.

    Raises Invalid (VALIDATION_ERROR) with a sentence that names each faulty field by its path, such as
    `unitIds[2]`.
    """
    values, faults = check(serializer_class, data, query=query)
    if not faults:
        return values
    shown = "; ".join(faults[:MOST_FAULTS])
    raise Invalid(f"{shown}.")


def _faults(detail: Any, path: str) -> list[str]:
    if isinstance(detail, Mapping):
        return [
            fault
            for name, inner in detail.items()
            for fault in _faults(
                inner,
                path
                if name == api_settings.NON_FIELD_ERRORS_KEY
                else f"{path}[{name}]"
                if isinstance(name, int)
                else f"{path}.{name}"
                if path
                else ascii(name)[1:-1],
            )
        ]
    if isinstance(detail, list):
        faults = []
        for position, inner in enumerate(detail):
            if isinstance(inner, str):
                faults.append(f"{path} {str(inner).rstrip('.')}")
            elif inner:
                faults.extend(_faults(inner, f"{path}[{position}]"))
        return faults
    return [f"{path} {str(detail).rstrip('.')}"]
