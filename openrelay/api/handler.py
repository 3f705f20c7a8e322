"""Every error becomes its answer here: `{"error": sentence, "code": STABLE_CODE}`."""

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any

from django.core.exceptions import BadRequest, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template import loader
from django.views import defaults
from rest_framework import exceptions, status
from rest_framework.response import Response

from openrelay.api.middleware import is_api_path
from openrelay.api.throttle import count_address
from openrelay.core.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
    TryAgain,
    Unauthenticated,
    Unavailable,
)

log = logging.getLogger(__name__)

_CAME_BETWEEN_STATES = ("40001", "40P01")
# A wait that PostgreSQL, or this process for it, has ended: for a lock (lock_not_available), in a statement
# (query_canceled), in or for a transaction (idle_in_transaction_session_timeout, transaction_timeout).
_TIMEOUT_STATES = ("55P03", "57014", "25P03", "25P04")


class MethodNotAllowed(ApiError):
    """405: the path is there, the method is not. `Allow` lists those that are."""

    status = 405
    code = "METHOD_NOT_ALLOWED"


class Replayed(Exception):
    """Not an error: the answer that an earlier request with the same Idempotency-Key was given."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__("replayed")
        self.answer = answer


def handle(error: Exception, context: dict[str, Any]) -> Response:
    """The answer to any exception of a view."""
    if isinstance(error, Replayed):
        return Response(error.answer, headers={"Idempotency-Replayed": "true"})
    request_id = getattr(getattr(context.get("request"), "_request", None), "request_id", "")
    translated = translate(error, request_id)
    return Response(body_of(translated), status=translated.status, headers=translated.headers)


def body_of(error: ApiError) -> dict[str, Any]:
    """An error as the API writes it."""
    extra = {name: value for name, value in error.extra.items() if value is not None}
    return {"error": error.message, "code": error.code, **extra}


def translate(error: Exception, request_id: str) -> ApiError:
    """The API's own error for any exception. What nobody foresaw is logged and answered by request id."""
    match error:
        case ApiError():
            return error
        case exceptions.MethodNotAllowed():
            return MethodNotAllowed("This path does not take that method.")
        case exceptions.UnsupportedMediaType():
            return _with_status(Invalid("Send the body as application/json."), 415, "UNSUPPORTED_MEDIA_TYPE")
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return Unauthenticated("Send `Authorization: Bearer` with an API key or a session token.")
        case exceptions.Throttled():
            return TooManyRequests(
                "Too many requests. Wait and try again.", retry_after=int(getattr(error, "wait", None) or 1)
            )
        case exceptions.PermissionDenied() | PermissionDenied():
            return Forbidden("This is not allowed.")
        case exceptions.NotFound() | Http404():
            return NotFound()
        case RequestDataTooBig():
            return _with_status(
                Invalid("The body is larger than 1 MiB. Send less."), 413, "PAYLOAD_TOO_LARGE"
            )
        case exceptions.APIException() if error.status_code < status.HTTP_500_INTERNAL_SERVER_ERROR:
            return _with_status(Invalid(str(error.detail)), error.status_code, "VALIDATION_ERROR")
        case SuspiciousOperation() | BadRequest():
            return Invalid("The request is malformed.")
        case DatabaseError() | InterfaceError():
            return _from_database(error, request_id)
    return _unforeseen(error, request_id)


def _from_database(error: Exception, request_id: str) -> ApiError:
    state = getattr(error.__cause__, "sqlstate", None)
    if state in _CAME_BETWEEN_STATES:
        return TryAgain("A concurrent change conflicted with this request. Try again.")
    if state in _TIMEOUT_STATES:
        log.warning("a wait in the database was ended, request %s: %s", request_id, error)
        return TryAgain("The database is busy, and the request timed out. Try again.")
    if isinstance(error, DataError):
        log.error("a value reached the database that it cannot take, request %s", request_id, exc_info=error)
        return Invalid("A value is out of range.")
    if isinstance(error, IntegrityError):
        # The rules are checked before they are broken, so this is a change that came between, or a rule
        # forgotten.
        log.error("a constraint refused a change, request %s", request_id, exc_info=error)
        return Conflict(
            "A concurrent change conflicted with this request. Read the resource again and retry."
        )
    if isinstance(error, OperationalError | InterfaceError) and (
        state is None or state[:2] in ("08", "53", "57")
    ):
        log.error("the database is not there, request %s", request_id, exc_info=error)
        return Unavailable(
            "The database does not answer. Try again.", code="DATABASE_UNAVAILABLE", retry_after=5
        )
    return _unforeseen(error, request_id)


def _unforeseen(error: Exception, request_id: str) -> ApiError:
    log.error("unforeseen error, request %s", request_id, exc_info=error)
    return _internal(request_id)


def _internal(request_id: str) -> ApiError:
    return ApiError(f"Something went wrong here. Tell support this request's id: {request_id}")


def _with_status(error: ApiError, status_code: int, code: str) -> ApiError:
    error.status = status_code
    error.code = code
    return error


def answer(error: ApiError) -> JsonResponse:
    """An error as an answer outside any API view."""
    return JsonResponse(body_of(error), status=error.status, headers=error.headers)


def limited_by_address(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A view outside the API's base, which counts its requests for their address and answers 429 beyond the
    limit.
    """

    @functools.wraps(view)
    def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            count_address(request)
        except TooManyRequests as refusal:
            return answer(refusal)
        return view(request, *args, **kwargs)

    return limited


@limited_by_address
def not_found(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    """404 for a path that is not there: JSON on the API, a page elsewhere."""
    if is_api_path(request.path_info):
        return answer(NotFound())
    return defaults.page_not_found(request, kwargs.get("exception") or Http404())


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400 for what Django refuses before any view."""
    if is_api_path(request.path_info):
        return answer(translate(exception, getattr(request, "request_id", "")))
    return defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403 for what Django refuses before any view."""
    if is_api_path(request.path_info):
        return answer(Forbidden("This is not allowed."))
    return defaults.permission_denied(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """The answer to an error outside any API view: 503 where a wait was ended or the database is away, else
    500. Django has logged it.
    """
    error = sys.exc_info()[1]
    request_id = getattr(request, "request_id", "")
    if isinstance(error, DatabaseError | InterfaceError):
        translated = _from_database(error, request_id)
    elif isinstance(error, Unavailable):
        translated = error
    else:
        translated = _internal(request_id)
    if is_api_path(request.path_info):
        return answer(translated)
    if translated.status != 503:
        return defaults.server_error(request)
    page = loader.render_to_string("503.html", {"sentence": translated.message})
    return HttpResponse(page, status=503, headers=translated.headers)
