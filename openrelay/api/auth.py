"""The bearer credential of a request."""

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from openrelay.core.errors import Unauthenticated
from openrelay.identity.caller import Caller
from openrelay.identity.services.callers import authenticate


class BearerAuthentication(BaseAuthentication):
    """Reads `Authorization: Bearer`; cookies never count on the API."""

    def authenticate(self, request: Request) -> tuple[Caller, str] | None:
        """The caller, or None when the request carries no credential. A bad one raises Unauthenticated."""
        secret = bearer(request)
        if secret is None:
            return None
        caller = authenticate(
            secret,
            source_ip=request._request.source_ip,  # type: ignore[attr-defined]
            request_id=request._request.request_id,  # type: ignore[attr-defined]
        )
        return caller, ""

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def bearer(request: Request) -> str | None:
    """The secret in a request's Authorization header, or None. Raises Unauthenticated for another scheme."""
    header = request.META.get("HTTP_AUTHORIZATION", "")
    if not header:
        return None
    scheme, _, secret = header.partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret or len(secret) > 200:
        raise Unauthenticated("Send `Authorization: Bearer` with an API key or a session token.")
    return str(secret)
