"""Make organizations."""

import secrets

from django.db import IntegrityError, transaction

from openrelay import clock
from openrelay.audit.services.record import Actor, record
from openrelay.errors import Conflict
from openrelay.identity.models import Organization

_SHORT_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def create_organization(
    *,
    actor: Actor,
    name: str,
    slug: str,
    is_platform_ops: bool = False,
    is_provider: bool = False,
    reservations_enabled: bool = True,
    billing_email: str = "",
) -> Organization:
    """Make an organization.

    Raises Conflict (INVALID_STATE) when the slug is taken, or when there is a platform ops organization
    already.
    """
    try:
        with transaction.atomic():
            at = clock.read()
            organization = Organization.objects.create(
                name=name,
                slug=slug,
                short_id="".join(secrets.choice(_SHORT_ALPHABET) for _ in range(10)),
                is_platform_ops=is_platform_ops,
                is_provider=is_provider,
                reservations_enabled=reservations_enabled,
                billing_email=billing_email,
                created_at=at,
            )
            record(
                actor,
                "org.created",
                target_type="org",
                target_id=organization.id,
                org_id=organization.id,
                after={
                    "name": name,
                    "slug": slug,
                    "isPlatformOps": is_platform_ops,
                    "isProvider": is_provider,
                },
                at=at,
            )
    except IntegrityError as error:
        if "one_platform_ops_organization" in str(error):
            raise Conflict("There is a platform ops organization already, and there is only one.") from error
        raise Conflict(f"The slug {slug} is taken. Choose another.") from error
    return organization
