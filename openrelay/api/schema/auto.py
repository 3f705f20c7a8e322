"""From a view's operations to OpenAPI, by drf-spectacular."""

import re
from http import HTTPStatus
from typing import Any, cast

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ComponentRegistry, warn
from rest_framework import serializers

from openrelay.api.lists import ListQuery
from openrelay.api.schema.book import Body, Code, Operation, book
from openrelay.api.schema.shapes import Schema, ref
from openrelay.api.serializers import StrictSerializer
from openrelay.identity.operations import OPERATIONS, Access

BEARER, NODE = "bearer", "nodeCredential"
_WIDEST = 2**63
# How the ids in paths are called; a second one in the same path keeps its longer name.
_SHORT = {"reservation_id", "vm_id", "key_id", "token_id", "webhook_id"}
_IDS = {
    "org_id": "The organization. Its members and keys may name it; anyone else is refused.",
    "node_id": "The node.",
    "reservation_id": "The reservation.",
    "vm_id": "The VM or pod.",
    "pod_id": "The pod or VM.",
    "key_id": "The key.",
    "role_id": "A built-in role's name, such as `viewer`, or the id of one of the organization's own.",
}
_RETRY = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "1 to 255 printable ASCII characters, kept for 24 hours. The same request with the same "
    "key again gets the answer it had, and does nothing.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_REPLAYED = {
    "Idempotency-Replayed": {
        "description": "`true` on an answer that was given before.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}


def public_path(path: str) -> tuple[str, dict[str, str]]:
    """A route's path as the schema writes it, and its public parameter names by the route's own."""
    names: dict[str, str] = {}
    for name in re.findall(r"{(\w+)}", path):
        head, *tail = name.split("_")
        short = name in _SHORT and not path.startswith("/api/") and "id" not in names.values()
        names[name] = "id" if short else head + "".join(part.title() for part in tail)
    return re.sub(r"{(\w+)}", lambda found: f"{{{names[found[1]]}}}", path), names


def codes_of(operation: Operation, access: Access, path: str) -> dict[int, dict[str, Code]]:
    """The error codes of an operation by status, those that its declaration implies among them."""
    names = list(operation.errors)
    if not access.public:
        names += ["UNAUTHORIZED", "FORBIDDEN"]
        if not access.node:
            names += ["REVOKED_API_KEY", "EXPIRED_API_KEY"]
    if access.hidden or re.search(r"{(?!org_id)", path):
        names.append("NOT_FOUND")
    if operation.body or operation.query:
        names.append("VALIDATION_ERROR")
    if operation.body:
        names += ["PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE"]
    if operation.takes_idempotency_key:
        names += ["IDEMPOTENCY_KEY_IN_USE", "IDEMPOTENCY_KEY_REUSED"]
    if not access.node:
        names.append("RATE_LIMITED")
    names += ["INTERNAL_ERROR", "TRY_AGAIN", "DATABASE_UNAVAILABLE"]
    known = book().codes
    found: dict[int, dict[str, Code]] = {}
    for name in sorted(set(names), key=lambda name: (known[name].status, name)):
        found.setdefault(known[name].status, {})[name] = known[name]
    return found


def refusal(status: int, codes: dict[str, Code]) -> Schema:
    """The answer of one error status."""
    listed = "\n".join(f"- `{name}`: {code.when}" for name, code in codes.items())
    shapes = {code.shape for code in codes.values()}
    answer: Schema = {
        "description": f"{HTTPStatus(status).phrase}.\n\n{listed}",
        "content": {
            "application/json": {
                "schema": ref(shapes.pop() if len(shapes) == 1 else "Error"),
                "examples": {
                    name: {"value": {"error": code.sentence, "code": name, **code.extra}}
                    for name, code in codes.items()
                },
            }
        },
    }
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        answer["headers"] = _RETRY
    return answer


_NEXT_PAGE: Schema = {
    "Link": {
        "description": "With `limit` or `cursor`, unless this is the last page: the address of the "
        'next page, as `<address>; rel="next"`.',
        "schema": {"type": "string"},
    }
}


class OperationSchema(AutoSchema):
    """The schema of an `OperationView`: what the book says of the operation that the method names."""

    def get_operation(
        self, path: str, path_regex: str, path_prefix: str, method: str, registry: ComponentRegistry
    ) -> Schema | None:
        """The operation as OpenAPI has it; one that is not described is warned of and left out."""
        self.registry, self.path, self.method = registry, path, method.upper()
        self.path_regex, self.path_prefix = path_regex, path_prefix
        name: str = getattr(self.view, "operations", {}).get(self.method, "")
        operation = book().operations.get(name)
        access = OPERATIONS.get(name)
        if operation is None or access is None:
            warn(f"{self.method} {path}: {name} is not described in any app's api/schema.py")
            return None
        result: Schema = {
            "operationId": name,
            "summary": operation.summary,
            "description": f"{operation.description}\n\n{_needs(access)}",
            "tags": [operation.tag],
            "security": [] if access.public else [{NODE if access.node else BEARER: []}],
        }
        if parameters := self._parameters(operation):
            result["parameters"] = parameters
        if operation.body:
            body = operation.body()
            shape = self.resolve_serializer(body, "request").ref
            optional = not any(field.required for field in body.fields.values())
            content = {"schema": shape, "examples": {"example": {"value": operation.body_example}}}
            result["requestBody"] = {"content": {"application/json": content}, "required": not optional}
        result["responses"] = self._responses(operation, access)
        return result

    def _parameters(self, operation: Operation) -> list[Schema]:
        _, names = public_path(self.path)
        found: list[Schema] = [
            {
                "name": public,
                "in": "path",
                "required": True,
                "description": _IDS[name],
                "schema": {"type": "string"},
            }
            for name, public in names.items()
        ]
        if operation.query:
            notes = book().bodies[operation.query].fields
            for name, field in operation.query().fields.items():
                schema = cast(Schema, self._map_serializer_field(field, "request"))
                found.append(
                    {
                        "name": name,
                        "in": "query",
                        "required": field.required,
                        "description": notes[name],
                        "schema": self._tidied(schema, field),
                    }
                )
        return found + [_KEY] if operation.takes_idempotency_key else found

    def _responses(self, operation: Operation, access: Access) -> Schema:
        found: Schema = {}
        if operation.answer is None:
            found["204"] = {"description": "Done; there is nothing to say."}
        else:
            content = {"schema": operation.answer, "examples": {"example": {"value": operation.example}}}
            found["200"] = {"description": "Done.", "content": {"application/json": content}}
            if operation.takes_idempotency_key:
                found["200"]["headers"] = _REPLAYED
            elif operation.query is not None and issubclass(operation.query, ListQuery):
                found["200"]["headers"] = _NEXT_PAGE
        for status, codes in codes_of(operation, access, self.path).items():
            found[str(status)] = refusal(status, codes)
        return found

    def get_serializer_name(self, serializer: serializers.Serializer, direction: Any) -> str:
        """The component's name: the one that the book gives the serializer."""
        known = book().bodies.get(type(serializer))
        return known.name if known else super().get_serializer_name(serializer, direction)

    def _map_basic_serializer(self, serializer: serializers.Serializer, direction: Any) -> Schema:
        schema = cast(Schema, super()._map_basic_serializer(serializer, direction))
        known = book().bodies.get(type(serializer))
        if known is None:
            warn(f"{type(serializer).__name__} is not described in any app's api/schema.py")
            known = Body(type(serializer).__name__, "")
        for name, field in schema.get("properties", {}).items():
            if note := known.fields.get(name):
                schema["properties"][name] = {
                    **self._tidied(field, serializer.fields[name]),
                    "description": note,
                }
            else:
                warn(f"{known.name}.{name} is not described")
        schema["description"] = known.note
        if isinstance(serializer, StrictSerializer):
            schema["additionalProperties"] = False
        return schema

    def _tidied(self, schema: Schema, field: Any) -> Schema:
        """Without what only says that a number fits its column."""
        if schema.get("maximum") == _WIDEST - 1:
            del schema["maximum"]
        if schema.get("minimum") == -_WIDEST:
            del schema["minimum"]
        if schema.get("format") == "int64":
            del schema["format"]
        if schema.get("default", "") is None:
            del schema["default"]
        return schema


class _Ids(OpenApiSerializerFieldExtension):
    target_class = "openrelay.api.serializers.IdField"

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> Schema:
        return {"type": "string", "format": "uuid"}


class _Times(OpenApiSerializerFieldExtension):
    target_class = "openrelay.api.serializers.TimeField"
    match_subclasses = True

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> Schema:
        if self.target.allow_null:  # "" is open-ended too, and no time
            return {"type": "string", "pattern": r"^$|^\d{4}-\d{2}-\d{2}[Tt ]"}
        return {"type": "string", "format": "date-time"}


def _needs(access: Access) -> str:
    if access.public:
        return "No credential is needed."
    if access.node:
        return "Takes a node's own credential."
    sentence = f"Needs the action `{access.action}`"
    if access.hidden:
        return sentence + "; without it, or without a relation to the node, the answer is 404."
    if access.session_only:
        return sentence + " and a session token: an API key is refused whatever it holds."
    return sentence + "."
