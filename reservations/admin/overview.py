"""What awaits an operator: the count beside the queue, and the console's first page."""

from typing import Any

from django.db.models import Count, Q
from django.http import HttpRequest
from django.urls import reverse

from compute.models import AgentState, Run, Workload
from nodes.models import InventoryReport, Node, NodeIncident
from openrelay.console.access import can_view
from openrelay.core.clock import Now
from reservations.models import Reservation
from reservations.querysets import Status


def needs_review_badge(request: HttpRequest) -> str:
    """How many reservations need review, for the navigation: one query a page; empty without the right."""
    if not can_view(request, Reservation):
        return ""
    cached: int | None = getattr(request, "needs_review", None)
    if cached is None:
        rows = Reservation.objects.with_status(Now()).filter(status=Status.NEEDS_REVIEW)
        cached = rows.count()
        request.needs_review = cached  # type: ignore[attr-defined]
    return str(cached)


def overview(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The figures of the console's first page that the operator may view, each with a link to its list."""
    context["title"] = "Overview"
    context["figures"] = [
        figure
        for model, figures in (
            (Reservation, _reservation_figures),
            (Node, _node_figures),
            (Workload, _workload_figures),
            (AgentState, _agent_figures),
            (NodeIncident, _incident_figures),
            (Run, _run_figures),
        )
        if can_view(request, model)
        for figure in figures(request)
    ]
    context["flagged_reports"] = []
    if can_view(request, InventoryReport):
        reports = InventoryReport.objects.exclude(flagged="").select_related("node").defer("content")
        context["flagged_reports"] = list(reports[:5])
    return context


def _reservation_figures(request: HttpRequest) -> list[dict[str, Any]]:
    statuses = dict(
        Reservation.objects.with_status(Now()).order_by().values_list("status").annotate(total=Count("pk"))
    )
    review = statuses.get(Status.NEEDS_REVIEW, 0)
    request.needs_review = review  # type: ignore[attr-defined]
    url = reverse("admin:reservations_reservation_changelist")
    return [
        _figure("Needs review", review, reverse("admin:reservations_reservation_queue"), bad=review > 0),
        _figure("Active reservations", statuses.get(Status.ACTIVE, 0), f"{url}?status=active"),
        _figure("Pending reservations", statuses.get(Status.PENDING, 0), f"{url}?status=pending"),
    ]


def _node_figures(_request: HttpRequest) -> list[dict[str, Any]]:
    nodes = Node.objects.live().count()
    online = Node.objects.online(Now()).count()
    url = reverse("admin:nodes_node_changelist")
    return [_figure("Nodes online", f"{online} of {nodes}", url, bad=online < nodes)]


def _workload_figures(_request: HttpRequest) -> list[dict[str, Any]]:
    running = Workload.objects.aggregate(
        running=Count("pk", filter=Q(status="running")),
        spot=Count("pk", filter=Q(status="running", tier="spot")),
    )
    url = f"{reverse('admin:compute_workload_changelist')}?status=running"
    return [
        _figure("Workloads running", running["running"], url),
        _figure("of them spot", running["spot"], f"{url}&tier=spot"),
    ]


def _agent_figures(_request: HttpRequest) -> list[dict[str, Any]]:
    flagged = AgentState.objects.exclude(flag="").count()
    url = f"{reverse('admin:compute_agentstate_changelist')}?flagged=False"
    return [_figure("Agents flagged", flagged, url, bad=flagged > 0)]


def _incident_figures(_request: HttpRequest) -> list[dict[str, Any]]:
    incidents = NodeIncident.objects.filter(ended_at=None).count()
    url = f"{reverse('admin:nodes_nodeincident_changelist')}?state=open"
    return [_figure("Agent incidents", incidents, url, bad=incidents > 0)]


def _run_figures(_request: HttpRequest) -> list[dict[str, Any]]:
    starts, teardowns = Run.objects.starts_overdue().count(), Run.objects.teardowns_overdue().count()
    url = reverse("admin:compute_run_changelist")
    return [
        _figure("Starts overdue", starts, f"{url}?overdue=start", bad=starts > 0),
        _figure("Teardowns overdue", teardowns, f"{url}?overdue=teardown", bad=teardowns > 0),
    ]


def _figure(title: str, value: object, url: str, *, bad: bool = False) -> dict[str, Any]:
    return {"title": title, "value": value, "url": url, "bad": bad}
