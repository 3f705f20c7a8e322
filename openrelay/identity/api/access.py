"""What can be granted, what someone may do, and why."""

import uuid
from typing import cast

from rest_framework.request import Request
from rest_framework.response import Response

from openrelay.api.views import OperationView
from openrelay.core.errors import Invalid
from openrelay.identity.api.presenters import catalog, key_restrictions, present, role_restrictions
from openrelay.identity.api.serializers import AccessCheckBody, EffectiveQuery
from openrelay.identity.permissions import permissions_held
from openrelay.identity.services.access import (
    API_KEY,
    MEMBER,
    Circumstances,
    check_access,
    effective_access,
    role_is_held,
)


class CatalogView(OperationView):
    """`/v1/authz/catalog`"""

    operations = {"GET": "get_permission_catalog"}

    def get(self, request: Request) -> Response:
        """List the permissions with their actions, the built-in roles and the templates for keys."""
        held = role_is_held(self.caller.organization_id, "inference")
        return Response(catalog(list_inference=held))


class EffectiveView(OperationView):
    """`/v1/authz/effective`"""

    operations = {"GET": "get_effective_access"}

    def get(self, request: Request) -> Response:
        """Show every action that the caller, or another member or key of its organization, may do now."""
        query = self.read_query(EffectiveQuery)
        caller = self.caller
        own_type, own_id = (MEMBER, caller.user_id) if caller.user_id else (API_KEY, caller.key_id)
        if ("principal_type" in query) != ("principal_id" in query):
            raise Invalid("principalType and principalId go together. Give both, or neither for yourself.")
        principal_type = query.get("principal_type", own_type)
        principal_id = cast(uuid.UUID, query.get("principal_id", own_id))
        if (principal_type, principal_id) != (own_type, own_id):
            caller.require("policy.read")
        found = effective_access(caller, principal_type, principal_id)
        key = found.key
        return Response(
            present(
                principalType=found.principal_type,
                principalId=str(found.principal_id),
                actions=sorted(found.actions),
                permissions=permissions_held(found.actions),
                allModels=found.models is None,
                models=found.models,
                active=found.active,
                keyKind=key.kind if key else None,
                restrictions=key_restrictions(key) if key else role_restrictions(found.role),
                roleId=found.role.id if found.role else None,
                roleName=found.role.name if found.role else None,
            )
        )


class CheckView(OperationView):
    """`/v1/authz/check`"""

    operations = {"POST": "check_access"}

    def post(self, request: Request) -> Response:
        """Judge whether a member or key may do an action, as from an address, and say what decides."""
        body = self.read(AccessCheckBody)
        decision = check_access(
            self.caller,
            principal_type=body["principal_type"],
            principal_id=body["principal_id"],
            action=body["action"],
            under=Circumstances(
                source_ip=body.get("source_ip", self.caller.actor.source_ip),
                endpoint=body.get("endpoint_id"),
                model=body.get("model"),
            ),
        )
        return Response(
            present(
                allow=decision.allow,
                message=decision.message,
                permission=decision.action,
                policies=[{"id": policy, "source": source} for policy, source in decision.policies],
                deniedBy=decision.denied_by,
            )
        )
