"""Paths of identity."""

from django.urls import path

from openrelay.identity.api.access import CatalogView, CheckView, EffectiveView
from openrelay.identity.api.account import MeView, WhoamiView
from openrelay.identity.api.api_keys import ApiKeysView, ApiKeyView, CreateApiKeyView
from openrelay.identity.api.organizations import MembersView
from openrelay.identity.api.roles import RolesView, RoleView

urlpatterns = [
    path("whoami", WhoamiView.as_view()),
    path("me", MeView.as_view()),
    path("authz/catalog", CatalogView.as_view()),
    path("authz/effective", EffectiveView.as_view()),
    path("authz/check", CheckView.as_view()),
    path("roles", RolesView.as_view()),
    path("roles/<str:role_id>", RoleView.as_view()),
    path("orgs/<str:org_id>/members", MembersView.as_view()),
    path("orgs/<str:org_id>/api-keys", ApiKeysView.as_view()),
    path("orgs/<str:org_id>/api-keys/create", CreateApiKeyView.as_view()),
    path("orgs/<str:org_id>/api-keys/<str:key_id>", ApiKeyView.as_view()),
]
