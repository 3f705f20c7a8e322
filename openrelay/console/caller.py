"""Who a signed-in operator is to the services behind a console page."""

from django.http import HttpRequest

from openrelay.errors import Forbidden
from openrelay.identity.caller import Caller
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
