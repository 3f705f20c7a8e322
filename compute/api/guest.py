"""What is known of the inside of a VM or pod: its console, and its GPUs over time."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from compute.api import serializers
from compute.api.vms import VmView
from compute.services.access.gpu_metrics import telemetry
from compute.services.lifecycle.guest_telemetry import console_of
from openrelay.core import clock
from openrelay.core.clock import rfc3339


class VmLogs(VmView):
    """The console of a VM or pod."""

    operations = {"GET": "get_vm_logs"}

    def get(self, request: Request, **_: Any) -> Response:
        """Show the tail of the console."""
        content = console_of(self.workload)
        if content is None:
            return Response({"found": False, "content": None, "message": "Nothing was written yet."})
        return Response({"found": True, "content": content})


class PodLogs(VmLogs):
    """The output of a pod or VM."""

    operations = {"GET": "get_pod_logs"}
    id_name = "pod_id"


class VmMetrics(VmView):
    """The GPUs of a VM or pod over time."""

    operations = {"GET": "get_vm_metrics"}

    def get(self, request: Request, vm_id: str) -> Response:
        """Show how busy the GPUs were, where the host can read them."""
        query = self.read_query(serializers.MetricsQuery)
        found = telemetry(self.workload, query["range"], clock.read())
        return Response(
            {
                "vmId": str(self.workload.pk),
                "range": query["range"],
                "start": rfc3339(found.start),
                "end": rfc3339(found.end),
                "stepSeconds": found.step_seconds,
                "pointCount": found.points,
                "accelerator": {
                    "class": "accelerator",
                    "status": found.status,
                    "reason": found.reason,
                    "detail": found.detail,
                },
                "gpus": [],
            }
        )
