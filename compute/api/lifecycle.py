"""The operations that change a VM or pod between its creation and its end."""

from rest_framework.request import Request
from rest_framework.response import Response

from compute.api import presenters, serializers
from compute.api.vms import VmView
from compute.services.lifecycle.stop import stop
from compute.services.lifecycle.visibility import set_visibility
from compute.services.requests.resize import resize_disk
from compute.services.requests.restart import reboot, restart


class StopVm(VmView):
    """Where a VM or pod is stopped."""

    operations = {"POST": "stop_vm"}

    def post(self, request: Request, vm_id: str) -> Response:
        """Stop a VM or pod: it gives up its GPUs and keeps its disk."""
        return Response(presenters.vm(stop(caller=self.caller, workload_id=self.workload.pk)))


class RestartVm(VmView):
    """Where a VM or pod is restarted."""

    operations = {"POST": "restart_vm"}

    def post(self, request: Request, vm_id: str) -> Response:
        """Reboot a running VM or pod in place, or start a stopped or failed one again."""
        return Response(presenters.vm(restart(caller=self.caller, workload_id=self.workload.pk)))


class RebootVm(VmView):
    """Where a running VM or pod is rebooted."""

    operations = {"POST": "reboot_vm"}

    def post(self, request: Request, vm_id: str) -> Response:
        """Reboot a running VM or pod in place."""
        reboot(caller=self.caller, workload_id=self.workload.pk)
        return Response(status=204)


class ResizeVmDisk(VmView):
    """Where a stopped VM's disk is grown."""

    operations = {"POST": "resize_vm_disk"}

    def post(self, request: Request, vm_id: str) -> Response:
        """Grow the disk of a stopped VM."""
        data = self.read(serializers.ResizeDisk)
        resize_disk(caller=self.caller, workload_id=self.workload.pk, **data)
        return Response(status=204)


class VmVisibility(VmView):
    """Where the endpoint of a VM or pod is opened or closed."""

    operations = {"POST": "set_vm_visibility"}

    def post(self, request: Request, vm_id: str) -> Response:
        """Say whether everyone reaches the endpoint."""
        data = self.read(serializers.SetVisibility)
        changed = set_visibility(caller=self.caller, workload_id=self.workload.pk, **data)
        return Response(presenters.vm(changed))
