"""The last touch on the generated schema: shapes, tags, security, and the paths that are no API views."""

from typing import Any

from openrelay.api.schema.auto import BEARER, NODE, public_path
from openrelay.api.schema.book import book
from openrelay.api.schema.shapes import Schema


def complete(result: Schema, **_: Any) -> Schema:
    """The schema with everything that the book has beside operations."""
    known = book()
    paths = {public_path(path)[0]: item for path, item in result["paths"].items()}
    result["paths"] = dict(sorted({**paths, **known.paths}.items()))
    components = result.setdefault("components", {})
    components["schemas"] = dict(sorted({**components.get("schemas", {}), **known.shapes}.items()))
    components["securitySchemes"] = {
        BEARER: {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key (`or_…`), or the session token of a signed-in person (`ors_…`).",
        },
        NODE: {
            "type": "http",
            "scheme": "bearer",
            "description": "A node's own credential (`onc_…`), for the agent on it.",
        },
    }
    result["tags"] = [{"name": name, "description": note} for name, note in known.tags.items()]
    return result
