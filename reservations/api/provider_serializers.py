"""The shapes that the provider's operations on its nodes take. Rules live in the services."""

from typing import Any

from rest_framework import serializers

from nodes.models import Node
from nodes.querysets import NodeStatus
from openrelay.api.lists import ListQuery
from openrelay.api.serializers import (
    FreeTextField,
    StrictBooleanField,
    StrictChoiceField,
    StrictSerializer,
)


class NodesQuery(ListQuery):
    """Which nodes to list."""

    includeRemoved = StrictBooleanField(required=False, default=False, source="include_removed")
    status = StrictChoiceField(NodeStatus.ALL, required=False)


# `class` is no name in Python, so this field is declared here.
NodesQuery._declared_fields["class"] = StrictChoiceField(
    Node.Class.values, required=False, source="node_class"
)


class UpdateNode(StrictSerializer):
    """What the owner wants of a node."""

    status = StrictChoiceField(
        [NodeStatus.DRAINING, NodeStatus.MAINTENANCE, NodeStatus.ONLINE, NodeStatus.REMOVED]
    )


class ApplyForProvider(StrictSerializer):
    """Why the organization wants to be a provider."""

    note = FreeTextField(max_length=4000)

    def validate_note(self, value: str) -> Any:
        """Something that operators can go by."""
        if not value.strip():
            raise serializers.ValidationError("must not be empty")
        return value.strip()
