"""The public pool's best fits for a VM, found among the offers instead of by looking at every unit there is.

What is found is as exact as a look at the units: nodes that changed since they were surveyed are looked at.
"""

from collections.abc import Collection
from uuid import UUID

from django.db import connection
from django.db.models import Q

from compute.models import Tier
from compute.placement import sums
from compute.services import pool
from compute.services.availability import shapes_of
from compute.services.offering import freshness
from compute.services.offers import NodeShape, read
from openrelay.clock import Now

# As many as may be busy with others' requests at once, and some.
_ENOUGH = 32
_SHAPES = 16

_OF_SHAPES = """
SELECT wanted.place, found.node_id
FROM unnest(%(places)s::int[], %(models)s::uuid[], %(shapes)s::text[]) wanted (place, model, shape)
CROSS JOIN LATERAL (
    SELECT offer.node_id FROM compute_nodeoffer offer
    WHERE offer.gpu_model_id = wanted.model AND md5(offer.shape) = md5(wanted.shape)
      AND NOT offer.node_id = ANY(%(but)s::uuid[])
    ORDER BY offer.node_id LIMIT %(enough)s
) found
"""


def best_fits(
    *, organization_id: UUID, tier: str, gpu_count: int, model_ids: Collection[UUID]
) -> list[pool.Candidate]:
    """Some nodes whose open units of one of the models add up to the count, the best fit first; none is
    better than the first.

    Empty when there is none, and when the offers have to be surveyed first.
    """
    fresh = freshness(organization_id)
    shapes = shapes_of(fresh.version) if fresh is not None and fresh.usable else None
    if fresh is None or shapes is None:
        return []
    # A spot request may not have what is on the market where something is reserved to its own organization.
    apart = fresh.stale | fresh.own
    found = (
        [
            candidate
            for candidate in pool.candidates(
                organization_id=organization_id,
                tier=tier,
                at=Now(),
                models=list(model_ids),
                also=Q(node_id__in=apart),
            )
            if candidate.fits(gpu_count)
        ]
        if apart
        else []
    )
    fitting = sorted(
        (sum(sizes), model_id, text, sizes)
        for model_id in model_ids
        for text in shapes.get(model_id, ())
        if sums(sizes := _open_to(read(text), tier)) >> gpu_count & 1
    )[:_SHAPES]
    if fitting:
        with connection.cursor() as cursor:
            cursor.execute(
                _OF_SHAPES,
                {
                    "places": list(range(len(fitting))),
                    "models": [model_id for _, model_id, _, _ in fitting],
                    "shapes": [text for _, _, text, _ in fitting],
                    "but": list(apart),
                    "enough": _ENOUGH,
                },
            )
            found += [
                pool.Candidate(node_id, fitting[place][1], None, fitting[place][3])
                for place, node_id in cursor.fetchall()
            ]
    return sorted(found, key=lambda candidate: (candidate.free, candidate.node_id))[:_ENOUGH]


def _open_to(shape: NodeShape, tier: str) -> tuple[int, ...]:
    return (*shape.sizes, *shape.spot_sizes) if tier == Tier.SPOT else shape.sizes
