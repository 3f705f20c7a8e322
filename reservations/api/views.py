"""The reservation operations, and reclaim-spot on a node."""

from uuid import UUID

from django.db.models import Exists, OuterRef, Q
from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from nodes.models import Node
from openrelay.api.lists import ListQuery, answer_list
from openrelay.api.views import OperationView, OrgView
from openrelay.core import clock
from openrelay.core.clock import Now
from openrelay.core.errors import NotFound
from openrelay.core.ids import parse_id
from openrelay.identity.caller import Caller
from openrelay.identity.models import Organization
from reservations.api import presenters, serializers
from reservations.models import Reservation
from reservations.querysets import ReservationQuerySet, Status, active_in_term, not_ended, reachable_by
from reservations.services import amending, booking, capacity, reclaim_spot, units

# What a malformed id is looked up as, so that it costs and says the same as any other that is not there.
NOWHERE = UUID(int=0)
NEWEST_FIRST = ("-created_at", "-hold_id")


def id_or_nowhere(text: str) -> UUID:
    """The UUID in a path, or one that nothing has."""
    return parse_id(text) or NOWHERE


class NodeView(OperationView):
    """A path under `/v1/nodes/{nodeId}`: whoever has no relation to the node is told that nothing is here."""

    node: Node

    @property
    def node_id(self) -> UUID:
        """The node that the path names, or would name."""
        return id_or_nowhere(self.kwargs["node_id"])

    def managed(self) -> ReservationQuerySet:
        """The reservations through which a managing organization reaches the node for this operation."""
        return Reservation.objects.filter(active_in_term(Now()))

    def relate(self, caller: Caller, operation: str | None) -> None:
        node = reachable_by(caller, self.managed()).filter(pk=self.node_id).first()
        if node is None:
            raise NotFound()
        self.node = node


class OperatedNodeView(NodeView):
    """A path that only operators change things by."""

    def relate(self, caller: Caller, operation: str | None) -> None:
        if self.request.method in ("GET", "HEAD"):
            super().relate(caller, operation)
        elif not caller.is_operator:
            raise NotFound()
        # An operator's change looks for the node where it locks it.


class NodeReservations(OperatedNodeView):
    """The reservations of a node."""

    operations = {"GET": "list_node_reservations", "POST": "create_node_reservation"}

    def get(self, request: Request, node_id: str) -> HttpResponseBase:
        """List every reservation of the node, the newest first."""
        return answer_list(
            Reservation.objects.with_facts(Now()).filter(hold__node=self.node),
            presenters.reservations,
            request=request,
            order=NEWEST_FIRST,
            **self.read_query(ListQuery),
        )

    def post(self, request: Request, node_id: str) -> Response:
        """Reserve GPU units of the node for an audience and a term."""
        guard = self.guard(presenters.reservation)
        data = self.read(serializers.CreateReservation)
        made = booking.reserve(
            caller=self.caller,
            node_id=self.node_id,
            unit_ids=data["unitIds"],
            allowed_org_ids=data["allowedOrgIds"],
            managing_org_ids=data.get("managingOrgIds", ()),
            starts_at=data.get("startsAt"),
            ends_at=data.get("endsAt"),
            contract_ref=data.get("contractRef", ""),
            reason=data.get("reason", ""),
            guard=guard,
        )
        return guard.response(made)


class NodeUnits(NodeView):
    """The GPU units of a node."""

    operations = {"GET": "list_reservation_units"}

    def managed(self) -> ReservationQuerySet:
        return Reservation.objects.filter(not_ended(Now()))

    def get(self, request: Request, node_id: str) -> Response:
        """List the node's GPU units: what each is, who claims it, and which reservation holds it now."""
        return Response([presenters.unit(state) for state in units.unit_states(self.node, clock.read())])


class OneReservation(OperatedNodeView):
    """One reservation of a node."""

    operations = {"GET": "get_node_reservation", "PATCH": "update_node_reservation"}

    def get(self, request: Request, node_id: str, reservation_id: str) -> Response:
        """Read one reservation of the node."""
        found = (
            Reservation.objects.with_facts(Now())
            .filter(hold__node=self.node, pk=id_or_nowhere(reservation_id))
            .first()
        )
        if found is None:
            raise NotFound()
        return Response(presenters.reservation(found))

    def patch(self, request: Request, node_id: str, reservation_id: str) -> Response:
        """Change a reservation's end, audience or managers, or re-affirm it on changed hardware."""
        data = self.read(serializers.AmendReservation)
        changed = amending.amend(
            caller=self.caller,
            node_id=self.node_id,
            reservation_id=id_or_nowhere(reservation_id),
            changes=amending.Changes(
                set_end="endsAt" in data,
                ends_at=data.get("endsAt"),
                allowed_org_ids=data.get("allowedOrgIds"),
                managing_org_ids=data.get("managingOrgIds"),
                reaffirm=data.get("reaffirm", False),
            ),
        )
        return Response(presenters.reservation(changed))


