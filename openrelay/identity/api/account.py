"""Who the caller is."""

import uuid
from typing import Any, cast

from rest_framework.request import Request
from rest_framework.response import Response

from openrelay.api.views import OperationView
from openrelay.core import clock
from openrelay.core.clock import rfc3339
from openrelay.identity.api.presenters import (
    key_budget,
    key_restrictions,
    org_membership,
    present,
    role_restrictions,
)
from openrelay.identity.models import ApiKey, User


class WhoamiView(OperationView):
    """`/v1/whoami`"""

    operations = {"GET": "whoami"}

    def get(self, request: Request) -> Response:
        """Say who the credential stands for, in which organization, and every action it may do there."""
        caller = self.caller
        common = {
            "organizationId": str(caller.organization_id),
            "organizationName": caller.organization_name,
            "principalType": caller.kind,
            "permissions": sorted(caller.actions),
        }
        return Response(common | (self._key() if caller.kind == "api_key" else self._person()))

    def _key(self) -> dict[str, Any]:
        key = ApiKey.objects.annotate(at=clock.Now()).get(pk=cast(uuid.UUID, self.caller.key_id))
        left = (key.expires_at - key.at).days if key.expires_at else None
        return present(
            key=present(
                id=str(key.id),
                name=key.name,
                prefix=key.prefix,
                expiresAt=rfc3339(key.expires_at) if key.expires_at else None,
                expiresInDays=None if left is None else max(left, 0),
                budget=key_budget(key, key.at),
            ),
            keyKind=key.kind,
            restrictions=key_restrictions(key),
            scopes=key.scopes,
        )

    def _person(self) -> dict[str, Any]:
        caller = self.caller
        user = User.objects.get(pk=cast(uuid.UUID, caller.user_id))
        return present(
            userId=str(user.id),
            email=user.email,
            role=caller.role,
            roleName=caller.held.name if caller.held else None,
            restrictions=role_restrictions(caller.held),
            availableOrgs=[org_membership(place) for place in caller.places],
            platformAdmin=True if caller.operates("reservation.manage") else None,
        )


class MeView(OperationView):
    """`/v1/me`"""

    operations = {"GET": "get_me"}

    def get(self, request: Request) -> Response:
        """Show the signed-in person and the organizations they are a member of."""
        caller = self.caller
        user = User.objects.get(pk=cast(uuid.UUID, caller.user_id))
        return Response(
            {
                "user": present(
                    id=str(user.id),
                    email=user.email,
                    fullName=user.full_name or None,
                    defaultOrganizationId=str(caller.organization_id),
                ),
                "organizations": [org_membership(place) for place in caller.places],
            }
        )
