"""An organization as a whole: showing it, and deleting it with all that it runs."""

from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from openrelay.identity.api import organizations
from reservations.services.org_deletion import delete_organization


class OrganizationView(organizations.OrganizationView):
    """`/v1/orgs/{orgId}`"""

    operations = {**organizations.OrganizationView.operations, "DELETE": "delete_org"}

    def delete(self, request: Request, org_id: str) -> Response:
        """Delete the organization: nobody has access to it any more, and what runs for it ends."""
        delete_organization(caller=self.caller)
        return Response(status=status.HTTP_204_NO_CONTENT)
