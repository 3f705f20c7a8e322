"""Set and delete the sizes of VMs without GPUs."""

import re
from typing import Final

from django.db import transaction

from compute.models import ResourceSize
from openrelay.audit.services.record import Actor, record
from openrelay.core import clock
from openrelay.core.errors import Invalid, NotFound

_SLUG: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MOST: Final = 2**31 - 1


def set_size(*, actor: Actor, slug: str, vcpu: int, ram_mb: int, cents_per_hour: int) -> ResourceSize:
    """Create or change a size: CPUs, memory in MiB, cents an hour.

    Existing VMs of the size keep their CPUs and memory, and running ones keep their rate. Setting the present
    values again changes nothing. Raises Invalid (VALIDATION_ERROR) for a malformed name and for a value out
    of range.
    """
    if not _SLUG.fullmatch(slug) or len(slug) > 64:
        raise Invalid("A size has a name of lower-case letters, digits and dashes, 64 at most.")
    if not 1 <= vcpu <= _MOST or not 512 <= ram_mb <= _MOST or not 0 <= cents_per_hour <= _MOST:
        raise Invalid("A size has 1 CPU or more, 512 MiB or more, and a price of 0 cents or more.")
    values = {"vcpu": vcpu, "ram_mb": ram_mb, "cents_per_hour": cents_per_hour}
    with transaction.atomic():
        size, made = ResourceSize.objects.select_for_update().get_or_create(slug=slug, defaults=values)
        before = None if made else _facts(size)
        for name, value in values.items():
            setattr(size, name, value)
        if before == _facts(size):
            return size
        size.save()
        _record(actor, "size.set", size, before, _facts(size))
    return size


def drop_size(*, actor: Actor, slug: str) -> None:
    """Delete a size. Existing VMs keep the size and its price. Raises NotFound."""
    with transaction.atomic():
        size = ResourceSize.objects.select_for_update().filter(slug=slug).first()
        if size is None:
            raise NotFound()
        _record(actor, "size.dropped", size, _facts(size), None)
        size.delete()


def _facts(size: ResourceSize) -> dict[str, int]:
    return {"vcpu": size.vcpu, "ramMb": size.ram_mb, "centsPerHour": size.cents_per_hour}


def _record(
    actor: Actor,
    event: str,
    size: ResourceSize,
    before: dict[str, int] | None,
    after: dict[str, int] | None,
) -> None:
    record(
        actor,
        event,
        target_type="resource_size",
        target_id=size.slug,
        org_id=None,
        before=before,
        after=after,
        at=clock.read(),
    )
