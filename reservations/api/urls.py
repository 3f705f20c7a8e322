"""Routes of reservations."""

from django.urls import include, path

from reservations.api import organizations, provider, views

# Grouped by how they begin: a path is compared with its own group alone.
_node = [
    path("", views.NodeReservations.as_view()),
    path("/units", views.NodeUnits.as_view()),
    path("/<str:reservation_id>", views.OneReservation.as_view()),
    path("/<str:reservation_id>/cancel", views.CancelReservation.as_view()),
    path("/<str:reservation_id>/release", views.ReleaseUnits.as_view()),
    path("/<str:reservation_id>/reclaim", views.ReclaimUnits.as_view()),
]
_provider = [
    path("nodes", provider.ProviderNodes.as_view()),
    path("nodes/<str:node_id>", provider.OneProviderNode.as_view()),
    path("nodes/<str:node_id>/offboard", provider.OffboardNode.as_view()),
    path("nodes/<str:node_id>/reclaim-spot", views.ReclaimSpot.as_view()),
    path("stats", provider.ProviderStats.as_view()),
    path("status", provider.ProviderStatus.as_view()),
    path("apply", provider.ProviderApply.as_view()),
]
urlpatterns = [
    path("nodes/<str:node_id>/reservations", include(_node)),
    path("orgs/<str:org_id>/reservations", views.OrgReservations.as_view()),
    path("orgs/<str:org_id>/provider/", include(_provider)),
    # Shown by identity; deleting it takes a look at everything that it has a part in.
    path("orgs/<str:org_id>", organizations.OrganizationView.as_view()),
]
