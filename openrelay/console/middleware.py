"""What console pages tell the browser to refuse, and what they do not let through."""

from collections.abc import Callable

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse_lazy

from openrelay.audit.actor import Actor
from openrelay.audit.services.refusals import record_refusal
from openrelay.core.errors import Forbidden
from openrelay.identity.models import User

CONSOLE = reverse_lazy("admin:index")
LOGIN = reverse_lazy("admin:login")
LOGOUT = reverse_lazy("admin:logout")
_READING = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

# Everything comes from this very host. The admin's interface library evaluates expressions written in the
# pages, so scripts and styles in the page itself have to be let be; nothing is fetched from elsewhere.
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)


class OperatorsAddress:
    """Knows nobody who comes from an address that their role may not be used from: they have to sign in.

    An attempt at a change is noted in the audit log.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith(str(CONSOLE)) and request.path_info != str(LOGOUT):
            user = request.user
            source_ip: str = request.source_ip  # type: ignore[attr-defined]
            if isinstance(user, User) and user.is_staff and not user.console_opens_from(source_ip):
                if request.method not in _READING and request.path_info != str(LOGIN):
                    _note(request, user, source_ip)
                request.user = AnonymousUser()
        return self.get_response(request)


def _note(request: HttpRequest, user: User, source_ip: str) -> None:
    record_refusal(
        Actor(f"user:{user.pk}", source_ip, request.request_id),  # type: ignore[attr-defined]
        method=request.method,
        operation="console",
        path=request.path_info,
        status=Forbidden.status,
        code=Forbidden.code,
        permission=None,
        denied_by="role",
        target_type="path",
        target_id="".join(char if char.isprintable() else "\ufffd" for char in request.path_info[:200]),
        org_id=None,
    )


class ContentPolicy:
    """Sends the content security policy with each page of the console, and keeps pages out of caches."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if request.path_info.startswith(str(CONSOLE)):
            response.headers.setdefault("Content-Security-Policy", POLICY)
            response.headers.setdefault("Cache-Control", "no-store")
        return response


class WithoutNul:
    """Takes NUL out of the query of a console page: PostgreSQL takes it in no text, so nothing has it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        request.META["QUERY_STRING"] = request.META.get("QUERY_STRING", "").replace("%00", "")
        return self.get_response(request)
