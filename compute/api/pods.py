"""The pod operations."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from compute.api import pods_serializers, presenters
from compute.models import Workload
from compute.services.fleet.pod_counts import PodCapacity, pod_capacity
from compute.services.requests.create_pod import PodRequest, create_pod
from openrelay.api.pagination import paginate
from openrelay.api.views import OperationView


class Pods(OperationView):
    """The pods of the caller's organization."""

    operations = {"GET": "list_pods", "POST": "create_pod"}

    def get(self, request: Request) -> Response:
        """List the organization's live pods, the newest first."""
        query = self.read_query(pods_serializers.PodQuery)
        rows = Workload.objects.visible_to(self.caller).pods().active().with_guest()
        page, cursor = paginate(rows.select_related("gpu_model"), **query)
        answer = {"items": [presenters.vm(row) for row in page]}
        return Response({**answer, "nextCursor": cursor} if cursor else answer)

    def post(self, request: Request) -> Response:
        """Create a pod and claim GPUs for it."""
        guard = self.guard(presenters.vm)
        data = self.read(pods_serializers.CreatePod)
        return guard.response(create_pod(caller=self.caller, request=PodRequest(**data), guard=guard))


class PodsCapacity(OperationView):
    """How many pods could be created now."""

    operations = {"GET": "list_pod_capacity"}

    def get(self, request: Request) -> Response:
        """Show, for each GPU model, the units that pods could have now."""
        return Response({"items": [_capacity(row) for row in pod_capacity(self.caller.organization_id)]})


def _capacity(row: PodCapacity) -> dict[str, Any]:
    """A PodCapacityItem. There is one class; the rates of others are kept for clients that read them."""
    return {
        "gpuModelId": str(row.model.pk),
        "name": row.model.name,
        "manufacturer": row.model.manufacturer,
        "vramGb": row.model.vram_gb,
        "freeUnits": row.free_units,
        "totalUnits": row.total_units,
        "maxGpuCount": row.max_gpu_count,
        "rateOnDemandCentsPerHour": row.cents_per_gpu_hour,
        "rateReservedCentsPerHour": row.cents_per_gpu_hour,
        "rateInterruptibleCentsPerHour": row.cents_per_gpu_hour,
    }
