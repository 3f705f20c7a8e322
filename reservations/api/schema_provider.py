"""What the provider's operations on its nodes take and answer, for the OpenAPI schema."""

from compute.api.notice_serializers import TerminationNotice
from nodes.models import Node, ProviderApplication
from nodes.querysets import NodeStatus
from openrelay.api.schema.book import Body, Description, Operation
from openrelay.api.schema.common import PAGE_FIELDS
from openrelay.api.schema.examples import NODE
from openrelay.api.schema.shapes import (
    an_id,
    flag,
    integer,
    listed,
    many,
    one_of,
    ref,
    shape,
    text,
    time,
)
from reservations.api import provider_serializers

_NODE_EXAMPLE = {
    "id": NODE,
    "hostname": "gpu-07",
    "nodeType": "persistent",
    "runtime": "qemu",
    "status": "online",
    "tdxEnabled": False,
    "gpus": [{"gpuName": "NVIDIA H100 SXM5 80 GB", "vramGb": 80, "quantity": 8}],
    "cpuCores": 224,
    "cpuModel": "Intel Xeon Platinum 8480C",
    "ramGb": 2048,
    "diskTotalGb": 30000,
    "diskFreeGb": 28800,
    "locationCity": "Oslo",
    "locationCountry": "NO",
    "terminateAt": None,
    "createdAt": "2030-01-31T12:00:00Z",
}
_ABSENT_UNKNOWN = "Absent when unknown."


def _nullable_integer(note: str) -> dict[str, object]:
    return {"type": ["integer", "null"], "description": note}


SHAPES = {
    "NodeStatus": one_of(
        NodeStatus.ALL,
        "`online`: heard from. `offline`: silent. `maintenance`: takes no new work. `draining`: takes no new "
        "work, and its workloads were ended, or run until its announced end. `removed`: gone.",
    ),
    "NodeGpuItem": shape(
        "GPUs of one model.",
        {
            "gpuName": text("The model's name."),
            "vramGb": integer("Memory of one in GB."),
            "quantity": integer("How many."),
        },
    ),
    "NodeReservationSummary": shape(
        "What is reserved on a node now.",
        {
            "reservedUnitCount": integer("GPU units kept for their audience alone."),
            "releasedUnitCount": integer("Reserved GPU units that are on the spot market."),
        },
        {"reservations": many(ref("NodeReservation"), "The reservations whose term it is.")},
    ),
    "ProviderNode": shape(
        "A node as its owner sees it.",
        {
            "id": an_id("The node's id."),
            "hostname": text("The node's host name."),
            "nodeType": one_of(Node.Class.values, "`interruptible`: may end at short notice."),
            "status": ref("NodeStatus", "Its status at the moment of the answer."),
            "gpus": many(ref("NodeGpuItem"), "Its GPUs by model; of a removed node, those it had."),
            "tdxEnabled": flag("Whether the host can run confidential guests."),
            "createdAt": time("When it was enrolled."),
        },
        {
            "runtime": one_of(Node.Runtime.values, "What it runs: VMs, pods, or one container."),
            "cpuCores": integer(f"CPU threads. {_ABSENT_UNKNOWN}"),
            "cpuModel": text(_ABSENT_UNKNOWN),
            "ramGb": integer(f"RAM in GiB. {_ABSENT_UNKNOWN}"),
            "diskTotalGb": _nullable_integer("Disk for guests in GB; null while the node is silent."),
            "diskFreeGb": _nullable_integer("What is free of it in GB; null while the node is silent."),
            "locationCity": text(_ABSENT_UNKNOWN),
            "locationCountry": text(f"ISO 3166 code. {_ABSENT_UNKNOWN}"),
            "noticeSeconds": integer("Of an interruptible node: the notice it gives without a deadline."),
            "terminateAt": time(
                "When it will be removed, or was to be; null when that is open.", nullable=True
            ),
            "reservation": ref(
                "NodeReservationSummary", "What is reserved there now; absent when nothing is."
            ),
        },
    ),
    "ProviderStats": shape(
        "How many nodes an organization has; removed ones do not count.",
        {
            "totalNodes": integer("All nodes that were not removed."),
            "onlineNodes": integer("Those whose status is `online`."),
            "offlineNodes": integer("Those whose status is `offline`."),
            "activeTokens": integer("Provisioning tokens by which a node can still be enrolled."),
        },
    ),
    "ProviderStatus": shape(
        "Whether an organization is a provider.",
        {"isProvider": flag("Whether the organization may bring nodes.")},
        {
            "applicationStatus": {
                "type": ["string", "null"],
                "enum": [
                    ProviderApplication.PENDING,
                    ProviderApplication.APPROVED,
                    ProviderApplication.REJECTED,
                    None,
                ],
                "description": "What became of its last application; null when there is none.",
            },
            "applicationSubmittedAt": time("When that was made.", nullable=True),
        },
    ),
}

