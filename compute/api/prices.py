"""What there is to start from, where, and at which price."""

from rest_framework.request import Request
from rest_framework.response import Response

from compute.api import present_money
from compute.domain.host_shares import MAX_DISK_GB, MIN_DISK_GB
from compute.models import ResourceSize
from compute.services.billing import prices
from compute.services.requests import templates
from nodes.models import Location
from openrelay.api.views import OperationView
from openrelay.core import clock


class Locations(OperationView):
    """Where nodes stand."""

    operations = {"GET": "list_locations"}

    def get(self, request: Request) -> Response:
        """List the locations, by name."""
        return Response([present_money.location(row) for row in Location.objects.order_by("name", "pk")])


class VmTemplates(OperationView):
    """What VMs may start from."""

    operations = {"GET": "list_vm_templates"}

    def get(self, request: Request) -> Response:
        """List the templates, in their order."""
        return Response([present_money.template(row) for row in templates.offered()])


class Pricing(OperationView):
    """What the caller's organization pays."""

    operations = {"GET": "get_pricing"}

    def get(self, request: Request) -> Response:
        """Show the price of each GPU at each tier, of each size without GPUs, and the bounds of a disk."""
        return Response(
            {
                "gpu": [present_money.gpu_price(row) for row in prices.listed(self.caller.organization_id)],
                "cpu": [present_money.cpu_price(row) for row in ResourceSize.objects.all()],
                "vmDisk": {"minGb": MIN_DISK_GB, "maxGb": MAX_DISK_GB},
            }
        )


class PublicPricing(OperationView):
    """What anybody pays."""

    operations = {"GET": "get_public_pricing"}

    def get(self, request: Request) -> Response:
        """Show the published rates of each GPU model that has both."""
        shown = [present_money.public_price(model, rates) for model, rates in prices.published()]
        return Response({"generatedAt": clock.rfc3339(clock.read()), "gpu": shown, "model": []})
