"""What belongs to every operation: the Error shape, codes that any may answer, and health."""

from typing import Any

from openrelay.api.lists import ListQuery
from openrelay.api.schema.book import Body, Code, Description
from openrelay.api.schema.shapes import Schema, flag, number, one_of, ref, shape, text, words

CODES = {
    "VALIDATION_ERROR": Code(
        400,
        "a field or parameter is missing, unknown, of the wrong type or out of range; the sentence names it.",
        "unitIds[2] must be a string.",
    ),
    "UNAUTHORIZED": Code(
        401,
        "there is no credential, or none that is known here.",
        "Send `Authorization: Bearer` with an API key or a session token.",
    ),
    "REVOKED_API_KEY": Code(401, "the API key was revoked.", "This API key was revoked. Use another one."),
    "EXPIRED_API_KEY": Code(401, "the API key has expired.", "This API key has expired. Use another one."),
    "FORBIDDEN": Code(
        403,
        "the caller may not do this; `permission` is the action that was needed, `deniedBy` what refused it.",
        "This needs compute.create, and the API key's permissions do not include it; use a key that has it.",
        {"permission": "compute.create", "deniedBy": "key"},
    ),
    "NOT_FOUND": Code(
        404,
        "there is nothing by that id, or nothing that the caller may know of; the two read the same.",
        "There is no such thing here, or it is not yours to see.",
    ),
    "INVALID_STATE": Code(
        409, "the state of the thing forbids it; the sentence says the state.", "trainer-1 is terminated."
    ),
    "IDEMPOTENCY_KEY_IN_USE": Code(
        409,
        "another request with this Idempotency-Key is still running; the answer carries Retry-After.",
        "Another request with this Idempotency-Key is still running. Wait and retry.",
    ),
    "PAYLOAD_TOO_LARGE": Code(
        413, "the body is larger than 1 MiB.", "The body is larger than 1 MiB. Send less."
    ),
    "UNSUPPORTED_MEDIA_TYPE": Code(415, "the body is not JSON.", "Send the body as application/json."),
    "IDEMPOTENCY_KEY_REUSED": Code(
        422,
        "this Idempotency-Key was used with another request.",
        "This Idempotency-Key was used with another request. Use a new key for a new request.",
    ),
    "RATE_LIMITED": Code(
        429,
        "the caller sent more requests in a minute than are allowed; Retry-After says when to go on.",
        "More than 600 requests in a minute. Wait and send fewer.",
    ),
    "INTERNAL_ERROR": Code(
        500,
        "something went wrong here; the log has it by the request's id.",
        "Something went wrong here. Tell support this request's id: 6f0c2b1a-58b3-4d0e-9a8e-3f5c7d9b1e20",
    ),
    "TRY_AGAIN": Code(
        503,
        "a concurrent change conflicted, or the database was busy; send the request again after "
        "`Retry-After` seconds.",
        "A concurrent change conflicted with this request. Try again.",
    ),
    "DATABASE_UNAVAILABLE": Code(
        503, "the database does not answer.", "The database does not answer. Try again."
    ),
}

ERROR = shape(
    "Why a request was refused. Programs go by `code`, people by `error`.",
    {"error": text("A sentence: what is wrong, and what to do about it.")},
    {
        "code": text("A stable name of the reason, in upper snake case.", pattern="^[A-Z][A-Z0-9_]*$"),
        "permission": text("On 403: the action that the caller would need."),
        "deniedBy": text("On 403: what refused it, such as `role`, `key` or `platform`."),
        "policies": words("On 403: the policies that decided, where there are any."),
    },
)


PAGE_FIELDS = {
    "limit": "How many to list at most on a page. Without `limit` and `cursor` the list is answered whole.",
    "cursor": 'Where the page begins: the `cursor` of the address in `Link: <…>; rel="next"`.',
}


def _check(*, age: bool = False, taking: bool = False) -> Schema:
    optional: dict[str, Schema] = {"error": text("What is wrong, and what to look at.")}
    if age:
        optional["ageSeconds"] = number("How long ago background work last ran.")
    if taking:
        optional["milliseconds"] = number("How long the answer took.")
    return shape("One thing that serving needs.", {"ok": flag("Whether it is well.")}, optional)


SHAPES = {
    "Error": ERROR,
    "Liveness": shape("That this process answers.", {"status": one_of(["alive"], "Always `alive`.")}),
    "Readiness": shape(
        "Whether the whole can serve, check by check.",
        {
            "status": one_of(["ready", "not ready"], "`ready` when every check is well."),
            "checks": shape(
                "The checks.",
                {
                    "database": _check(taking=True),
                    "broker": _check(taking=True),
                    "migrations": _check(),
                    "beat": _check(age=True),
                },
            ),
        },
    ),
}


def _health(name: str, summary: str, note: str, answers: dict[str, tuple[str, Any]], kind: str) -> Schema:
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "description": f"{note}\n\nNo credential is needed.",
            "tags": ["health"],
            "security": [],
            "responses": {
                status: {
                    "description": words,
                    "content": {
                        "application/json": {"schema": ref(kind), "examples": {"example": {"value": example}}}
                    },
                }
                for status, (words, example) in answers.items()
            },
        }
    }


_WELL = {
    "database": {"ok": True, "milliseconds": 0.4},
    "broker": {"ok": True, "milliseconds": 0.2},
    "migrations": {"ok": True},
    "beat": {"ok": True, "ageSeconds": 3.2},
}
PATHS = {
    "/livez": _health(
        "livez",
        "Does this process answer?",
        "Asks nothing of the database or the broker: for deciding whether to restart a process.",
        {"200": ("It does.", {"status": "alive"})},
        "Liveness",
    ),
    "/readyz": _health(
        "readyz",
        "Can it serve?",
        "Looks at the database, the broker, the migrations and when background work last ran.",
        {
            "200": ("It can.", {"status": "ready", "checks": _WELL}),
            "503": (
                "It cannot, and `checks` say why.",
                {
                    "status": "not ready",
                    "checks": {
                        **_WELL,
                        "beat": {
                            "ok": False,
                            "ageSeconds": 95.0,
                            "error": "No background work for 95 s. Check that a worker and one beat run.",
                        },
                    },
                },
            ),
        },
        "Readiness",
    ),
}

BODIES = {ListQuery: Body("ListQuery", "Which page to list.", PAGE_FIELDS)}

DESCRIPTION = Description(
    codes=CODES, shapes=SHAPES, bodies=BODIES, paths=PATHS, tags={"health": "Whether it runs."}
)
