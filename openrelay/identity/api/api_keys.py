"""An organization's API keys."""

import uuid

from django.http.response import HttpResponseBase
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from openrelay.api.lists import ListQuery, answer_list
from openrelay.api.views import OrgView
from openrelay.core import clock
from openrelay.core.errors import Invalid, NotFound
from openrelay.core.ids import parse_id
from openrelay.identity.api.presenters import api_key_created, api_key_summary
from openrelay.identity.api.serializers import CreateApiKeyBody, UpdateApiKeyBody
from openrelay.identity.models import ApiKey
from openrelay.identity.services.keys import Budget, Restrictions, create_key, edit_budget, revoke_key


class ApiKeysView(OrgView):
    """`/v1/orgs/{orgId}/api-keys`"""

    operations = {"GET": "list_org_api_keys"}

    def get(self, request: Request, org_id: str) -> HttpResponseBase:
        """List the organization's keys, newest first; revoked and expired ones stay listed."""
        keys = ApiKey.objects.of_organization(self.caller.organization_id)
        at = clock.read()
        return answer_list(
            keys,
            lambda rows: [api_key_summary(key, at) for key in rows],
            request=request,
            **self.read_query(ListQuery),
        )


class CreateApiKeyView(OrgView):
    """`/v1/orgs/{orgId}/api-keys/create`"""

    operations = {"POST": "create_org_api_key"}

    def post(self, request: Request, org_id: str) -> Response:
        """Make a key that holds no more than the person who makes it; its secret is shown this once."""
        body = self.read(CreateApiKeyBody)
        if "service_account_id" in body:
            raise Invalid("serviceAccountId is not supported. Leave it out: the key is the organization's.")
        if body.get("kind") == "personal":
            raise Invalid("kind personal is not supported. Leave it out: the key is the organization's.")
        if body.get("ephemeral"):
            raise Invalid("ephemeral is not supported. Use expiresInSeconds for a key that ends soon.")
        restrictions = body.get("restrictions", {})
        permissions = body.get("permissions")
        if "permissions" in restrictions:
            if permissions is not None and set(permissions) != set(restrictions["permissions"]):
                raise Invalid("permissions and restrictions.permissions differ. Give the ceiling once.")
            permissions = restrictions["permissions"]
        budget = body.get("budget")
        key, secret = create_key(
            caller=self.caller,
            name=body["name"],
            note=body.get("note", ""),
            permissions=permissions,
            template=body.get("template"),
            scopes=body.get("scopes", ()),
            restrictions=Restrictions(
                ip_ranges=restrictions.get("ip_ranges", ()),
                endpoints=restrictions.get("endpoints", ()),
                models=restrictions.get("models", ()),
            ),
            budget=Budget(**budget) if budget else None,
            expires_in_seconds=body.get("expires_in_seconds"),
        )
        return Response(api_key_created(key, secret))


class ApiKeyView(OrgView):
    """`/v1/orgs/{orgId}/api-keys/{id}`"""

    operations = {"PATCH": "update_org_api_key", "DELETE": "revoke_org_api_key"}

    def patch(self, request: Request, org_id: str, key_id: str) -> Response:
        """Change or remove what the key may spend; everything else about a key is fixed."""
        body = self.read(UpdateApiKeyBody)
        for fixed in ("name", "note", "restrictions"):
            if fixed in body:
                raise Invalid(f"{fixed} is fixed when a key is made. Make a new key and revoke this one.")
        if not body.get("budget"):
            raise Invalid("budget is required: give limitNanoUsd, period or both.")
        key = edit_budget(caller=self.caller, key_id=self._key_id(key_id), budget=Budget(**body["budget"]))
        return Response(api_key_summary(key, clock.read()))

    def delete(self, request: Request, org_id: str, key_id: str) -> Response:
        """Revoke the key now; repeating it changes nothing."""
        revoke_key(caller=self.caller, key_id=self._key_id(key_id))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _key_id(self, text: str) -> uuid.UUID:
        key_id = parse_id(text)
        if key_id is None:
            raise NotFound()
        return key_id
