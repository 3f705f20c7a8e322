"""`/openapi.json`, `/openapi.yaml` and `/docs`."""

import functools

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer2, OpenApiYamlRenderer2

from openrelay.api.handler import MethodNotAllowed, answer, limited_by_address

# Swagger UI sets style attributes from its code, and draws its icons from data: addresses.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@functools.cache
def schema(form: str) -> bytes:
    """The schema as `form` ("json" or "yaml"), made once a process: it is the same for everyone."""
    renderer = OpenApiJsonRenderer2() if form == "json" else OpenApiYamlRenderer2()
    document = SchemaGenerator().get_schema(public=True)
    document["servers"] = [{"url": settings.BASE_URL, "description": "This installation."}]
    made: bytes = renderer.render(document)
    return made


@limited_by_address
def openapi(request: HttpRequest, form: str) -> HttpResponse:
    """The schema; `form` is "json" or "yaml"."""
    if request.method not in ("GET", "HEAD"):
        refusal = MethodNotAllowed("This path takes GET, HEAD.")
        refusal.headers["Allow"] = "GET, HEAD"
        return answer(refusal)
    return HttpResponse(schema(form), content_type=f"application/{form}")


@limited_by_address
@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """The schema for people to read and try; everything it loads comes from this very host."""
    response = render(request, "docs.html")
    response.headers["Content-Security-Policy"] = _POLICY
    return response
