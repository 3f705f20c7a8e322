"""How places, templates, prices and spending read on the wire. What is unset is absent."""

from collections.abc import Mapping
from typing import Any

from compute.models import ResourceSize, Tier
from compute.services.billing.burn import FLOOR_CENTS, Burn
from compute.services.billing.prices import ListedPrice
from compute.services.requests.templates import OfferedTemplate
from nodes.models import GpuModel, Location
from openrelay.core.clock import rfc3339


def _set(shown: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shown.items() if value is not None}


def location(place: Location) -> dict[str, Any]:
    """A Location."""
    return _set(
        {
            "id": str(place.pk),
            "name": place.name,
            "city": place.city,
            "country": place.country,
            "region": place.region,
            "latitude": place.latitude,
            "longitude": place.longitude,
        }
    )


def template(row: OfferedTemplate) -> dict[str, Any]:
    """A VmTemplate. `compatibleGpuModelIds` is null for one that suits every GPU."""
    shown = row.template
    fields = _set(
        {
            "id": str(shown.pk),
            "slug": shown.slug,
            "name": shown.name,
            "filename": shown.filename,
            "osType": shown.os_type,
            "requiresGpu": shown.requires_gpu,
            "description": shown.description or None,
            "osVersion": shown.os_version or None,
            "driverVersion": shown.driver_version or None,
            "isDefault": shown.is_default,
            "sortOrder": shown.sort_order,
        }
    )
    suited = None if row.model_ids is None else [str(pk) for pk in row.model_ids]
    return {**fields, "compatibleGpuModelIds": suited}


def gpu_price(row: ListedPrice) -> dict[str, Any]:
    """A GpuPrice."""
    return {
        "gpuModelId": str(row.model.pk),
        "gpuModelName": row.model.name,
        "vramGb": row.model.vram_gb,
        "tier": row.tier,
        "pricePerHourCents": row.cents_per_gpu_hour,
    }


def cpu_price(size: ResourceSize) -> dict[str, Any]:
    """A CpuPrice."""
    return {
        "resourceSize": size.slug,
        "vcpu": size.vcpu,
        "ramMb": size.ram_mb,
        "pricePerHourCents": size.cents_per_hour,
    }


def public_price(model: GpuModel, rates: Mapping[str, int]) -> dict[str, Any]:
    """A PublicGpuPrice."""
    return _set(
        {
            "id": str(model.pk),
            "name": model.name,
            "manufacturer": model.manufacturer,
            "vramGb": model.vram_gb,
            "communityCents": rates[Tier.COMMUNITY],
            "verifiedCents": rates[Tier.VERIFIED],
            "architecture": model.architecture or None,
            "formFactor": model.form_factor or None,
            "interconnect": model.interconnect or None,
        }
    )


def burn(found: Burn) -> dict[str, Any]:
    """A VmBurn."""
    workload, session = found.workload, found.session
    count = workload.gpu_count
    shown = _set(
        {
            "vmId": str(workload.pk),
            "rateBasis": "gpu" if count else "cpu",
            "rateSource": "locked" if session else "catalog",
            "pricePerHourCents": found.cents_per_hour,
            "gpuCount": count or None,
            "perGpuCents": found.cents_per_hour // count if count else None,
            "sessionStartedAt": rfc3339(session.started_at) if session else None,
            "accruedSessionCents": found.accrued_cents,
            "nonBillable": session.non_billable if session else None,
            "diskBilled": False,
            "orgBurnPerHourCents": found.org_cents_per_hour,
            "orgAccruedCents": found.org_accrued_cents,
            "orgAccruedMonthCents": found.org_accrued_cents,
            "orgAvailableCents": found.org_available_cents,
            "autoStopFloorCents": FLOOR_CENTS,
        }
    )
    return {**shown, "projectedRunwayHours": found.runway_hours}
