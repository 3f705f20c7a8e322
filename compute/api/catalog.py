"""What there is to have: GPU models, and how much of each now."""

from dataclasses import dataclass

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from compute.api import present_availability, presenters
from compute.services.fleet.availability import Availability, availability
from nodes.models import GpuModel
from openrelay.api import runs
from openrelay.api.views import OperationView

# A smaller answer is sent as it is, a larger one compressed for who takes that.
SMALL = 16 * 1024
# Who does not gets a larger one than this piece by piece.
LARGE = 1024 * 1024
_JSON = "application/json"


class GpuModels(OperationView):
    """The catalogue of GPUs."""

    operations = {"GET": "list_gpu_models"}

    def get(self, request: Request) -> Response:
        """List the GPU models, by name."""
        return Response([presenters.gpu_model(model) for model in GpuModel.objects.order_by("name", "pk")])


@dataclass(frozen=True, slots=True)
class _Written:
    """An answer as bytes: whole when it is small, else compressed, and its parts."""

    plain: bytes | None
    gzip: bytes | None
    parts: list[runs.Part]
    length: int


class GpuAvailability(OperationView):
    """What the caller's organization could place now."""

    operations = {"GET": "get_gpu_availability"}

    def get(self, request: Request) -> HttpResponseBase:
        """Show, for each GPU model, how many GPUs could be had for VMs now and in which counts."""
        found = availability(self.caller.organization_id)
        if found.kept is None:
            found.kept = _write(found)
        return _answer(found.kept, request.META.get("HTTP_ACCEPT_ENCODING", ""))


def _write(found: Availability) -> _Written:
    parts = present_availability.availability(found.models)
    size = runs.length(parts)
    if size <= SMALL:
        return _Written(b"".join(runs.chunks(parts)), None, parts, size)
    return _Written(None, runs.gzipped(parts), parts, size)


def _answer(written: _Written, accepted: str) -> HttpResponseBase:
    answer: HttpResponseBase
    if written.plain is not None:
        return HttpResponse(written.plain, content_type=_JSON)
    if written.gzip is not None and _takes_gzip(accepted):
        answer = HttpResponse(written.gzip, content_type=_JSON)
        answer.headers["Content-Encoding"] = "gzip"
    elif written.length <= LARGE:
        answer = HttpResponse(b"".join(runs.chunks(written.parts)), content_type=_JSON)
    else:
        answer = StreamingHttpResponse(runs.chunks(written.parts), content_type=_JSON)
        answer.headers["Content-Length"] = str(written.length)
    answer.headers["Vary"] = "Accept-Encoding"
    return answer


def _takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header has gzip in it and does not rule it out."""
    for entry in accepted.lower().split(","):
        name, _, weight = entry.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
