"""What the pod operations take and answer, for the OpenAPI schema."""

from compute.api import pods_serializers
from openrelay.api.schema.book import Body, Code, Description, Operation
from openrelay.api.schema.examples import H100, LUMEN, SSH_KEY, TRAINER
from openrelay.api.schema.shapes import an_id, integer, many, ref, shape, text

_OLD_RATE = "The on-demand rate again, for clients that still read it."

SHAPES = {
    "PodCapacity": shape(
        "What pods could be created on now, by GPU model.",
        {"items": many(ref("PodCapacityItem"), "One entry for each GPU model that is sold.")},
    ),
    "PodCapacityItem": shape(
        "One GPU model's units for pods. What is reserved is left out, for a pod names no node.",
        {
            "gpuModelId": an_id("The GPU model."),
            "name": text("The model's name."),
            "vramGb": integer("Memory of one GPU in GB."),
            "freeUnits": integer("Units that a pod could have now."),
            "totalUnits": integer("Units on nodes that take new work, used ones too."),
            "maxGpuCount": integer("The most GPUs that one pod could get now; 0 for none."),
            "rateOnDemandCentsPerHour": integer("What one GPU costs, in cents an hour."),
            "rateReservedCentsPerHour": integer(_OLD_RATE),
            "rateInterruptibleCentsPerHour": integer(_OLD_RATE),
        },
        {"manufacturer": text("Who made it, and so whether images need CUDA or ROCm.")},
    ),
}

BODIES = {
    pods_serializers.CreatePod: Body(
        "CreatePodRequest",
        "A pod to create. A field that cannot be honoured is refused with a reason, never ignored.",
        {
            "image": "The container image: `[host[:port]/]path[:tag][@digest]`.",
            "sshKeyIds": "Keys of the organization that open the pod; at least one.",
            "name": "A name for people. Absent: one is made up.",
            "gpuCount": "How many GPUs, met exactly by whole units of one node. Absent: 1.",
            "gpuModelId": "Which GPU; absent: any.",
            "computeClass": "`on_demand`, the one class that is sold; `reserved` is taken for it.",
            "volumeGb": "The size of the volume at /workspace in GB, for good. Absent: 50.",
            "shmSizeGb": "Shared memory in GiB, at most half of the pod's memory. Absent: that half for a "
            "pod that is alone on its node, 2 GiB a GPU for one with several GPUs of a shared node, and "
            "else what the runtime gives.",
            "httpPort": "The port that the endpoint leads to. Absent: 80.",
            "envVars": "Environment variables.",
            "public": "Whether its endpoint is open to everyone. Absent: no.",
        },
    ),
    pods_serializers.PodQuery: Body(
        "PodQuery",
        "What to list.",
        {"limit": "How many to list at most.", "cursor": "`nextCursor` of the page before."},
    ),
}

CODES = {
    "POD_ADMISSION_FAILED": Code(
        400,
        "the shared memory or the volume is above what the GPUs come with on any node.",
        "shmSizeGb is above 59, half of the memory that 1 GPU come with at most. Ask for less.",
    ),
    "COMPUTE_CLASS_RETIRED": Code(
        400,
        "`computeClass` is one that is no longer sold.",
        "computeClass interruptible is no longer sold. Ask for on_demand, or leave it out.",
    ),
    "INSUFFICIENT_IP_CAPACITY": Code(
        503,
        "the InfiniBand fabric has no free address for a pod of this organization.",
        "trainer-1 cannot start on its node now: the InfiniBand fabric there has no free address. Its volume "
        "is kept. Try again later.",
    ),
    "POD_NODE_NO_INFINIBAND": Code(
        409,
        "the organization is enabled for InfiniBand, and the agent of the pod's node is older than that.",
        "Your organization is enabled for InfiniBand, and the agent of the node that holds the volume of "
        "trainer-1 is older than that. Ask the node's provider to update it.",
    ),
    "POD_NODE_NO_AMD_GRANT": Code(
        409,
        "the pod's GPUs are AMD, and the agent of its node cannot grant them.",
        "The GPUs of trainer-1 are AMD, and the agent of the node that holds its volume is too old to grant "
        "them. Ask the node's provider to update it.",
    ),
}

_POD = {
    "id": TRAINER,
    "name": "trainer-1",
    "organizationId": LUMEN,
    "status": "deploying",
    "provisioningStage": "scheduled",
    "tier": "community",
    "capabilityTier": "pod",
    "computeClass": "on_demand",
    "createdAt": "2026-11-02T10:05:00.5Z",
    "diskSizeGb": 50,
    "volumeGb": 50,
    "gpuCount": 2,
    "gpuModelId": H100,
    "gpuModelName": "NVIDIA H100 SXM5 80 GB",
    "gpuManufacturer": "NVIDIA",
    "imageUrl": "ghcr.io/acme/trainer:1.4",
    "pricePerHourCents": 438,
    "public": False,
}

OPERATIONS = {
    "create_pod": Operation(
        tag="pods",
        summary="Create a pod",
        description="Runs a container image on whole GPU units of one node, in the organization that the "
        "caller acts in. It is placed on the node that is left with the fewest free GPUs. Its volume, at "
        "/workspace, stays through stops, restarts and interruptions; the rest of its file system is the "
        "image's again whenever the container is made anew.",
        body=pods_serializers.CreatePod,
        body_example={"image": "ghcr.io/acme/trainer:1.4", "sshKeyIds": [SSH_KEY], "gpuCount": 2},
        answer=ref("VmSummary"),
        example=_POD,
        errors=(
            "COMPUTE_CLASS_RETIRED",
            "GPU_COUNT_NOT_ALLOCATABLE",
            "POD_ADMISSION_FAILED",
            "ACCOUNT_RESTRICTED",
            "INSUFFICIENT_BALANCE",
            "INSUFFICIENT_GPU_CAPACITY",
            "INSUFFICIENT_HOST_CAPACITY",
            "INSUFFICIENT_IP_CAPACITY",
        ),
        takes_idempotency_key=True,
    ),
    "list_pods": Operation(
        tag="pods",
        summary="List pods",
        description="Lists the organization's pods that are not terminated, newest first, page by page.",
        query=pods_serializers.PodQuery,
        answer=ref("VmPage"),
        example={"items": [{**_POD, "status": "running"}], "nextCursor": "WyJjb21wdXRlLndvcmtsb2FkIl0"},
    ),
    "list_pod_capacity": Operation(
        tag="pods",
        summary="How many pods could be created now?",
        description="Shows, for each GPU model that is sold, how many units a pod of the usual volume could "
        "have now, and the most GPUs that one pod could get.",
        answer=ref("PodCapacity"),
        example={
            "items": [
                {
                    "gpuModelId": H100,
                    "name": "NVIDIA H100 SXM5 80 GB",
                    "manufacturer": "NVIDIA",
                    "vramGb": 80,
                    "freeUnits": 12,
                    "totalUnits": 32,
                    "maxGpuCount": 8,
                    "rateOnDemandCentsPerHour": 219,
                    "rateReservedCentsPerHour": 219,
                    "rateInterruptibleCentsPerHour": 219,
                }
            ]
        },
    ),
}

PODS = Description(operations=OPERATIONS, shapes=SHAPES, bodies=BODIES, codes=CODES, tags={})