BODIES = {
    provider_serializers.UpdateNode: Body(
        "UpdateProviderNodeBody",
        "What the owner wants of a node.",
        {
            "status": "`online`: new work may come. `maintenance`: none comes, what runs runs on. "
            "`draining`: none comes, and every VM and pod that is not stopped is terminated. `removed`: the "
            "same, stopped pods too, and the node leaves for good.",
        },
    ),
    provider_serializers.ApplyForProvider: Body(
        "ApplyForProviderRequest", "An application.", {"note": "Why, and with what, for the operators."}
    ),
    provider_serializers.NodesQuery: Body(
        "NodesQuery",
        "Which nodes to list.",
        {
            **PAGE_FIELDS,
            "includeRemoved": "Removed ones too.",
            "status": "Only those of this status; `removed` lists removed ones.",
            "class": "Only those of this class.",
        },
    ),
}

OPERATIONS = {
    "list_provider_nodes": Operation(
        tag="provider",
        summary="List your nodes",
        description="Lists the organization's nodes with their hardware, the newest first. `reservation` is "
        "there while units of a node are reserved.",
        query=provider_serializers.NodesQuery,
        answer=listed("ProviderNode"),
        example=[_NODE_EXAMPLE],
    ),
    "update_provider_node": Operation(
        tag="provider",
        summary="Drain, maintain, remove a node, or bring it back",
        description="Sets what the owner wants of a node. Removing moves the node's topology: reservations "
        "there need review. A node whose end is announced stays `draining` until then, whatever is wanted.",
        body=provider_serializers.UpdateNode,
        body_example={"status": "maintenance"},
        answer=ref("ProviderNode"),
        example={**_NODE_EXAMPLE, "status": "maintenance"},
        errors=("NODE_DECOMMISSIONED",),
    ),
    "offboard_provider_node": Operation(
        tag="provider",
        summary="Announce the end of an interruptible node",
        description="Takes no new work from now on, leaves what runs until the deadline, and removes the "
        "node then; without a deadline, at once. A deadline only ever moves earlier, so repeating does no "
        "harm. Persistent nodes are drained or removed instead (409).",
        body=TerminationNotice,
        body_example={"noticeSeconds": 120},
        answer=ref("ProviderNode"),
        example={
            **_NODE_EXAMPLE,
            "nodeType": "interruptible",
            "runtime": "process",
            "status": "draining",
            "noticeSeconds": 30,
            "terminateAt": "2030-01-31T12:02:00Z",
        },
        errors=("NODE_DECOMMISSIONED", "INVALID_STATE"),
    ),
    "get_provider_stats": Operation(
        tag="provider",
        summary="Count your nodes",
        description="Counts the organization's nodes by status. Those draining or in maintenance count in "
        "the total alone.",
        answer=ref("ProviderStats"),
        example={"totalNodes": 12, "onlineNodes": 11, "offlineNodes": 1, "activeTokens": 0},
    ),
    "get_provider_status": Operation(
        tag="provider",
        summary="Are you a provider?",
        description="Says whether the organization is a provider, and what became of its application.",
        answer=ref("ProviderStatus"),
        example={
            "isProvider": False,
            "applicationStatus": "pending",
            "applicationSubmittedAt": "2030-01-31T12:00:00Z",
        },
    ),
    "apply_for_provider": Operation(
        tag="provider",
        summary="Apply to become a provider",
        description="Asks the operators to make the organization a provider. Refused (400) for one that is, "
        "or that has an application pending.",
        body=provider_serializers.ApplyForProvider,
        body_example={"note": "We run 12 hosts with 8 H100 each in Oslo."},
        answer=None,
    ),
}

DESCRIPTION = Description(operations=OPERATIONS, shapes=SHAPES, bodies=BODIES)
