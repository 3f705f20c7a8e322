"""Set and read the prices of GPUs, and compute what workloads cost an hour."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import BigIntegerField, Case, Exists, F, OuterRef, Subquery, When
from django.db.models.functions import Cast, Coalesce

from compute.models import GpuPrice, OrgGpuPrice, ResourceSize, Tier
from nodes.models import GpuModel
from openrelay.audit.services.record import Actor, record
from openrelay.core import clock
from openrelay.core.errors import Invalid
from openrelay.core.rows import Reading
from openrelay.identity.models import Organization

MOST_CENTS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """The price of one GPU of a model for an organization at a tier, in cents an hour."""

    model: GpuModel
    tier: str
    cents_per_gpu_hour: int


def set_price(
    *,
    actor: Actor,
    gpu_model: GpuModel,
    tier: str,
    cents_per_gpu_hour: int,
    organization: Organization | None = None,
) -> GpuPrice | OrgGpuPrice:
    """Set the price of a GPU model at a tier ("community", "verified" or "spot").

    With `organization`, the price applies to that organization only. Running workloads keep the rate of their
    session. Setting the present price again changes nothing. Raises Invalid (VALIDATION_ERROR) for an unknown
    tier and for a price out of range.
    """
    if tier not in Tier.values:
        raise Invalid(f"tier must be one of {', '.join(Tier.values)}.")
    if not 0 <= cents_per_gpu_hour <= MOST_CENTS:
        raise Invalid(f"A price must be from 0 to {MOST_CENTS} cents.")
    with transaction.atomic():
        at = clock.read()
        values = {"cents_per_gpu_hour": cents_per_gpu_hour, "updated_at": at}
        price: GpuPrice | OrgGpuPrice
        if organization is None:
            price, made = GpuPrice.objects.select_for_update().get_or_create(
                gpu_model=gpu_model, tier=tier, defaults=values
            )
        else:
            price, made = OrgGpuPrice.objects.select_for_update().get_or_create(
                organization=organization, gpu_model=gpu_model, tier=tier, defaults=values
            )
        before = None if made else {"centsPerGpuHour": price.cents_per_gpu_hour}
        if not made and price.cents_per_gpu_hour == cents_per_gpu_hour:
            return price
        price.cents_per_gpu_hour, price.updated_at = cents_per_gpu_hour, at
        price.save()
        _record(actor, "price.set", gpu_model, tier, organization, at, before, cents_per_gpu_hour)
    return price


def drop_org_price(*, actor: Actor, organization: Organization, gpu_model: GpuModel, tier: str) -> bool:
    """Delete the organization's own price, so that the list price applies. Returns whether it existed."""
    with transaction.atomic():
        at = clock.read()
        price = (
            OrgGpuPrice.objects.select_for_update()
            .filter(organization=organization, gpu_model=gpu_model, tier=tier)
            .first()
        )
        if price is None:
            return False
        before = {"centsPerGpuHour": price.cents_per_gpu_hour}
        price.delete()
        _record(actor, "price.dropped", gpu_model, tier, organization, at, before, None)
    return True


def _record(
    actor: Actor,
    event: str,
    gpu_model: GpuModel,
    tier: str,
    organization: Organization | None,
    at: Any,
    before: dict[str, Any] | None,
    cents: int | None,
) -> None:
    record(
        actor,
        event,
        target_type="gpu_model",
        target_id=gpu_model.pk,
        org_id=organization.pk if organization else None,
        before=before,
        after={"tier": tier, **({} if cents is None else {"centsPerGpuHour": cents})},
        at=at,
    )


def rate(gpu_model_id: UUID, tier: str, organization_id: UUID | None = None) -> int | None:
    """Cents of one GPU hour for that organization, or None when the model is not sold at that tier."""
    prices = GpuPrice.objects.filter(gpu_model_id=gpu_model_id, tier=tier)
    if organization_id is None:
        return prices.values_list("cents_per_gpu_hour", flat=True).first()
    return prices.annotate(cents=_for(organization_id)).values_list("cents", flat=True).first()


def catalog_cents() -> Case:
    """An annotation for workloads: cents an hour at the present prices, or null for what is not sold."""
    of_it = {"gpu_model": OuterRef("gpu_model"), "tier": OuterRef("tier")}
    own = OrgGpuPrice.objects.filter(organization=OuterRef("organization"), **of_it)
    common = GpuPrice.objects.filter(**of_it)
    each = Coalesce(Subquery(own.values("cents_per_gpu_hour")), Subquery(common.values("cents_per_gpu_hour")))
    size = ResourceSize.objects.filter(slug=OuterRef("resource_size"))
    return Case(
        When(gpu_count=0, then=Subquery(size.values("cents_per_hour"))),
        # An organization's own price overrides the list price. It never makes a model sellable.
        When(Exists(common), then=Cast(each, BigIntegerField()) * F("gpu_count")),
        output_field=BigIntegerField(),
    )


def sold_at(tier: str, gpu_model_id: UUID | None) -> Reading:
    """Query which GPU models are sold at that tier; with `gpu_model_id`, whether that one is."""
    return Reading(
        "ARRAY(SELECT gpu_model_id FROM compute_gpuprice"
        " WHERE tier = %s AND gpu_model_id = coalesce(%s::uuid, gpu_model_id))",
        (tier, gpu_model_id),
    )


def size_rate(slug: str) -> int | None:
    """Cents of one hour of a VM of that size, or None when there is no such size."""
    return ResourceSize.objects.filter(slug=slug).values_list("cents_per_hour", flat=True).first()


def is_free(organization_id: UUID, owner_id: UUID, holds: Collection[UUID | None]) -> bool:
    """Whether a workload is free: a provider is not billed on its own node for units reserved to it.

    `holds` has, for each unit of the workload, the hold that gives the right to it, or None when no
    hold gives it.
    """
    return owner_id == organization_id and bool(holds) and None not in holds


def listed(organization_id: UUID) -> list[ListedPrice]:
    """List what each visible GPU model costs that organization, by model and tier, in one query."""
    rows = (
        GpuPrice.objects.filter(gpu_model__hidden=False)
        .select_related("gpu_model")
        .annotate(cents=_for(organization_id))
        .order_by("gpu_model__name", "gpu_model_id", "tier")
    )
    return [ListedPrice(row.gpu_model, row.tier, row.cents) for row in rows]


def published() -> list[tuple[GpuModel, dict[str, int]]]:
    """List the models that have a community and a verified price, with their prices by tier, by name."""
    found: dict[UUID, tuple[GpuModel, dict[str, int]]] = {}
    rows = GpuPrice.objects.filter(gpu_model__hidden=False).select_related("gpu_model")
    for row in rows.order_by("gpu_model__name", "gpu_model_id"):
        found.setdefault(row.gpu_model_id, (row.gpu_model, {}))[1][row.tier] = row.cents_per_gpu_hour
    return [
        (model, rates)
        for model, rates in found.values()
        if Tier.COMMUNITY in rates and Tier.VERIFIED in rates
    ]


def _for(organization_id: UUID) -> Coalesce:
    own = OrgGpuPrice.objects.filter(
        organization_id=organization_id, gpu_model=OuterRef("gpu_model"), tier=OuterRef("tier")
    )
    return Coalesce(Subquery(own.values("cents_per_gpu_hour")[:1]), F("cents_per_gpu_hour"))
