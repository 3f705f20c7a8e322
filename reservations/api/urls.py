"""Routes of reservations."""

from django.urls import path

from reservations.api import views

_node = "nodes/<str:node_id>/reservations"

urlpatterns = [
    path(_node, views.NodeReservations.as_view()),
    path(f"{_node}/units", views.NodeUnits.as_view()),
    path(f"{_node}/<str:reservation_id>", views.OneReservation.as_view()),
    path(f"{_node}/<str:reservation_id>/cancel", views.CancelReservation.as_view()),
    path(f"{_node}/<str:reservation_id>/release", views.ReleaseUnits.as_view()),
    path(f"{_node}/<str:reservation_id>/reclaim", views.ReclaimUnits.as_view()),
    path("orgs/<str:org_id>/reservations", views.OrgReservations.as_view()),
    path("orgs/<str:org_id>/provider/nodes/<str:node_id>/reclaim-spot", views.ReclaimSpot.as_view()),
]
