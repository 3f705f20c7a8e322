"""What a VM or pod spends."""

from rest_framework.request import Request
from rest_framework.response import Response

from compute.api import present_money
from compute.api.vms import VmView
from compute.services.billing.burn import burn


class VmBurn(VmView):
    """The money of one VM or pod."""

    operations = {"GET": "get_vm_burn"}

    def get(self, request: Request, vm_id: str) -> Response:
        """Show what the workload costs now, and how long its organization can go on."""
        return Response(present_money.burn(burn(self.workload)))
