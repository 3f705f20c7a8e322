"""What a node's agent is told of its guests and says of them, for the OpenAPI schema."""

from compute.api import serializers
from compute.models import Run, Tier, Workload
from openrelay.api.schema.book import Body, Description, Operation
from openrelay.api.schema.examples import LUMEN, PUBLIC_KEY, RUN, TRAINER
from openrelay.api.schema.shapes import (
    an_id,
    flag,
    ids,
    integer,
    listed,
    many,
    one_of,
    ref,
    shape,
    text,
    words,
)

_SHAPES = {
    "AgentUnit": shape(
        "A GPU unit that a guest gets whole.",
        {
            "address": text("The unit's PCI address."),
            "iommuGroup": {
                "type": ["integer", "null"],
                "description": "The IOMMU group's number, where known.",
            },
            "gpus": words("The PCI addresses of its GPUs."),
        },
    ),
    "AgentSpec": shape(
        "What a guest is to be.",
        {
            "name": text("The name of the VM or pod."),
            "kind": one_of(Workload.Kind.values, "Whether to start a VM or a container."),
            "organizationId": an_id("The organization that it belongs to."),
            "tier": one_of(Tier.values, "Its tier."),
            "gpuCount": integer("How many GPUs it gets."),
            "diskSizeGb": integer("Disk in GB; a pod's is its volume."),
            "sshKeys": words("The public keys that open it."),
            "privileged": flag("Whether the container runs privileged."),
            "public": flag("Whether its endpoint is open to everyone."),
        },
        {
            "gpuModel": text("The slug of its GPU model."),
            "guestMemMb": integer("Memory in MiB."),
            "guestVcpu": integer("Virtual CPUs."),
            "volumeMountPath": text("Where a pod's volume belongs inside it."),
            "shmMb": integer("A pod's shared memory in MiB; absent: what its runtime gives."),
            "fabricAddress": text("A pod's address on the node's InfiniBand fabric."),
            "template": text("The file of the image that a VM starts from, where it is a template's."),
            "imageUrl": text("The disk image or container image to start from."),
            "cloudInit": text("A script to run as root once a disk."),
            "envVars": {
                "type": "object",
                "description": "Environment variables by name.",
                "additionalProperties": {"type": "string"},
            },
            "containerCommand": words("The command that the container runs, as arguments."),
            "containerPort": integer("The port that the container listens on."),
            "healthCheckPath": text("The path that is asked for the health of what runs inside."),
            "healthCheckPort": integer("The port that is asked."),
            "healthChecks": words("Further health checks."),
            "kernelModules": words("Kernel modules to load."),
        },
    ),
    "AgentRun": shape(
        "One guest that the node is to run or to tear down.",
        {
            "runId": an_id("The name of this very guest; reports speak of it."),
            "workloadId": an_id("The VM or pod that this is a run of."),
            "number": integer("1 for a workload's first guest."),
            "desired": one_of(Run.Desired.values, "`gone`: tear it down and report that it is."),
            "units": listed("AgentUnit", "Where it runs."),
            "waitsFor": ids("Earlier guests that may still be on these units: start it once they are gone."),
        },
        {
            "spec": ref("AgentSpec", "What to start."),
            "reboots": integer("How often the guest is to have been rebooted since it first started."),
        },
    ),
    "AgentWork": shape(
        "Every guest of the node that is not over.",
        {"runs": many(ref("AgentRun"), "The oldest first.")},
    ),
    "AgentReportTaken": shape(
        "What became of a report.",
        {
            "tearDown": ids("Guests named in the report that are to be torn down."),
            "deleteDisks": ids("Workloads named in `disks` whose disks are to be deleted."),
        },
        {"flagged": text("What is odd about the report, in words; absent when nothing is.")},
    ),
}

_SPEC = {
    "name": "trainer-1",
    "kind": "vm",
    "organizationId": LUMEN,
    "tier": "community",
    "gpuCount": 1,
    "gpuModel": "nvidia-h100-sxm5-80gb",
    "guestMemMb": 253952,
    "guestVcpu": 28,
    "diskSizeGb": 100,
    "sshKeys": [PUBLIC_KEY],
    "privileged": False,
    "public": False,
}

AGENT = Description(
    operations={
        "agent_work": Operation(
            tag="agents",
            summary="Ask what to run",
            description="Lists the guests that the node is to run or tear down. Asking is a sign of life.",
            answer=ref("AgentWork"),
            example={
                "runs": [
                    {
                        "runId": RUN,
                        "workloadId": TRAINER,
                        "number": 1,
                        "desired": "running",
                        "units": [{"address": "0000:10:00.0", "iommuGroup": 20, "gpus": ["0000:10:00.0"]}],
                        "waitsFor": [],
                        "reboots": 0,
                        "spec": _SPEC,
                    }
                ]
            },
        ),
        "agent_report": Operation(
            tag="agents",
            summary="Say what the guests are",
            description="Takes the node's account of its guests. Only what is said of a guest explicitly "
            "counts, and only for that guest: one that is left out is as it was. A report that is "
            "incomplete, or older than one already taken, changes nothing; the reason is in `flagged`.",
            body=serializers.AgentReport,
            body_example={
                "sequence": 41,
                "guests": [{"runId": RUN, "state": "running", "sshReady": True}],
                "disks": [TRAINER],
            },
            answer=ref("AgentReportTaken"),
            example={"tearDown": [], "deleteDisks": []},
        ),
    },
    shapes=_SHAPES,
    bodies={
        serializers.AgentReport: Body(
            "AgentReport",
            "An agent's account of its guests.",
            {
                "epoch": "An id that the agent chooses anew each time it starts, such as a random UUID. "
                "Sequences are compared within it; a report of an earlier start is not taken. Without it, "
                "`sequence` has to grow across starts.",
                "sequence": "Grows with every report of one start; an older one is not taken.",
                "complete": "False when the agent could not look at all of its guests.",
                "guests": "One entry a guest.",
                "disks": "The workloads whose disks the node keeps.",
            },
        ),
        serializers.GuestReport: Body(
            "GuestReport",
            "What is known of one guest.",
            {
                "runId": "Which guest.",
                "state": "`stopped`, `failed`, `gone` and `never-started` say that it is not on its units "
                "any more; the first of them that is said is final.",
                "message": "More, for people.",
                "sshReady": "Whether a probe on the node saw its SSH server answer.",
                "console": "The tail of its console, when it is news; escape sequences are left out.",
                "diskTotalBytes": "The size of its disk.",
                "diskUsedBytes": "What of its disk is used.",
            },
        ),
    },
)
