"""What surrounds every request: its id and origin, and the console's cookies where the console is."""

import re
import uuid
from collections.abc import Callable
from typing import Any, cast

from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.module_loading import import_string

from openrelay.audit.actor import serving_request
from openrelay.identity.addresses import client_address

Handler = Callable[[HttpRequest], HttpResponseBase]

_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_API = re.compile(r"/(v1|api|livez|readyz|openapi\.(json|yaml))(/|$)")


def is_api_path(path: str) -> bool:
    """Whether a path belongs to the API, where every answer is JSON and no cookie counts."""
    return _API.match(path) is not None


def source_ip(request: HttpRequest) -> str:
    """The address a request came from, in its one form; empty when it is not known."""
    meta = request.META
    return client_address(
        meta.get("REMOTE_ADDR", ""), meta.get("HTTP_X_FORWARDED_FOR", ""), settings.TRUSTED_PROXIES
    )


class RequestIdMiddleware:
    """Gives each request an id, its own if it brings a sane one, and says it back in `X-Request-Id`."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        server_request_id = uuid.uuid4()
        request_id = given if _SANE_ID.fullmatch(given) else str(server_request_id)
        request.request_id = request_id  # type: ignore[attr-defined]
        request.source_ip = source_ip(request)  # type: ignore[attr-defined]
        with serving_request(server_request_id):
            response = self.get_response(request)
        response.headers["X-Request-Id"] = request_id
        if isinstance(response, HttpResponse) and not response.has_header("Content-Length"):
            response.headers["Content-Length"] = str(len(response.content))
        return response


class ConsoleOnly:
    """Runs the middleware of `CONSOLE_MIDDLEWARE` for every path but the API's.

    The chain is built as Django builds its own, so that each keeps all of its hooks: a middleware that is
    only called, without its `process_view`, would be a CSRF check that never checks.
    """

    def __init__(self, get_response: Handler) -> None:
        self.api = get_response
        self.view_hooks: list[Callable[..., HttpResponse | None]] = []
        self.template_hooks: list[Callable[..., Any]] = []
        self.exception_hooks: list[Callable[..., HttpResponse | None]] = []
        handler: Handler = get_response
        for path in reversed(settings.CONSOLE_MIDDLEWARE):
            try:
                middleware: Any = import_string(path)(handler)
            except MiddlewareNotUsed:
                continue
            if hasattr(middleware, "process_view"):
                self.view_hooks.insert(0, middleware.process_view)
            if hasattr(middleware, "process_template_response"):
                self.template_hooks.append(middleware.process_template_response)
            if hasattr(middleware, "process_exception"):
                self.exception_hooks.append(middleware.process_exception)
            handler = cast(Handler, convert_exception_to_response(middleware))
        self.console: Handler = handler

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.api(request) if is_api_path(request.path_info) else self.console(request)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponse | None:
        if is_api_path(request.path_info):
            return None
        for hook in self.view_hooks:
            response = hook(request, view, args, kwargs)
            if response is not None:
                return response
        return None

    def process_template_response(self, request: HttpRequest, response: Any) -> Any:
        if not is_api_path(request.path_info):
            for hook in self.template_hooks:
                response = hook(request, response)
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not is_api_path(request.path_info):
            for hook in self.exception_hooks:
                response = hook(request, exception)
                if response is not None:
                    return response
        return None
