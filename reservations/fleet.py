"""The fleet file: organizations, locations, GPU models with their prices, and nodes with their inventories.

`openrelay/demo/fleet.json` is one; a node's `inventory` is in the format that agents send
(`nodes/inventory.py`), without the sequence.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from rest_framework import serializers

from nodes.inventory import Inventory
from openrelay.api.identities import HostNameField, SlugField
from openrelay.api.serializers import (
    NameField,
    StrictCharField,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
    check,
)

_SHOWN_AT_MOST: Final = 20


class FleetOrganization(StrictSerializer):
    """An organization that owns nodes."""

    slug = SlugField()
    name = NameField(max_length=200)


class CountryField(StrictCharField):
    """An ISO 3166 code of two letters, in capitals."""

    default_error_messages = {"form": "must be two letters, such as NO"}

    def to_internal_value(self, data: Any) -> str:
        code = super().to_internal_value(data).upper()
        if not (len(code) == 2 and code.isascii() and code.isalpha()):
            self.fail("form")
        return code


class FleetLocation(StrictSerializer):
    """A place where nodes stand."""

    slug = SlugField()
    name = NameField(max_length=128)
    city = NameField(max_length=128)
    country = CountryField(max_length=2)
    region = SlugField()
    latitude = serializers.FloatField(min_value=-90, max_value=90, required=False, default=None)
    longitude = serializers.FloatField(min_value=-180, max_value=180, required=False, default=None)


class FleetPrices(StrictSerializer):
    """Cents per GPU and hour, by tier; a tier without a price is not sold."""

    community = StrictIntegerField(min_value=0, max_value=10**7, required=False)
    verified = StrictIntegerField(min_value=0, max_value=10**7, required=False)
    spot = StrictIntegerField(min_value=0, max_value=10**7, required=False)


class FleetGpuModel(StrictSerializer):
    """A GPU on sale."""

    slug = SlugField(max_length=96)
    name = NameField(max_length=128)
    manufacturer = NameField(max_length=32)
    vramGb = StrictIntegerField(min_value=1, max_value=65535, source="vram_gb")
    architecture = NameField(max_length=64, required=False, default="")
    formFactor = NameField(max_length=32, required=False, default="", source="form_factor")
    interconnect = NameField(max_length=64, required=False, default="")
    prices = FleetPrices(required=False)


class FleetInventory(Inventory):
    """What a node has; the loader numbers it."""

    sequence = StrictIntegerField(min_value=1, max_value=2**62, required=False)


class FleetNode(StrictSerializer):
    """One host."""

    hostname = HostNameField()
    organization = SlugField()
    location = SlugField(required=False)
    # `class` is no name in Python, so this field is declared below.
    inventory = FleetInventory()


FleetNode._declared_fields["class"] = StrictChoiceField(
    choices=["persistent", "interruptible"], required=False, default="persistent", source="node_class"
)


class Fleet(StrictSerializer):
    """A whole fleet."""

    organizations = FleetOrganization(many=True, required=False, default=list)
    locations = FleetLocation(many=True, required=False, default=list)
    gpuModels = FleetGpuModel(many=True, required=False, default=list, source="gpu_models")
    nodes = FleetNode(many=True)


class NotAFleetFile(Exception):
    """A text that is not one JSON value with one meaning; the message says where and why."""


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its keys were given twice."""

    repeated: tuple[str, ...] = ()


def decode(text: str) -> Any:
    """The JSON value in `text`. Raises NotAFleetFile, also for an object with a key twice, of which JSON does
    not say which one counts.
    """
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except RecursionError:
        raise NotAFleetFile("it is nested too deep") from None
    except json.JSONDecodeError as error:
        raise NotAFleetFile(
            f"it is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except ValueError as error:
        raise NotAFleetFile(f"it is not JSON: {error}") from None
    if repeated := list(_repeated(value)):
        raise NotAFleetFile("; ".join(f"{place} is given twice" for place in repeated[:_SHOWN_AT_MOST]))
    return value


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        found.repeated = tuple(name for name, count in counts.items() if count > 1)
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"it has {text}")


def _repeated(value: Any, place: str = "") -> Iterator[str]:
    """The place of every key that an object has twice."""
    if isinstance(value, _Object):
        prefix = f"{place}." if place else ""
        yield from (f"{prefix}{ascii(name[:60])[1:-1]}" for name in value.repeated)
        for name, inner in value.items():
            yield from _repeated(inner, f"{prefix}{ascii(name[:60])[1:-1]}")
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _repeated(inner, f"{place}[{position}]")


def parse(data: Any, *, known: dict[str, set[str]]) -> tuple[dict[str, Any], list[str]]:
    """The fleet in `data`, and every fault with its place in the file; none means that it can be loaded.

    `known` has the slugs of the `organizations`, `locations` and `gpu_models` that exist already.
    """
    fleet, faults = check(Fleet, data, whole="file")
    if faults:
        return fleet, faults
    names = {kind: known[kind] | {row["slug"] for row in fleet[kind]} for kind in known}
    for kind, label in (
        ("organizations", "organizations"),
        ("locations", "locations"),
        ("gpu_models", "gpuModels"),
    ):
        first: dict[str, int] = {}
        for number, row in enumerate(fleet[kind]):
            other = first.setdefault(row["slug"], number)
            if other != number:
                faults.append(
                    f"{label}[{number}].slug {row['slug']} is listed twice, also as {label}[{other}]"
                )
    hosts: dict[tuple[str, str], int] = {}
    for number, node in enumerate(fleet["nodes"]):
        place = f"nodes[{number}]"
        if node["organization"] not in names["organizations"]:
            faults.append(f"{place}.organization: there is no organization {node['organization']}")
        if node.get("location") is not None and node["location"] not in names["locations"]:
            faults.append(f"{place}.location: there is no location {node['location']}")
        if not node["inventory"]["complete"] or not node["inventory"]["units"]:
            faults.append(f"{place}.inventory: must be complete and list at least one unit")
        host = hosts.setdefault((node["organization"], node["hostname"]), number)
        if host != number:
            faults.append(f"{place}.hostname {node['hostname']} is listed twice, also as nodes[{host}]")
        for position, unit in enumerate(node["inventory"]["units"]):
            model = unit["gpus"][0]["model"]
            if model not in names["gpu_models"]:
                faults.append(
                    f"{place}.inventory.units[{position}].gpus[0].model: there is no GPU model {model}"
                )
    return fleet, faults
