"""Where a request wants its workload to be."""

from collections.abc import Sequence

from nodes.models import Location
from openrelay.core.errors import Invalid


def regions_of(preferred: Sequence[str]) -> frozenset[str]:
    """The regions as a set. Raises Invalid for one that no location is in."""
    wanted = frozenset(preferred)
    if not wanted:
        return wanted
    known = Location.objects.filter(region__in=wanted).values_list("region", flat=True)
    if unknown := sorted(wanted.difference(known)):
        raise Invalid(f"preferredRegions names {', '.join(unknown[:5])}, where there is no location.")
    return wanted


def require_one_place(node_id: str | None, preferred: Sequence[str], allow_fallback: bool) -> None:
    """Raises Invalid for a request that names a node and regions both."""
    if node_id is not None and (preferred or allow_fallback):
        raise Invalid(
            "nodeId cannot be combined with preferredRegions or allowFallback: a VM that names its node is "
            "placed there or nowhere. Leave one of them out."
        )
