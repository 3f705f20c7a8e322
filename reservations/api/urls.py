"""Routes of reservations."""

from django.urls import path

from reservations.api import provider, views

_node = "nodes/<str:node_id>/reservations"
_provider = "orgs/<str:org_id>/provider"

urlpatterns = [
    path(_node, views.NodeReservations.as_view()),
    path(f"{_node}/units", views.NodeUnits.as_view()),
    path(f"{_node}/<str:reservation_id>", views.OneReservation.as_view()),
    path(f"{_node}/<str:reservation_id>/cancel", views.CancelReservation.as_view()),
    path(f"{_node}/<str:reservation_id>/release", views.ReleaseUnits.as_view()),
    path(f"{_node}/<str:reservation_id>/reclaim", views.ReclaimUnits.as_view()),
    path("orgs/<str:org_id>/reservations", views.OrgReservations.as_view()),
    path(f"{_provider}/nodes", provider.ProviderNodes.as_view()),
    path(f"{_provider}/nodes/<str:node_id>", provider.OneProviderNode.as_view()),
    path(f"{_provider}/nodes/<str:node_id>/offboard", provider.OffboardNode.as_view()),
    path(f"{_provider}/nodes/<str:node_id>/reclaim-spot", views.ReclaimSpot.as_view()),
    path(f"{_provider}/stats", provider.ProviderStats.as_view()),
    path(f"{_provider}/status", provider.ProviderStatus.as_view()),
    path(f"{_provider}/apply", provider.ProviderApply.as_view()),
]
