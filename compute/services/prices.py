"""What a GPU costs by the hour."""

from uuid import UUID

from django.db import transaction

from compute.models import GpuPrice, Tier
from nodes.models import GpuModel
from openrelay import clock
from openrelay.audit.services.record import Actor, record
from openrelay.errors import Invalid


def set_price(*, actor: Actor, gpu_model: GpuModel, tier: str, cents_per_gpu_hour: int) -> GpuPrice:
    """Sell GPUs of a model at a tier ("community", "verified" or "spot") at that rate from now on.

    What runs keeps the rate it was placed at. The price that already stands changes nothing. Raises Invalid
    (VALIDATION_ERROR) for a tier that there is none of, and a negative price.
    """
    if tier not in Tier.values:
        raise Invalid(f"tier must be one of {', '.join(Tier.values)}.")
    if cents_per_gpu_hour < 0:
        raise Invalid("A price must be 0 cents or more.")
    with transaction.atomic():
        at = clock.read()
        price, made = GpuPrice.objects.select_for_update().get_or_create(
            gpu_model=gpu_model,
            tier=tier,
            defaults={"cents_per_gpu_hour": cents_per_gpu_hour, "updated_at": at},
        )
        before = None if made else {"centsPerGpuHour": price.cents_per_gpu_hour}
        if not made and price.cents_per_gpu_hour == cents_per_gpu_hour:
            return price
        price.cents_per_gpu_hour, price.updated_at = cents_per_gpu_hour, at
        price.save()
        record(
            actor,
            "price.set",
            target_type="gpu_model",
            target_id=gpu_model.pk,
            before=before,
            after={"tier": tier, "centsPerGpuHour": cents_per_gpu_hour},
            at=at,
        )
    return price


def rate(gpu_model_id: UUID, tier: str) -> int | None:
    """The cents of one GPU hour, or None where that model is not sold at that tier."""
    return (
        GpuPrice.objects.filter(gpu_model_id=gpu_model_id, tier=tier)
        .values_list("cents_per_gpu_hour", flat=True)
        .first()
    )
