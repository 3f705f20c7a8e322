"""Paths of the audit log."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