class CancelReservation(OperatedNodeView):
    """Ending a reservation."""

    operations = {"POST": "cancel_node_reservation"}

    def post(self, request: Request, node_id: str, reservation_id: str) -> Response:
        """Cancel a reservation now. What runs on its units is left running."""
        ended = amending.cancel(
            caller=self.caller, node_id=self.node_id, reservation_id=id_or_nowhere(reservation_id)
        )
        return Response(presenters.reservation(ended))


class CapacityView(NodeView):
    """A path by which owner, operator or managing organization moves units to the market and back."""

    def managed(self) -> ReservationQuerySet:
        # Managing one reservation of a node says nothing of the others there.
        return super().managed().filter(pk=id_or_nowhere(self.kwargs["reservation_id"]))


class ReleaseUnits(CapacityView):
    """Selling held capacity a second time."""

    operations = {"POST": "release_reservation_units"}

    def post(self, request: Request, node_id: str, reservation_id: str) -> Response:
        """Release units of an active reservation to the spot market."""
        data = self.read(serializers.ReservationUnits)
        released = capacity.release(
            caller=self.caller,
            node_id=self.node.pk,
            reservation_id=id_or_nowhere(reservation_id),
            unit_ids=data["unitIds"],
            reason=data.get("reason", ""),
        )
        return Response(presenters.reservation(released))


class ReclaimUnits(CapacityView):
    """Taking released capacity back."""

    operations = {"POST": "reclaim_reservation_units"}

    def post(self, request: Request, node_id: str, reservation_id: str) -> Response:
        """Take released units back from the spot market, ending the spot workloads on them. Dry run first."""
        data = self.read(serializers.ReclaimUnits)
        dry_run = data.get("dryRun", False)
        reclaimed, eviction = capacity.reclaim(
            caller=self.caller,
            node_id=self.node.pk,
            reservation_id=id_or_nowhere(reservation_id),
            unit_ids=data["unitIds"],
            reason=data.get("reason", ""),
            dry_run=dry_run,
        )
        return Response(presenters.reclaimed(reclaimed, eviction, dry_run=dry_run))


class OrgReservations(OrgView):
    """What is reserved to an organization, or managed by it."""

    operations = {"GET": "list_org_reservations"}

    def get(self, request: Request, org_id: str) -> HttpResponseBase:
        """List the live reservations that are kept for the organization, or that it manages."""
        query = self.read_query(ListQuery)
        enabled = Organization.objects.filter(pk=self.caller.organization_id, reservations_enabled=True)
        rows = (
            Reservation.objects.with_facts(Now())
            .concerning(self.caller.organization_id)
            .filter(Exists(enabled), status__in=Status.LIVE)
        )
        return answer_list(rows, presenters.reservations, request=request, order=NEWEST_FIRST, **query)


class ReclaimSpot(OrgView):
    """Ending the spot workloads on a node of one's own, or on what one manages there."""

    operations = {"POST": "reclaim_spot_workloads"}

    def relate(self, caller: Caller, operation: str | None) -> None:
        managed = Reservation.objects.filter(active_in_term(Now()), hold__node=OuterRef("pk")).managed_by(
            caller.organization_id
        )
        node = (
            Node.objects.filter(Q(organization_id=caller.organization_id) | Exists(managed))
            .filter(pk=id_or_nowhere(self.kwargs["node_id"]))
            .first()
        )
        if node is None:
            raise NotFound()
        self.node = node

    def post(self, request: Request, org_id: str, node_id: str) -> Response:
        """End the spot workloads on a node without moving any reservation's boundary. Dry run first."""
        data = self.read(serializers.ReclaimSpot)
        eviction = reclaim_spot.reclaim_spot(
            caller=self.caller,
            node_id=self.node.pk,
            unit_ids=data.get("unitIds"),
            reason=data.get("reason", ""),
            dry_run=data.get("dryRun", False),
        )
        return Response(
            {"terminated": presenters.ids(eviction.victims), "skipped": presenters.ids(eviction.skipped)}
        )
