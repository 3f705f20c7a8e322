"""What awaits an operator: the count beside the queue, and the console's first page."""

from typing import Any

from django.db.models import Count, Q
from django.http import HttpRequest
from django.urls import reverse

from compute.models import AgentState, Run, Workload
from nodes.models import InventoryReport, Node, NodeIncident
from openrelay.clock import Now
from reservations.models import Reservation
from reservations.querysets import Status


def needs_review_badge(request: HttpRequest) -> str:
    """How many reservations need review, for the navigation: one query a page."""
    cached: int | None = getattr(request, "needs_review", None)
    if cached is None:
        rows = Reservation.objects.with_status(Now()).filter(status=Status.NEEDS_REVIEW)
        cached = rows.count()
        request.needs_review = cached  # type: ignore[attr-defined]
    return str(cached)


def overview(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The figures of the console's first page, each leading to its list."""
    statuses = dict(
        Reservation.objects.with_status(Now()).order_by().values_list("status").annotate(total=Count("pk"))
    )
    nodes = Node.objects.live().count()
    online = Node.objects.online(Now()).count()
    review = statuses.get(Status.NEEDS_REVIEW, 0)
    request.needs_review = review  # type: ignore[attr-defined]
    running = Workload.objects.aggregate(
        running=Count("pk", filter=Q(status="running")),
        spot=Count("pk", filter=Q(status="running", tier="spot")),
    )
    flagged = AgentState.objects.exclude(flag="").count()
    incidents = NodeIncident.objects.filter(ended_at=None).count()
    starts, teardowns = Run.objects.starts_overdue().count(), Run.objects.teardowns_overdue().count()
    reservations = reverse("admin:reservations_reservation_changelist")
    workloads = f"{reverse('admin:compute_workload_changelist')}?status=running"
    runs = reverse("admin:compute_run_changelist")
    context["title"] = "Overview"
    context["figures"] = (
        _figure("Needs review", review, reverse("admin:reservations_reservation_queue"), bad=review > 0),
        _figure("Active reservations", statuses.get(Status.ACTIVE, 0), f"{reservations}?status=active"),
        _figure("Pending reservations", statuses.get(Status.PENDING, 0), f"{reservations}?status=pending"),
        _figure(
            "Nodes online", f"{online} of {nodes}", reverse("admin:nodes_node_changelist"), bad=online < nodes
        ),
        _figure("Workloads running", running["running"], workloads),
        _figure("of them spot", running["spot"], f"{workloads}&tier=spot"),
        _figure(
            "Agents flagged",
            flagged,
            f"{reverse('admin:compute_agentstate_changelist')}?flagged=False",
            bad=flagged > 0,
        ),
        _figure(
            "Agent incidents",
            incidents,
            f"{reverse('admin:nodes_nodeincident_changelist')}?state=open",
            bad=incidents > 0,
        ),
        _figure("Starts overdue", starts, f"{runs}?overdue=start", bad=starts > 0),
        _figure("Teardowns overdue", teardowns, f"{runs}?overdue=teardown", bad=teardowns > 0),
    )
    reports = InventoryReport.objects.exclude(flagged="").select_related("node").defer("content")
    context["flagged_reports"] = list(reports[:5])
    return context


def _figure(title: str, value: object, url: str, *, bad: bool = False) -> dict[str, Any]:
    return {"title": title, "value": value, "url": url, "bad": bad}
