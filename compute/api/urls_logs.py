"""Routes of compute under `/api`."""

from django.urls import path

from compute.api import guest

urlpatterns = [
    path("nomad/vms/<str:vm_id>/logs", guest.VmLogs.as_view()),
    path("nomad/pods/<str:pod_id>/logs", guest.PodLogs.as_view()),
]
