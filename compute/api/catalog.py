"""What there is to have: GPU models, and how much of each now."""

from rest_framework.request import Request
from rest_framework.response import Response

from compute.api import presenters
from compute.services.availability import availability
from nodes.models import GpuModel
from openrelay.api.views import OperationView


class GpuModels(OperationView):
    """The catalogue of GPUs."""

    operations = {"GET": "list_gpu_models"}

    def get(self, request: Request) -> Response:
        """List the GPU models, by name."""
        return Response([presenters.gpu_model(model) for model in GpuModel.objects.order_by("name", "pk")])


class GpuAvailability(OperationView):
    """What the caller's organization could place now."""

    operations = {"GET": "get_gpu_availability"}

    def get(self, request: Request) -> Response:
        """Show, for each GPU model, how many GPUs could be had for VMs now and in which counts."""
        found = availability(self.caller.organization_id)
        return Response([presenters.availability(model) for model in found])
