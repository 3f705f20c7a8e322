"""Applications of organizations to become providers, and the operators' decisions."""

from uuid import UUID

from django.db import IntegrityError, transaction

from nodes.models import ProviderApplication
from openrelay.audit.services.record import Actor, record
from openrelay.core import clock
from openrelay.core.errors import Conflict, Invalid, NotFound
from openrelay.identity.caller import Caller
from openrelay.identity.models import Organization
from openrelay.identity.services.callers import reread
from openrelay.identity.services.organizations import set_switches

_PENDING = "Your organization already has a pending application. Wait for the operators' decision."


def submit_application(*, caller: Caller, note: str) -> ProviderApplication:
    """Submit the application of the caller's organization to become a provider. `note` gives the reason.

    Raises Invalid if the organization is a provider already or has a pending application, and Forbidden
    without the permission.
    """
    try:
        with transaction.atomic():
            caller, at = reread(caller)
            caller.require("provider.write")
            organization = Organization.objects.get(pk=caller.organization_id)
            if organization.is_provider:
                raise Invalid("Your organization is already a provider. It needs no application.")
            if ProviderApplication.objects.filter(organization=organization, decided_at=None).exists():
                raise Invalid(_PENDING)
            application = ProviderApplication.objects.create(
                organization=organization, note=note, submitted_by=caller.principal, submitted_at=at
            )
            record(
                caller.actor,
                "provider.applied",
                target_type="provider_application",
                target_id=application.pk,
                org_id=organization.pk,
                after={"status": application.status, "note": note},
                at=at,
            )
    except IntegrityError as error:
        # A concurrent request of the same organization created its application first.
        raise Invalid(_PENDING) from error
    return application


def decide_application(
    *, actor: Actor, application_id: UUID, approve: bool, reason: str = ""
) -> ProviderApplication:
    """Record the operators' decision. Approval makes the organization a provider.

    Raises NotFound for an unknown application, and Conflict if it was decided before.
    """
    with transaction.atomic():
        application = (
            ProviderApplication.objects.select_for_update(no_key=True, of=("self",))
            .filter(pk=application_id)
            .first()
        )
        if application is None:
            raise NotFound()
        if application.decided_at is not None:
            raise Conflict(
                f"The application was {application.status} already. Only a new application can be decided."
            )
        before = application.status
        application.approved, application.decided_by, application.decided_at = (
            approve,
            actor.name[:80],
            clock.read(),
        )
        application.save(update_fields=["approved", "decided_by", "decided_at"])
        if approve:
            set_switches(actor=actor, organization_id=application.organization_id, is_provider=True)
        record(
            actor,
            f"provider.{application.status}",
            target_type="provider_application",
            target_id=application.pk,
            org_id=application.organization_id,
            before={"status": before},
            after={"status": application.status},
            reason=reason,
            at=application.decided_at,
        )
        decided: ProviderApplication = application
    return decided
