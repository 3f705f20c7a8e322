"""Create and update the catalog entries that nodes refer to: locations and GPU models."""

from typing import Any

from nodes.models import GpuModel, Location
from openrelay.audit.services.record import Actor, record
from openrelay.core import canonical
from openrelay.core.errors import Invalid
from openrelay.core.text import require_length


def set_location(slug: str, fields: dict[str, Any], *, actor: Actor) -> Location:
    """Create the location or update it to `fields`. Writes nothing if it already has these values."""
    location: Location = _set_row(Location, "location", slug, fields, actor)
    return location


def set_gpu_model(slug: str, fields: dict[str, Any], *, actor: Actor) -> GpuModel:
    """Create the GPU model or update it to `fields`, also if it is a placeholder created by an inventory."""
    if "manufacturer" in fields:
        fields = {**fields, "manufacturer": canonical.manufacturer(fields["manufacturer"])}
    model: GpuModel = _set_row(GpuModel, "gpu_model", slug, fields, actor)
    return model


def require_slug(text: str, *, at_most: int) -> str:
    """Return the canonical form of a slug. Raises Invalid VALIDATION_ERROR if it is malformed or too long."""
    require_length("slug", text, at_most=at_most)
    slug = canonical.slug(text)
    if slug is None:
        raise Invalid(f"slug {text[:60]!a} is not {canonical.SLUG_FORM}.")
    return slug


def _set_row(model: Any, kind: str, slug: str, fields: dict[str, Any], actor: Actor) -> Any:
    slug = require_slug(slug, at_most=model._meta.get_field("slug").max_length)
    row = model.objects.filter(slug=slug).first()
    before = {name: getattr(row, name) for name in fields} if row else None
    if before == fields:
        return row
    row = row or model(slug=slug)
    for name, value in fields.items():
        setattr(row, name, value)
    row.save()
    record(
        actor,
        f"{kind}.set",
        target_type=kind,
        target_id=row.pk,
        before=before,
        after={"slug": slug, **fields},
    )
    return row
