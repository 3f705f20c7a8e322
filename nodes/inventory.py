"""The inventory format, which agents report and fleet files use for each node.

```json
{"sequence": 12, "complete": true, "runtime": "qemu",
 "host": {"cpuCores": 128, "cpuModel": "…", "ramMb": 1048576, "diskTotalGb": 15000, "diskFreeGb": 14000,
          "tdx": false},
 "units": [{"address": "0000:04:00.0", "allocClass": "vfio-group", "iommuGroup": 12, "numaNode": 0,
            "sellable": true,
            "gpus": [{"address": "0000:04:00.0", "model": "nvidia-h100-sxm5-80gb", "healthy": true}]}]}
```
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from rest_framework import serializers

from nodes.models.gpu_unit import DEVICE_REQUEST, RESERVABLE_CLASSES, VFIO_GROUP
from openrelay.api.identities import PciAddressField, SlugField
from openrelay.api.serializers import (
    StrictBooleanField,
    StrictCharField,
    StrictIntegerField,
    StrictSerializer,
    ToldField,
)

# 1 PiB. The RAM of guests, in MiB, is stored and summed in 32-bit integers.
MAX_RAM_MB = 2**30
# The path of keys and positions from the report to the contradicting value, and the error message.
Contradiction = tuple[tuple[str | int, ...], str]
# Runtimes of containers, which cannot use VFIO passthrough.
_CONTAINER_RUNTIMES = ("runc", "process")


class GpuReport(StrictSerializer):
    """One GPU of a unit."""

    address = PciAddressField()
    model = SlugField(max_length=96)
    serial = ToldField(max_length=96, required=False, allow_blank=True)
    healthy = StrictBooleanField(required=False, default=True)
    failure = ToldField(max_length=200, required=False, allow_blank=True)


class UnitReport(StrictSerializer):
    """One IOMMU group with its GPUs."""

    address = PciAddressField()
    allocClass = StrictCharField(max_length=32)
    iommuGroup = StrictIntegerField(min_value=0, max_value=65535, required=False)
    numaNode = StrictIntegerField(min_value=0, max_value=255, required=False)
    sellable = StrictBooleanField(required=False, default=True)
    notSellableReason = ToldField(max_length=200, required=False, allow_blank=True)
    gpus = GpuReport(  # type: ignore[call-arg]
        many=True, allow_empty=False, max_length=64, error_messages={"empty": "must not be empty"}
    )


class HostReport(StrictSerializer):
    """The host. RAM in MiB, disks in GB."""

    cpuCores = StrictIntegerField(min_value=1, max_value=65535, required=False)
    cpuModel = ToldField(max_length=128, required=False, allow_blank=True)
    ramMb = StrictIntegerField(min_value=1, max_value=MAX_RAM_MB, required=False)
    diskTotalGb = StrictIntegerField(min_value=0, max_value=2**30, required=False)
    diskFreeGb = StrictIntegerField(min_value=0, max_value=2**30, required=False)
    tdx = StrictBooleanField(required=False)


def agent_epoch() -> StrictCharField:
    """Build the field of the epoch: an id that the agent chooses at each start. Agents may omit it."""
    return StrictCharField(max_length=64, required=False)


class Inventory(StrictSerializer):
    """An inventory report of a node. `complete` is false if the agent could not read all of its hardware."""

    epoch = agent_epoch()
    sequence = StrictIntegerField(min_value=1, max_value=2**62)
    complete = StrictBooleanField(required=False, default=True)
    runtime = serializers.ChoiceField(["qemu", "runc", "process"], required=False)
    host = HostReport(required=False)
    units = UnitReport(many=True, allow_empty=True, max_length=256)  # type: ignore[call-arg]

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Raise ValidationError for contradictions, each at its place in the report."""
        errors: dict[Any, Any] = {}
        for path, message in find_contradictions(attrs):
            place = errors
            for step in path[:-1]:
                place = place.setdefault(step, {})
            place.setdefault(path[-1], []).append(message)
        if errors:
            raise serializers.ValidationError(errors)
        return attrs


def find_contradictions(report: dict[str, Any]) -> Iterator[Contradiction]:
    """Yield each value in `report` that contradicts another value or is impossible for hardware.

    Such a report is an error of the agent and not a change of hardware: it must not change the topology.
    """
    runtime = report.get("runtime")
    units: dict[str, int] = {}
    gpus: dict[str, str] = {}
    groups: dict[int, str] = {}
    for number, unit in enumerate(report["units"]):
        place = ("units", number)
        address = unit["address"]
        if address in units:
            yield (
                (*place, "address"),
                f"{address} is listed twice, also as units[{units[address]}]. List each unit once",
            )
            continue
        units[address] = number
        for position, gpu in enumerate(unit["gpus"]):
            if gpu["address"] in gpus:
                other = gpus[gpu["address"]]
                yield (
                    (*place, "gpus", position, "address"),
                    f"{gpu['address']} is listed twice, also in unit {other}. List each GPU in one unit",
                )
            gpus.setdefault(gpu["address"], address)
        if address not in {gpu["address"] for gpu in unit["gpus"]}:
            yield (
                (*place, "address"),
                f"{address} is not a GPU of the unit. Use the address of its first GPU",
            )
        models = sorted({gpu["model"] for gpu in unit["gpus"]})
        if len(models) > 1:
            yield (
                (*place, "gpus"),
                f"are of the models {', '.join(models)}. List GPUs of one model in a unit",
            )
        group = unit.get("iommuGroup")
        if group is not None:
            if group in groups:
                yield (
                    (*place, "iommuGroup"),
                    f"{group} is also the group of unit {groups[group]}. "
                    "List the GPUs of one IOMMU group as one unit",
                )
            groups.setdefault(group, address)
        for reason in find_class_contradictions(unit, runtime):
            yield (*place, "allocClass"), reason
    host = report.get("host") or {}
    if reason := find_disk_contradiction(host.get("diskTotalGb"), host.get("diskFreeGb")):
        yield ("host", "diskFreeGb"), reason


def find_class_contradictions(unit: dict[str, Any], runtime: str | None) -> Iterator[str]:
    """Yield why a unit cannot have its class on a node with `runtime`; None for an unknown runtime."""
    alloc_class = unit["allocClass"]
    if unit["sellable"] and alloc_class not in RESERVABLE_CLASSES:
        yield (
            f"{alloc_class!a} is not a class that can be sold. Use {VFIO_GROUP} (for VMs) or "
            f"{DEVICE_REQUEST} (for pods), or set sellable to false"
        )
    if runtime in _CONTAINER_RUNTIMES and alloc_class == VFIO_GROUP:
        yield f"{VFIO_GROUP} is for VMs, and the runtime is {runtime}. Use {DEVICE_REQUEST}, or runtime qemu"


def find_disk_contradiction(total_gb: int | None, free_gb: int | None) -> str:
    """Return why the disk figures of a host contradict each other; empty if they do not."""
    if total_gb is None or free_gb is None or free_gb <= total_gb:
        return ""
    return f"is {free_gb}, more than diskTotalGb, which is {total_gb}"


def content_digest(report: dict[str, Any]) -> str:
    """Return the SHA-256 of the report without its epoch and sequence."""
    content = {key: value for key, value in report.items() if key not in ("epoch", "sequence")}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
