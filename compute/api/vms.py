"""The VM operations."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from compute.api import present_detail, presenters, serializers
from compute.api.filters import filtered
from compute.models import Workload
from compute.services.access.workload_detail import detail
from compute.services.lifecycle.terminate import terminate
from compute.services.lifecycle.workload_lock import find
from compute.services.requests.create_vm import create_vm
from compute.services.requests.vm_request import VmRequest
from openrelay.api.pagination import paginate
from openrelay.api.views import OperationView, OrgView
from openrelay.core.ids import parse_id
from openrelay.identity.caller import Caller

NOWHERE = UUID(int=0)
_FILTERS = ("status", "tier", "nodeId", "gpuModelId", "name")
_REQUEST = (
    "name",
    "ssh_key_ids",
    "gpu_count",
    "gpu_model_id",
    "node_id",
    "tier",
    "guest_mem_mb",
    "disk_size_gb",
    "resource_size",
    "template_id",
    "preferred_regions",
    "allow_fallback",
)


class CreateVm(OrgView):
    """Where VMs are made."""

    operations = {"POST": "create_vm"}

    def post(self, request: Request, org_id: str) -> Response:
        """Create a VM and claim GPUs for it."""
        guard = self.guard(presenters.vm)
        data = self.read(serializers.CreateVm)
        asked = {name: data.pop(name) for name in _REQUEST if name in data}
        made = create_vm(caller=self.caller, request=VmRequest(**asked, details=data), guard=guard)
        return guard.response(made)


class OrgVms(OrgView):
    """The VMs of an organization."""

    operations = {"GET": "list_org_vms"}

    def get(self, request: Request, org_id: str) -> Response:
        """List the organization's VMs, the newest first."""
        query = self.read_query(serializers.VmQuery)
        rows = Workload.objects.visible_to(self.caller).vms().with_guest().select_related("gpu_model")
        if query["active_only"]:
            rows = rows.active()
        given = {name: query[name] for name in _FILTERS if name in query}
        page, cursor = paginate(
            filtered(rows, given) if given else rows, limit=query["limit"], cursor=query["cursor"]
        )
        answer = {"items": [presenters.vm(row) for row in page]}
        return Response({**answer, "nextCursor": cursor} if cursor else answer)


class VmView(OperationView):
    """A path under `/v1/vms/{id}`: another organization's VM is not there, whatever the caller may do."""

    workload: Workload
    id_name = "vm_id"

    def enter(self, caller: Caller) -> Caller:
        self.workload = find(caller, parse_id(self.kwargs[self.id_name]) or NOWHERE)
        return caller


class OneVm(VmView):
    """One VM or pod."""

    operations = {"GET": "get_vm"}

    def get(self, request: Request, vm_id: str) -> Response:
        """Show a VM or pod."""
        return Response(presenters.vm(self.workload))


class VmDetail(VmView):
    """One VM or pod in full."""

    operations = {"GET": "get_vm_detail"}

    def get(self, request: Request, vm_id: str) -> Response:
        """Show all that is known of a VM or pod."""
        return Response(present_detail.detail(detail(self.caller, self.workload.pk)))


class TerminateVm(VmView):
    """The end of one VM or pod."""

    operations = {"POST": "terminate_vm"}

    def post(self, request: Request, vm_id: str) -> Response:
        """Terminate a VM or pod for good. Safe to repeat."""
        return Response(presenters.vm(terminate(caller=self.caller, workload_id=self.workload.pk)))
