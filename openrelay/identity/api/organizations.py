"""An organization and the people in it."""

from rest_framework.request import Request
from rest_framework.response import Response

from openrelay.api.views import OrgView
from openrelay.identity.api.presenters import member, organization
from openrelay.identity.models import Membership, Organization


class OrganizationView(OrgView):
    """`/v1/orgs/{orgId}`"""

    operations = {"GET": "get_org"}

    def get(self, request: Request, org_id: str) -> Response:
        """Show the organization."""
        return Response(organization(Organization.objects.get(pk=self.caller.organization_id)))


class MembersView(OrgView):
    """`/v1/orgs/{orgId}/members`"""

    operations = {"GET": "list_org_members"}

    def get(self, request: Request, org_id: str) -> Response:
        """List the people in the organization and their roles, who came first first."""
        places = Membership.objects.of_organization(self.caller.organization_id)
        return Response([member(place) for place in places.select_related("user", "custom_role")])
