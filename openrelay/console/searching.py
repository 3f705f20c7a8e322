"""The console's search over its menu: the page number is checked before the admin theme reads it."""

from django.contrib import admin
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase


def search(request: HttpRequest) -> HttpResponseBase:
    """Answer the search over the menu. It finds menu items alone, which fit on one page.

    Raises Http404 for another page.
    """
    if request.GET.get("page", "1") != "1":
        raise Http404("This search has one page.")
    response: HttpResponseBase = admin.site.search(request)  # type: ignore[attr-defined]
    return response
