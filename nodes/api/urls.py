"""Routes of nodes."""

from django.urls import path

from nodes.api import agent

urlpatterns = [
    path("agent/inventory", agent.AgentInventory.as_view()),
]
