"""Every path, by the app that serves it."""

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from openrelay import health
from openrelay.api import handler
from openrelay.api.schema import views as schema
from openrelay.console.passwords import ChangePassword
from openrelay.console.searching import search
from openrelay.console.signing_in import SignIn

# What is asked most and must be quickest comes first.
v1 = [
    path("", include("reservations.api.urls")),
    path("", include("compute.api.urls")),
    path("", include("openrelay.identity.api.urls")),
    path("", include("openrelay.audit.api.urls")),
]

urlpatterns = [
    path("livez", health.livez),
    path("readyz", health.readyz),
    path("v1/", include(v1)),
    path("api/", include("compute.api.urls_logs")),
    re_path(r"^openapi\.(?P<form>json|yaml)$", schema.openapi, name="openapi"),
    path("docs", schema.docs, name="docs"),
    path("", RedirectView.as_view(pattern_name="admin:index")),
    # Instead of the admin's own, which count no attempts and note nothing.
    path("console/login/", SignIn.as_view()),
    path("console/password_change/", admin.site.admin_view(ChangePassword.as_view())),
    # The theme's own answers 500 to a page that is no number.
    path("console/search/", admin.site.admin_view(search)),
    # No object has a page outside of the console, and the admin's own answers 500 to an id that is no UUID.
    path("console/r/<path:rest>", handler.not_found),
    path("console/", admin.site.urls),
    # What is not above is not there, and on the API that is said in JSON, for any method.
    re_path(r"^(?:v1|api)(?:/|$)", handler.not_found),
]

handler400 = handler.bad_request
handler403 = handler.permission_denied
handler404 = handler.not_found
handler500 = handler.server_error
