"""The shapes that the reservation operations take. Rules live in the services."""

from typing import Any

from rest_framework import serializers

from openrelay.api.identities import PciAddressField
from openrelay.api.serializers import (
    FreeTextField,
    NameField,
    StrictBooleanField,
    StrictCharField,
    StrictListField,
    StrictSerializer,
    TimeField,
)

MOST_UNITS = 256
MOST_ORGS = 200


class OpenEndedTimeField(TimeField):
    """An RFC 3339 time, or `""` or null for open-ended."""

    def to_internal_value(self, data: Any) -> Any:
        return None if data == "" else super().to_internal_value(data)


def unit_ids(**options: Any) -> StrictListField:
    """A list of PCI addresses."""
    return StrictListField(child=PciAddressField(), max_length=MOST_UNITS, **options)


def org_ids(**options: Any) -> StrictListField:
    """A list of organization ids."""
    return StrictListField(child=StrictCharField(max_length=64), max_length=MOST_ORGS, **options)


class CreateReservation(StrictSerializer):
    """What to reserve, for whom, and when."""

    unitIds = unit_ids()
    allowedOrgIds = org_ids()
    managingOrgIds = org_ids(required=False)
    startsAt = TimeField(required=False)
    endsAt = OpenEndedTimeField(required=False, allow_null=True)
    contractRef = NameField(max_length=128, required=False, allow_blank=True)
    reason = FreeTextField(max_length=500, required=False, allow_blank=True)


class AmendReservation(StrictSerializer):
    """What to change. A field that is left out stays as it is."""

    endsAt = OpenEndedTimeField(required=False, allow_null=True)
    allowedOrgIds = org_ids(required=False)
    managingOrgIds = org_ids(required=False)
    reaffirm = StrictBooleanField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse an empty body."""
        if not attrs:
            raise serializers.ValidationError(
                "Give at least one of endsAt, allowedOrgIds, managingOrgIds, reaffirm."
            )
        return attrs


class ReservationUnits(StrictSerializer):
    """Units of the reservation to release."""

    unitIds = unit_ids()
    reason = FreeTextField(max_length=500, required=False, allow_blank=True)


class ReclaimUnits(ReservationUnits):
    """Units of the reservation to take back."""

    dryRun = StrictBooleanField(required=False)


class ReclaimSpot(StrictSerializer):
    """Which spot workloads of the node to end; without `unitIds`, all in reach."""

    unitIds = unit_ids(required=False)
    dryRun = StrictBooleanField(required=False)
    reason = FreeTextField(max_length=500, required=False, allow_blank=True)
