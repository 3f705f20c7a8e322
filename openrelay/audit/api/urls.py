"""Paths of the audit log."""

from django.urls import path

from openrelay.audit.api.events import AuditEventsView

urlpatterns = [path("audit-events", AuditEventsView.as_view())]
