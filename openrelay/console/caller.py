"""Who a signed-in operator is to the services behind a console page."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.http import HttpRequest

from openrelay.audit.services.refusals import is_audited, record_refusal
from openrelay.core.errors import ApiError, Forbidden
from openrelay.identity.caller import AddressRefused, Caller
from openrelay.identity.models import Organization, User
from openrelay.identity.services.callers import console_caller


def caller_of(request: HttpRequest) -> Caller:
    """The caller that this request's person is, acting in the platform ops organization.

    Raises Unauthenticated (UNAUTHORIZED) for someone no longer active, Forbidden for someone who is not, or
    no longer, a member there.
    """
    user = request.user
    platform = Organization.objects.filter(is_platform_ops=True).values_list("pk", flat=True).first()
    if platform is None or not isinstance(user, User):
        raise Forbidden("The console is for members of the platform's own organization.")
    return console_caller(
        user.pk,
        platform,
        source_ip=getattr(request, "source_ip", ""),
        request_id=getattr(request, "request_id", ""),
    )


@contextmanager
def decider(request: HttpRequest, action: str, *, target_type: str, target_id: object) -> Iterator[Caller]:
    """Yields the caller, who may take `action` on the target; a refusal is noted in the audit log, also what
    the block raises: one for lack of a right, or by state.

    The service asks again under its lock. Raises what `caller_of` raises, and Forbidden for a caller without
    the action.
    """
    caller: Caller | None = None
    try:
        caller = caller_of(request)
        caller.require(action)
        yield caller
    except ApiError as refusal:
        refused = refusal.caller if isinstance(refusal, AddressRefused) else caller
        if refused is not None and is_audited(refusal.status, refusal.code):
            record_refusal(
                refused.actor,
                method=request.method,
                operation="console",
                path=request.path_info,
                status=refusal.status,
                code=refusal.code,
                permission=action,
                denied_by=refusal.extra.get("deniedBy"),
                target_type=target_type,
                target_id=target_id,
                org_id=refused.organization_id,
            )
        raise
