"""The fleet file: organizations, locations, GPU models with their prices, and nodes with their inventories.

`openrelay/demo/fleet.json` is one; a node's `inventory` is in the format that agents send
(`nodes/inventory.py`), without the sequence.
"""

from collections import Counter
from typing import Any

from rest_framework import serializers

from nodes.inventory import Inventory
from openrelay.api.serializers import (
    StrictCharField,
    StrictChoiceField,
    StrictIntegerField,
    StrictSerializer,
    check,
)

SLUG = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


def slug_field(**options: Any) -> serializers.RegexField:
    """A short name in lower case."""
    return serializers.RegexField(
        SLUG,
        max_length=64,
        error_messages={"invalid": "must be lower-case letters, digits and dashes"},
        **options,
    )


class FleetOrganization(StrictSerializer):
    """An organization that owns nodes."""

    slug = slug_field()
    name = StrictCharField(max_length=200)


class FleetLocation(StrictSerializer):
    """A place where nodes stand."""

    slug = slug_field()
    name = StrictCharField(max_length=128)
    city = StrictCharField(max_length=128)
    country = serializers.RegexField(r"^[A-Z]{2}$", error_messages={"invalid": "must be two capital letters"})
    region = StrictCharField(max_length=64)
    latitude = serializers.FloatField(min_value=-90, max_value=90, required=False, default=None)
    longitude = serializers.FloatField(min_value=-180, max_value=180, required=False, default=None)


class FleetPrices(StrictSerializer):
    """Cents per GPU and hour, by tier; a tier without a price is not sold."""

    community = StrictIntegerField(min_value=0, max_value=10**7, required=False)
    verified = StrictIntegerField(min_value=0, max_value=10**7, required=False)
    spot = StrictIntegerField(min_value=0, max_value=10**7, required=False)


class FleetGpuModel(StrictSerializer):
    """A GPU on sale."""

    slug = StrictCharField(max_length=96)
    name = StrictCharField(max_length=128)
    manufacturer = StrictCharField(max_length=32)
    vramGb = StrictIntegerField(min_value=1, max_value=65535, source="vram_gb")
    architecture = StrictCharField(max_length=64, required=False, default="")
    formFactor = StrictCharField(max_length=32, required=False, default="", source="form_factor")
    interconnect = StrictCharField(max_length=64, required=False, default="")
    prices = FleetPrices(required=False)


class FleetInventory(Inventory):
    """What a node has; the loader numbers it."""

    sequence = StrictIntegerField(min_value=1, max_value=2**62, required=False)


class FleetNode(StrictSerializer):
    """One host."""

    hostname = StrictCharField(max_length=253)
    organization = slug_field()
    location = slug_field(required=False)
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


def parse(data: Any, *, known: dict[str, set[str]]) -> tuple[dict[str, Any], list[str]]:
    """The fleet in `data`, and every fault with its place in the file; none means that it can be loaded.

    `known` has the slugs of the `organizations`, `locations` and `gpu_models` that exist already.
    """
    fleet, faults = check(Fleet, data)
    if faults:
        return fleet, faults
    names = {kind: known[kind] | {row["slug"] for row in fleet[kind]} for kind in known}
    for kind, label in (
        ("organizations", "organizations"),
        ("locations", "locations"),
        ("gpu_models", "gpuModels"),
    ):
        for slug, count in Counter(row["slug"] for row in fleet[kind]).items():
            if count > 1:
                faults.append(f"{label}: {slug} is listed {count} times")
    hosts: set[tuple[str, str]] = set()
    for number, node in enumerate(fleet["nodes"]):
        place = f"nodes[{number}]"
        if node["organization"] not in names["organizations"]:
            faults.append(f"{place}.organization: there is no organization {node['organization']}")
        if node.get("location") is not None and node["location"] not in names["locations"]:
            faults.append(f"{place}.location: there is no location {node['location']}")
        if not node["inventory"]["complete"] or not node["inventory"]["units"]:
            faults.append(f"{place}.inventory: must be complete and list at least one unit")
        if (node["organization"], node["hostname"]) in hosts:
            faults.append(f"{place}.hostname: {node['hostname']} is listed twice")
        hosts.add((node["organization"], node["hostname"]))
        for position, unit in enumerate(node["inventory"]["units"]):
            model = unit["gpus"][0]["model"]
            if model not in names["gpu_models"]:
                faults.append(
                    f"{place}.inventory.units[{position}].gpus[0].model: there is no GPU model {model}"
                )
    return fleet, faults
