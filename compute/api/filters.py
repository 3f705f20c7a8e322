"""What lists of VMs can be narrowed by."""

import django_filters
from django.db.models import QuerySet

from compute.domain import states
from compute.models import Tier, Workload
from openrelay.core.errors import Invalid


class VmFilter(django_filters.FilterSet):
    """By state, tier, node, GPU model and exact name."""

    status = django_filters.ChoiceFilter(choices=[(status, status) for status in states.ALL])
    tier = django_filters.ChoiceFilter(choices=Tier.choices)
    nodeId = django_filters.UUIDFilter(field_name="node_id")
    gpuModelId = django_filters.UUIDFilter(field_name="gpu_model_id")
    name = django_filters.CharFilter(field_name="name", strip=False)

    class Meta:
        model = Workload
        fields: list[str] = []


def filtered(queryset: "QuerySet[Workload]", given: dict[str, str]) -> "QuerySet[Workload]":
    """The workloads that pass. Raises Invalid (VALIDATION_ERROR) naming what cannot be filtered by."""
    chosen = VmFilter(given, queryset=queryset)
    if not chosen.is_valid():
        name = next(iter(chosen.errors))
        raise Invalid(f"{name} is not a value that VMs can be filtered by.")
    narrowed: QuerySet[Workload] = chosen.qs
    return narrowed
