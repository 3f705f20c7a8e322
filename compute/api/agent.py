"""What a node's agent is asked to do, and what it says of its hardware and its guests."""

from rest_framework.request import Request
from rest_framework.response import Response

from compute.api.serializers import AgentReport
from compute.services.agents.guest_reports import Guest, Report, take_report
from compute.services.agents.work import work_for
from compute.services.lifecycle.guest_telemetry import disks_to_delete
from compute.services.lifecycle.interrupt import interrupt_lost
from nodes.api.agent import AgentView
from nodes.inventory import Inventory
from nodes.models import NodeIncident
from nodes.services.inventory import apply_inventory


class HostView(AgentView):
    """A path for agents of nodes that workloads are on."""

    def return_from_silence(self) -> None:
        """Interrupt what ran or deployed on the node when it fell silent, where no task has done so."""
        interrupt_lost(self.node.pk)


class AgentInventory(HostView):
    """Where a node says what it has."""

    operations = {"POST": "agent_inventory"}
    incident_kind = NodeIncident.Kind.UNREADABLE_INVENTORY

    def post(self, request: Request) -> Response:
        """Take the node's account of its hardware."""
        taken = apply_inventory(self.node.pk, self.read(Inventory), actor=self.caller.actor)
        answer = {"topologyGen": taken.generation, "changed": taken.changed}
        return Response({**answer, "flagged": taken.flagged} if taken.flagged else answer)


class AgentWork(HostView):
    """The runs of a node."""

    operations = {"GET": "agent_work"}

    def get(self, request: Request) -> Response:
        """List the guests that the node is to run or tear down."""
        return Response({"runs": work_for(self.node)})


class AgentReports(HostView):
    """Where a node says what its guests are."""

    operations = {"POST": "agent_report"}
    incident_kind = NodeIncident.Kind.UNREADABLE_REPORT

    def post(self, request: Request) -> Response:
        """Take the node's account of its guests."""
        data = self.read(AgentReport)
        report = Report(
            data["sequence"],
            data["complete"],
            tuple(Guest(**guest) for guest in data["guests"]),
            data.get("epoch", ""),
        )
        taken = take_report(node=self.node, report=report, actor=self.caller.actor)
        answer = {
            "tearDown": [str(run_id) for run_id in taken.tear_down],
            "deleteDisks": [str(pk) for pk in disks_to_delete(self.node, data["disks"])],
        }
        return Response({**answer, "flagged": taken.flagged} if taken.flagged else answer)
