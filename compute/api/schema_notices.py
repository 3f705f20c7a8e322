"""What a node says of its own end, for the OpenAPI schema."""

from compute.api.notice_serializers import TerminationNotice
from openrelay.api.schema.book import Body, Code, Description, Operation
from openrelay.api.schema.examples import NODE
from openrelay.api.schema.shapes import an_id, one_of, ref, shape, time

DESCRIPTION = Description(
    operations={
        "node_termination_notice": Operation(
            tag="agents",
            summary="Say that this node will end",
            description="A node's own word, with its credential, that it will be removed. What runs there "
            "runs until then, and nothing new starts. An interruptible node that names no deadline gives the "
            "notice it was enrolled with, and one of at most 24 hours. A persistent one needs leave notices "
            "enabled for its organization, and a deadline 5 minutes to 7 days ahead. A deadline only ever "
            "moves earlier.",
            body=TerminationNotice,
            body_example={"noticeSeconds": 120},
            answer=ref("NodeLeaving"),
            example={"nodeId": NODE, "status": "draining", "terminateAt": "2030-01-31T12:02:00Z"},
            errors=("NODE_DECOMMISSIONED", "FEATURE_DISABLED"),
        )
    },
    shapes={
        "NodeLeaving": shape(
            "That a node will end, or has.",
            {
                "nodeId": an_id("The node."),
                "status": one_of(
                    ("draining", "removed"), "Whether the node is still draining or already removed."
                ),
                "terminateAt": time("When it is removed."),
            },
        )
    },
    bodies={
        TerminationNotice: Body(
            "TerminationNotice",
            "When a node is to end. Give one of the fields or none, not both.",
            {
                "terminateAt": "At this time; for an interruptible node a past one is now.",
                "noticeSeconds": "In so many seconds.",
            },
        )
    },
    codes={
        "FEATURE_DISABLED": Code(
            409,
            "what was asked for is not enabled for the organization.",
            "Leave notices are not enabled for this node's organization. Ask an operator.",
        )
    },
)
