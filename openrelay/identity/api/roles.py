"""The roles of the caller's organization, built-in and its own."""

from typing import Any

from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from openrelay.api.views import OperationView
from openrelay.core.errors import Invalid, NotFound
from openrelay.core.ids import parse_id
from openrelay.identity.api.presenters import builtin_role, custom_role, custom_role_whole
from openrelay.identity.api.serializers import CreateRoleBody, UpdateRoleBody
from openrelay.identity.models import Membership, Role
from openrelay.identity.permissions import BUILTIN_ROLES
from openrelay.identity.services.roles import Terms, create_role, delete_role, update_role


class RolesView(OperationView):
    """`/v1/roles`"""

    operations = {"GET": "list_roles", "POST": "create_role"}

    def get(self, request: Request) -> Response:
        """List the built-in roles, then the organization's own by name, with how many people have each."""
        organization_id, platform_ops = self.caller.organization_id, self.caller.is_operator
        holders = Membership.objects.holders(organization_id)
        own = Role.objects.of_organization(organization_id)
        return Response(
            [
                builtin_role(role, holders.get(role.id, 0), platform_ops=platform_ops)
                for role in BUILTIN_ROLES.values()
                if role.id != "inference" or role.id in holders
            ]
            + [custom_role(role, holders.get(str(role.id), 0)) for role in own]
        )

    def post(self, request: Request) -> Response:
        """Make a role that gives no more than the person who makes it holds."""
        role = create_role(caller=self.caller, terms=Terms(**self.read(CreateRoleBody)))
        return Response(custom_role_whole(role, 0, platform_ops=self.caller.is_operator))


class RoleView(OperationView):
    """`/v1/roles/{roleId}`"""

    operations = {"GET": "get_role", "PATCH": "update_role", "DELETE": "delete_role"}

    def get(self, request: Request, role_id: str) -> Response:
        """Show one role."""
        holders = Membership.objects.holders(self.caller.organization_id)
        if role_id in BUILTIN_ROLES:
            return Response(
                builtin_role(
                    BUILTIN_ROLES[role_id], holders.get(role_id, 0), platform_ops=self.caller.is_operator
                )
            )
        wanted = parse_id(role_id)
        role = (
            Role.objects.of_organization(self.caller.organization_id).filter(pk=wanted).first()
            if wanted
            else None
        )
        if role is None:
            raise NotFound()
        return self._whole(role, holders)

    def patch(self, request: Request, role_id: str) -> Response:
        """Change what one of the organization's own roles says; it counts at once for all who have it."""
        changes = self.read(UpdateRoleBody)
        if not changes:
            raise Invalid("Nothing to change. Give at least one of the role's fields.")
        role = update_role(caller=self.caller, role_id=role_id, changes=changes)
        return self._whole(role, Membership.objects.holders(self.caller.organization_id))

    def delete(self, request: Request, role_id: str) -> Response:
        """Delete one of the organization's own roles that nobody has."""
        delete_role(caller=self.caller, role_id=role_id)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _whole(self, role: Role, holders: dict[str, int]) -> Response:
        answer: dict[str, Any] = custom_role_whole(
            role, holders.get(str(role.id), 0), platform_ops=self.caller.is_operator
        )
        return Response(answer)
