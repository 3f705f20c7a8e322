"""An organization and the people in it."""

from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from openrelay.api.lists import ListQuery, answer_list
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

    def get(self, request: Request, org_id: str) -> HttpResponseBase:
        """List the people in the organization and their roles, in the order of their invitations."""
        places = Membership.objects.of_organization(self.caller.organization_id)
        return answer_list(
            places.select_related("user", "custom_role"),
            lambda rows: [member(place) for place in rows],
            request=request,
            order=("invited_at", "id"),
            **self.read_query(ListQuery),
        )
