"""OpenRelay's own paths, and the bare ones beside them, behind the same middleware."""

from django.urls import path

from bench import bare, bare_vm
from openrelay import urls

handler400, handler403, handler404, handler500 = (
    urls.handler400,
    urls.handler403,
    urls.handler404,
    urls.handler500,
)
urlpatterns = [
    path("v1/bench/reservations", bare.BareReservation.as_view()),
    path("v1/bench/vms", bare_vm.BareVm.as_view()),
    path("v1/bench/locked-vms", bare_vm.LockingVm.as_view()),
    path("v1/bench/anonymous", bare.Anonymous.as_view()),
    path("v1/bench/authenticated", bare.Authenticated.as_view()),
    *urls.urlpatterns,
]
