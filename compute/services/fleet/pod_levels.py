"""The level that a node's agent must have to run a pod."""

from collections.abc import Collection
from typing import Final
from uuid import UUID

from django.db.models import Exists

from nodes.levels import AMD_GRANT, INFINIBAND
from nodes.models import GpuModel
from openrelay.identity.models import Organization

AMD: Final = "amd"


def required_levels(organization_id: UUID, model_ids: Collection[UUID]) -> dict[UUID, int]:
    """The level that a node's agent must have to give GPUs of each model to a pod of that organization."""
    infiniband = Exists(Organization.objects.filter(pk=organization_id, infiniband_enabled=True))
    models = GpuModel.objects.filter(pk__in=model_ids).values_list("pk", "manufacturer", infiniband)
    return {
        model_id: max(INFINIBAND if on_it else 0, AMD_GRANT if manufacturer.lower() == AMD else 0)
        for model_id, manufacturer, on_it in models
    }


def on_infiniband(organization_id: UUID) -> bool:
    """Whether the organization's pods are to have InfiniBand."""
    found: bool = Organization.objects.filter(pk=organization_id, infiniband_enabled=True).exists()
    return found
