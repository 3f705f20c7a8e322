"""The errors a caller can meet. Each carries its status and stable code; one handler renders them all.

A service raises one of these and never builds an answer; a view catches none of them.
"""

from typing import Any


class ApiError(Exception):
    """An answer other than success: `{"error": message, "code": code, **extra}` with `status`."""

    status = 500
    code = "INTERNAL_ERROR"

    def __init__(self, message: str, *, code: str | None = None, **extra: Any) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.extra = extra
        self.headers: dict[str, str] = {}


class Invalid(ApiError):
    """400: malformed or impossible, whatever the state. The message names the field or thing."""

    status = 400
    code = "VALIDATION_ERROR"


class Unauthenticated(ApiError):
    """401: no credential, or a dead one."""

    status = 401
    code = "UNAUTHORIZED"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.headers["WWW-Authenticate"] = "Bearer"


class Forbidden(ApiError):
    """403: known, and not allowed. `permission` is the action that was needed, `deniedBy` what refused it."""

    status = 403
    code = "FORBIDDEN"


class NotFound(ApiError):
    """404: not there for this caller. One constant sentence a route, never with an id in it."""

    status = 404
    code = "NOT_FOUND"

    def __init__(self, message: str = "There is no such thing here, or it is not yours to see.") -> None:
        super().__init__(message)


class Conflict(ApiError):
    """409: against the state as it is now; the code says which rule."""

    status = 409
    code = "INVALID_STATE"


class Unprocessable(ApiError):
    """422: an Idempotency-Key that was used with another request."""

    status = 422
    code = "IDEMPOTENCY_KEY_REUSED"


class TooManyRequests(ApiError):
    """429: more requests than the limit. `retry_after` is in seconds."""

    status = 429
    code = "RATE_LIMITED"

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.headers["Retry-After"] = str(retry_after)


class Unavailable(ApiError):
    """503: valid, but no room now. `retry_after` is in seconds."""

    status = 503
    code = "INSUFFICIENT_GPU_CAPACITY"

    def __init__(self, message: str, *, code: str | None = None, retry_after: int = 30, **extra: Any) -> None:
        super().__init__(message, code=code, **extra)
        self.headers["Retry-After"] = str(retry_after)


class TryAgain(Unavailable):
    """503: a wait timed out, or a concurrent change conflicted. A retry may succeed."""

    code = "TRY_AGAIN"

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message, retry_after=retry_after)
