"""The inventory format: what an agent says of its host, and what a fleet file says of each node.

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
from typing import Any

from rest_framework import serializers

from openrelay.api.serializers import (
    StrictBooleanField,
    StrictCharField,
    StrictIntegerField,
    StrictSerializer,
    ToldField,
)

# 1 PiB, and well within a 32-bit integer, in which guests' shares of it are kept and counted.
MOST_RAM_MB = 2**30
PCI_ADDRESS = r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]$"


def pci_address() -> serializers.RegexField:
    """A PCI address in its canonical lower-case form."""
    return serializers.RegexField(
        PCI_ADDRESS,
        max_length=32,
        trim_whitespace=False,
        error_messages={"invalid": "must be a PCI address such as 0000:04:00.0"},
    )


class GpuReport(StrictSerializer):
    """One GPU of a unit."""

    address = pci_address()
    model = StrictCharField(max_length=96)
    serial = ToldField(max_length=96, required=False, allow_blank=True)
    healthy = StrictBooleanField(required=False, default=True)
    failure = ToldField(max_length=200, required=False, allow_blank=True)


class UnitReport(StrictSerializer):
    """One IOMMU group with its GPUs."""

    address = pci_address()
    allocClass = StrictCharField(max_length=32)
    iommuGroup = StrictIntegerField(min_value=0, max_value=65535, required=False)
    numaNode = StrictIntegerField(min_value=0, max_value=255, required=False)
    sellable = StrictBooleanField(required=False, default=True)
    notSellableReason = ToldField(max_length=200, required=False, allow_blank=True)
    gpus = GpuReport(  # type: ignore[call-arg]
        many=True, allow_empty=False, max_length=64, error_messages={"empty": "must not be empty"}
    )


class HostReport(StrictSerializer):
    """The host around the GPUs. RAM in MiB, disks in GB."""

    cpuCores = StrictIntegerField(min_value=1, max_value=65535, required=False)
    cpuModel = ToldField(max_length=128, required=False, allow_blank=True)
    ramMb = StrictIntegerField(min_value=1, max_value=MOST_RAM_MB, required=False)
    diskTotalGb = StrictIntegerField(min_value=0, max_value=2**30, required=False)
    diskFreeGb = StrictIntegerField(min_value=0, max_value=2**30, required=False)
    tdx = StrictBooleanField(required=False)


class Inventory(StrictSerializer):
    """A node's account of its hardware. `complete` is false when the agent could not read all of it."""

    sequence = StrictIntegerField(min_value=1, max_value=2**62)
    complete = StrictBooleanField(required=False, default=True)
    runtime = serializers.ChoiceField(["qemu", "runc", "process"], required=False)
    host = HostReport(required=False)
    units = UnitReport(many=True, allow_empty=True, max_length=256)  # type: ignore[call-arg]

    def validate_units(self, units: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Refuse a unit or a GPU that is listed twice, and a unit whose GPUs are of two models.

        A GPU of two units would be sold twice.
        """
        seen: set[str] = set()
        gpus: set[str] = set()
        for unit in units:
            if unit["address"] in seen:
                raise serializers.ValidationError(f"unit {unit['address']} is listed twice")
            seen.add(unit["address"])
            for gpu in unit["gpus"]:
                if gpu["address"] in gpus:
                    raise serializers.ValidationError(
                        f"unit {unit['address']} lists GPU {gpu['address']}, which was listed before"
                    )
                gpus.add(gpu["address"])
            models = {gpu["model"] for gpu in unit["gpus"]}
            if len(models) > 1:
                raise serializers.ValidationError(
                    f"unit {unit['address']} mixes GPU models {', '.join(sorted(models))}; a unit has one"
                )
        return units


def digest(report: dict[str, Any]) -> str:
    """SHA-256 of what the report says of the hardware, its sequence apart."""
    content = {key: value for key, value in report.items() if key != "sequence"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
