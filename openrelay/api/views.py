"""The base of every API view. The order in a request: negotiation, authentication, throttle, permission and
relation, method, parse, and then the view's own method, which calls one service."""

import logging
from typing import Any, ClassVar, cast

from django.db import DatabaseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from openrelay.api import serializers
from openrelay.api.handler import MethodNotAllowed
from openrelay.api.idempotency import GuardedRequest, Render, UnguardedRequest, open_guard
from openrelay.api.parser import MAX_BYTES, TooLarge
from openrelay.audit.services.refusals import is_audited, record_refusal
from openrelay.core.errors import ApiError, Forbidden, Invalid, NotFound, Unauthenticated
from openrelay.identity.caller import AddressRefused, Caller
from openrelay.identity.operations import OPERATIONS, Access

log = logging.getLogger(__name__)

_READING = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class AlwaysJSON(DefaultContentNegotiation):
    """Answers in the view's one format, whatever Accept asks for."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[Any, str]:
        return renderers[0], renderers[0].media_type


class OperationView(APIView):
    """A path and its operations: `operations = {"GET": "list_things", "POST": "create_thing"}`.

    `identity.operations.OPERATIONS` says what each needs. HEAD is answered as GET; OPTIONS is not taken.
    """

    operations: ClassVar[dict[str, str]] = {}
    content_negotiation_class = AlwaysJSON
    http_method_names = ["get", "post", "put", "patch", "delete", "head"]

    @property
    def caller(self) -> Caller:
        """Who is asking, acting in the organization that the path is about."""
        caller: Caller = self.request.caller  # type: ignore[attr-defined]
        return caller

    @property
    def operation(self) -> str | None:
        """The operation that this request's method names; None for a method that the path does not take."""
        method = self.request.method or ""
        return self.operations.get("GET" if method == "HEAD" else method)

    @property
    def allowed_methods(self) -> list[str]:
        """What the path takes, for the Allow header."""
        return sorted([*self.operations, "HEAD"] if "GET" in self.operations else self.operations)

    def relate(self, caller: Caller, operation: str | None) -> None:
        """Refuse a caller that has nothing to do with what the path names.

        Called once the permission has been judged and before the method is: `operation` is None for a method
        that the path does not take, and the refusal is then the same. A view with a relation overrides this,
        and leaves here what it looked up. Raises NotFound or Forbidden.
        """

    def require(self, caller: Caller, operation: str | None) -> None:
        """Refuse a caller without the operation's action; for no operation, one without any of the path's."""
        accesses = [OPERATIONS.get(name) for name in ([operation] if operation else self.operations.values())]
        known = [access for access in accesses if access is not None]
        if not known:
            raise Forbidden("This operation is not open to anyone.")
        refusals: list[ApiError] = []
        for access in known:
            refusal = _refusal(caller, access)
            if refusal is None:
                return
            refusals.append(refusal)
        raise refusals[0]

    def enter(self, caller: Caller) -> Caller:
        """The caller as the path sees it, before its permission is judged."""
        return caller

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self.format_kwarg = None
        request.accepted_renderer, request.accepted_media_type = self.perform_content_negotiation(request)
        request.caller = None  # type: ignore[attr-defined]
        operation = self.operation
        access = OPERATIONS.get(operation) if operation else None
        caller = self._authenticated(request)
        if caller is None:
            self.check_throttles(request)
            if access is None or not access.public:
                raise Unauthenticated("Send `Authorization: Bearer` with an API key or a session token.")
            return
        request.caller = caller  # type: ignore[attr-defined]
        self.check_throttles(request)
        if access is None or not access.public:
            request.caller = caller = self.enter(caller)  # type: ignore[attr-defined]
            self.require(caller, operation)
        self.relate(caller, operation)
        if operation is None:
            raise self._wrong_method()

    def _authenticated(self, request: Request) -> Caller | None:
        try:
            return cast(Caller | None, request.user)
        except (AddressRefused, Unauthenticated) as refusal:
            # The owner of a credential that is refused for its address is known, for the audit log.
            request.caller = getattr(refusal, "caller", None)  # type: ignore[attr-defined]
            # A refused attempt counts for the address, and never for the credential that others use.
            request.user = None  # type: ignore[assignment]
            self.check_throttles(request)
            raise

    def http_method_not_allowed(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        raise self._wrong_method()

    def _wrong_method(self) -> ApiError:
        allowed = self.allowed_methods
        error = MethodNotAllowed(f"This path takes {', '.join(allowed)}.")
        error.headers["Allow"] = ", ".join(allowed)
        return error

    def read(self, serializer_class: type[Serializer]) -> dict[str, Any]:
        """The request's body as `serializer_class` takes it; no body reads as `{}`.

        Raises Invalid (VALIDATION_ERROR), or 413 and 415 for what cannot be read at all.
        """
        return serializers.read(serializer_class, self.body())

    def body(self) -> dict[str, Any]:
        """The request's body as the JSON object it is; no body reads as `{}`."""
        meta = self.request.META
        # A body of unannounced length reaches no WSGI application: it would read as empty, which may mean
        # "all".
        if meta.get("HTTP_TRANSFER_ENCODING") and not meta.get("CONTENT_LENGTH"):
            raise Invalid("Send the body with a Content-Length.")
        length = meta.get("CONTENT_LENGTH") or "0"
        if length.isdecimal() and int(length[:20]) > MAX_BYTES:
            raise TooLarge("The body is larger than 1 MiB. Send less at once.")
        data: dict[str, Any] = self.request.data
        return data

    def read_query(self, serializer_class: type[Serializer]) -> dict[str, Any]:
        """The query parameters as `serializer_class` takes them. Raises Invalid (VALIDATION_ERROR)."""
        given = self.request.query_params
        for name, values in given.lists():
            if len(values) > 1:
                raise Invalid(f"{ascii(name[:60])[1:-1]} is given {len(values)} times. Give it once.")
        return serializers.read(serializer_class, given.dict(), query=True)

    def guard(self, render: Render) -> GuardedRequest | UnguardedRequest:
        """This request's Idempotency-Key; `openrelay.api.idempotency` says how to use it."""
        header = self.request.META.get("HTTP_IDEMPOTENCY_KEY")
        return open_guard(
            header,
            method=self.request.method or "",
            path=self.request.path_info,
            principal=self.caller.principal,
            organization_id=self.caller.organization_id,
            body=self.body() if header is not None else None,
            render=render,
        )

    def handle_exception(self, exc: Exception) -> Response:
        response = super().handle_exception(exc)
        if self.request.method not in _READING and is_audited(
            response.status_code, response.data.get("code")
        ):
            self._audit_refusal(response)
        self.after_refusal(response)
        return response

    def after_refusal(self, response: Response) -> None:
        """Note what a path has to note of a refused request beside the audit log; nothing here."""

    def _audit_refusal(self, response: Response) -> None:
        """Note or count the attempt, by one statement whether or not what it named exists."""
        caller: Caller | None = getattr(self.request, "caller", None)
        if caller is None:
            return
        kind, named = self._target()
        try:
            record_refusal(
                caller.actor,
                method=self.request.method,
                operation=self.operation,
                path=self.request.path_info,
                status=response.status_code,
                code=response.data["code"],
                permission=response.data.get("permission"),
                denied_by=response.data.get("deniedBy"),
                target_type=kind,
                target_id=named,
                org_id=caller.organization_id,
            )
        except DatabaseError:  # the refusal stands, whether or not it could be noted
            log.exception("a refusal could not be audited")

    def _target(self) -> tuple[str, str]:
        if not self.kwargs:
            return "path", self.request.path_info[:200]
        name, value = list(self.kwargs.items())[-1]
        text = "".join(character if character.isprintable() else "\ufffd" for character in str(value)[:200])
        return name.removesuffix("_id"), text


class OrgView(OperationView):
    """A path under `/v1/orgs/{orgId}`, for callers who act in that organization.

    The url names it `org_id`. Another's organization and one that does not exist are refused alike, before
    anything is looked up.
    """

    def enter(self, caller: Caller) -> Caller:
        return caller.in_org(self.kwargs["org_id"])


def _refusal(caller: Caller, access: Access) -> ApiError | None:
    """Why `access` is not for `caller`, or None when it is."""
    if access.public:
        return None
    if access.node != (caller.kind == "node"):
        return NotFound() if access.hidden else Forbidden("This kind of credential cannot be used here.")
    if access.node:
        return None
    if access.session_only and caller.kind == "api_key":
        return Forbidden(
            "This operation needs a session token of a signed-in person, not an API key.",
            permission=access.action,
            deniedBy="platform",
        )
    try:
        caller.require(access.action)
    except Forbidden as refusal:
        return NotFound() if access.hidden else refusal
    return None
