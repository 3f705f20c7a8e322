"""Make organizations, and say what each may do."""

import secrets
import uuid
from typing import Any, Final

from django.db import IntegrityError, transaction

from openrelay.audit.services.record import Actor, record
from openrelay.core import canonical, clock, jobs
from openrelay.core.errors import Conflict, Invalid, NotFound
from openrelay.core.text import require_length, require_name
from openrelay.identity.accounts import ACTIVE, STATUSES, SUSPENDED
from openrelay.identity.models import Organization

_SHORT_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
# What every client of the API can still count exactly.
_MOST_CENTS = 2**53
#: What an operator can set of an organization, with its name in the audit log.
SWITCHES: Final = {
    "is_provider": "isProvider",
    "reservations_enabled": "reservationsEnabled",
    "stop_enabled": "stopEnabled",
    "infiniband_enabled": "infinibandEnabled",
    "leave_notices_enabled": "leaveNoticesEnabled",
    "balance_cents": "balanceCents",
    "account_status": "accountStatus",
}


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

    Raises Invalid (VALIDATION_ERROR) for a slug of another form, for a name with characters that cannot be
    seen, and for what is too long; Conflict (INVALID_STATE) when the slug is taken, or when there is a
    platform ops organization already.
    """
    require_name("name", name, at_most=200)
    require_length("slug", slug, at_most=100)
    require_length("billing_email", billing_email, at_most=254)
    given, slug = slug, canonical.slug(slug) or ""
    if not slug:
        raise Invalid(f"slug {given[:60]!a} is not {canonical.SLUG_FORM}.")
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


def set_switches(*, actor: Actor, organization_id: uuid.UUID, **switches: Any) -> Organization:
    """Set some of `SWITCHES`; those not named stay as they are.

    `balance_cents` is in cents, None when unknown; `account_status` is one of `accounts.STATUSES`; the others
    are booleans. Setting what is so already writes nothing.

    Raises NotFound also for a deleted organization, Invalid (VALIDATION_ERROR) for what is no switch or no
    value of it.
    """
    for name in switches:
        if name not in SWITCHES:
            raise Invalid(f"{name} is not a switch. There are {', '.join(SWITCHES)}.")
    if abs(switches.get("balance_cents") or 0) > _MOST_CENTS:
        raise Invalid(f"balance_cents must be between -{_MOST_CENTS} and {_MOST_CENTS}.")
    if switches.get("account_status", ACTIVE) not in STATUSES:
        raise Invalid(f"account_status must be one of {', '.join(STATUSES)}.")
    with transaction.atomic():
        organization: Organization | None = (
            Organization.objects.live().select_for_update(no_key=True).filter(pk=organization_id).first()
        )
        if organization is None:
            raise NotFound()
        at = clock.read()
        present = {name: getattr(organization, name) for name in switches}
        if "account_status" in switches:
            present["account_status"] = ACTIVE if organization.suspended_at is None else SUSPENDED
        changed = [name for name, value in switches.items() if present[name] != value]
        if not changed:
            return organization
        before = {SWITCHES[name]: present[name] for name in changed}
        facts = {name: switches[name] for name in changed}
        if "account_status" in facts:
            facts["suspended_at"] = None if facts.pop("account_status") == ACTIVE else at
        if "balance_cents" in facts:
            if facts["balance_cents"] is None:
                facts |= {"balance_low_at": None, "balance_depleted_at": None}
            jobs.on_commit("compute.note_balance", str(organization.pk))
        for name, value in facts.items():
            setattr(organization, name, value)
        organization.save(update_fields=list(facts))
        record(
            actor,
            "org.switches_changed",
            target_type="org",
            target_id=organization.id,
            org_id=organization.id,
            before=before,
            after={SWITCHES[name]: switches[name] for name in changed},
            at=at,
        )
    return organization
