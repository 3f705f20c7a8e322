"""The shape of a notice that a node will end."""

from typing import Any

from rest_framework import serializers

from openrelay.api.serializers import StrictIntegerField, StrictSerializer, TimeField

_WEEK = 7 * 24 * 3600


class TerminationNotice(StrictSerializer):
    """When a node is to end: `terminateAt` or `noticeSeconds`, not both."""

    terminateAt = TimeField(required=False, source="at")
    noticeSeconds = StrictIntegerField(min_value=0, max_value=_WEEK, required=False, source="seconds")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse two deadlines at once."""
        if len(attrs) > 1:
            raise serializers.ValidationError("Give terminateAt or noticeSeconds, not both")
        return attrs
