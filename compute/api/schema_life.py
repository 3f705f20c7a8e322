"""What the operations on a VM's life, keys, console and metrics take and answer, for the OpenAPI schema."""

from compute.api import serializers
from compute.api.schema_states import status, status_reason
from compute.domain import states
from compute.models import Tier
from compute.services.access.gpu_metrics import RANGES
from openrelay.api.schema.book import Body, Code, Description, Operation
from openrelay.api.schema.examples import H100, LUMEN, SSH_KEY, TRAINER
from openrelay.api.schema.shapes import (
    an_id,
    flag,
    integer,
    listed,
    many,
    number,
    one_of,
    ref,
    shape,
    text,
    time,
    words,
)

SHAPES = {
    "VmDetail": shape(
        "All that is known of a VM or pod.",
        {
            "id": an_id("The id of the VM or pod."),
            "name": text("Its name."),
            "organizationId": an_id("Whose it is."),
            "status": status(),
            "tier": one_of(
                Tier.values, "Its tier. The owner of the capacity may end a `spot` workload at any moment."
            ),
            "healthy": flag("Whether it runs, on GPUs that are well."),
            "gpuCount": integer("How many GPUs it has; 0 for a VM without GPUs."),
            "diskSizeGb": integer("Disk in GB."),
            "resourceSize": text("The size of a VM without GPUs; empty for one with."),
            "createdAt": time("When it was created."),
            "updatedAt": time("When its state or settings last changed."),
        },
        {
            "statusReason": status_reason(),
            "provisioningStage": text("While it is on its way up: what it waits for."),
            "startedAt": time("When it first ran since it last deployed."),
            "interruptedAt": time("When its node was lost; stays when it ended so."),
            "terminatedAt": time("When it ended for good."),
            "capabilityTier": text("`pod` for a pod; absent for a VM."),
            "computeClass": text("A pod's class."),
            "gpuModelId": an_id("The GPU model; absent without GPUs."),
            "gpuInfo": ref("VmGpuInfo", "Its GPUs; absent without GPUs."),
            "nodeInfo": ref("VmNodeInfo", "The node that it is on."),
            "templateInfo": ref("VmTemplateInfo", "The template that it was started from."),
            "osType": text("The operating system of the template."),
            "guestMemMb": integer("Memory in MiB, as it was given."),
            "guestVcpu": integer("Virtual CPUs, as they were given."),
            "requestedGuestMemMb": integer("Memory in MiB, as it was asked for or came with the GPUs."),
            "diskTotalBytes": integer("The disk's size, by its node's word."),
            "diskUsedBytes": integer("What of it is used, by its node's word."),
            "hostDiskTotalGb": integer("Of a pod: the disk of its node in GB, while that is online."),
            "hostDiskFreeGb": integer("Of a pod: what is free of it."),
            "volumeGb": integer("Of a pod: its volume in GB."),
            "volumeMountPath": text("Of a pod: where its volume is mounted."),
            "volumeUsedBytes": integer("Of a pod: what of its volume is used."),
            "volumeUsedAt": time("Of a pod: when that was measured."),
            "imageUrl": text("The image that it was started from."),
            "containerPort": integer("The port that its container listens on."),
            "endpointUrl": text("Where its HTTP port is reached."),
            "serviceType": text("What kind of service it runs, as given at create."),
            "public": flag("Whether its endpoint is open to everyone."),
            "pricePerHourCents": integer(
                "Of all of it, in cents an hour: the rate it runs at, or else the one it would run at now."
            ),
            "nonBillable": flag("True where it costs nothing: a provider's own, on its own reservation."),
            "sshHandle": text("Its name at the SSH gateway."),
            "sshHost": text("The SSH gateway."),
            "sshPort": integer("The SSH gateway's port."),
            "sshCommand": text("The whole command."),
            "sshUser": text("Whom one is inside."),
            "sshReady": flag("Whether that should work now."),
            "sshState": one_of(
                ("ready", "booting", "offline"),
                "Whether it can be reached by SSH; `sshStateReason` says why not.",
            ),
            "sshStateReason": text("Why, in a sentence."),
        },
    ),
    "VmGpuInfo": shape(
        "The GPUs of a VM or pod.",
        {"name": text("The model's name."), "vramGb": integer("Memory of one GPU in GB.")},
        {
            "manufacturer": text("Who makes it."),
            "pricePerHourCents": integer("The price of one GPU, in cents an hour."),
        },
    ),
    "VmNodeInfo": shape("Where it runs.", {"location": text("The name of the location.")}),
    "VmTemplateInfo": shape(
        "The image it started from.",
        {"name": text("The template's name."), "osType": text("The operating system.")},
        {"osVersion": text("The version of the operating system.")},
    ),
    "VmSshKeyItem": shape(
        "An SSH key of the organization, seen from one VM or pod.",
        {
            "id": an_id("The key's id."),
            "name": text("The key's name."),
            "fingerprint": text("SHA-256, as ssh-keygen shows it."),
            "attached": flag("Whether it opens this VM or pod."),
            "crossOrg": flag("Whether it is another organization's."),
        },
        {"orgName": text("Whose it is, when it is another's.", nullable=True)},
    ),
    "KeyInUse": shape(
        "A key that cannot be deleted.",
        {
            "error": text("What is wrong and what to do."),
            "code": one_of(("KEY_IN_USE",), "Always `KEY_IN_USE`."),
            "blockingVms": words("The names of the live VMs and pods that it alone opens."),
        },
    ),
    "GuestLogs": shape(
        "The tail of a console.",
        {"found": flag("Whether there is anything yet.")},
        {
            "content": text("The text, its latest lines last; null when there is none.", nullable=True),
            "message": text("Why there is none."),
        },
    ),
    "VmMetrics": shape(
        "GPUs over time, all on one grid: value i was measured at start + i × stepSeconds.",
        {
            "vmId": an_id("The VM or pod."),
            "range": one_of(RANGES, "The range that was asked for."),
            "start": time("The beginning of the range."),
            "end": time("The end of the range."),
            "stepSeconds": integer("How many seconds lie between two values."),
            "pointCount": integer("How many points the grid has."),
            "accelerator": ref(
                "AcceleratorCapability", "Whether metrics of the GPUs can be had, and if not, why."
            ),
            "gpus": many(ref("VmGpuMetrics"), "The GPUs with their measures."),
        },
    ),
    "AcceleratorCapability": shape(
        "Whether GPUs can be read at all.",
        {
            "class": one_of(("accelerator",), "What the metrics are about: always `accelerator`."),
            "status": one_of(
                ("available", "degraded", "unavailable"), "Whether the metrics of the GPUs can be had."
            ),
        },
        {
            "reason": one_of(
                (
                    "accelerator_passthrough",
                    "guest_not_started",
                    "no_gpus_recorded",
                    "no_session_in_range",
                    "source_stale",
                    "source_unreachable",
                ),
                "Why not, for programs.",
            ),
            "detail": text("Why not, in a sentence."),
            "source": one_of(("amd-smi", "nvidia-smi"), "What measured."),
        },
    ),
    "VmGpuMetrics": shape(
        "One GPU over time.",
        {
            "bdf": text("Its PCI address."),
            "busySeconds": number("For how many seconds of the range the GPU was busy."),
            "series": many(
                shape(
                    "One measure.",
                    {
                        "key": text("What is measured."),
                        "unit": one_of(("bytes", "celsius", "ratio", "watts"), "The unit of the values."),
                        "values": many(number(nullable=True), "Null where there is no sample."),
                    },
                ),
                "The measures of the GPU.",
            ),
        },
    ),
}

BODIES = {
    serializers.ResizeDisk: Body(
        "ResizeDiskRequest", "A disk to grow.", {"newSizeGb": "The size it is to have, in GB."}
    ),
    serializers.SetVisibility: Body(
        "SetVmVisibilityRequest",
        "Who reaches an endpoint.",
        {"public": "True: everyone. False: the organization's keys alone."},
    ),
    serializers.AttachSshKey: Body(
        "AttachSshKeyRequest", "A key to open a VM or pod with.", {"sshKeyId": "A key of its organization."}
    ),
    serializers.MetricsQuery: Body(
        "MetricsQuery",
        "What to show.",
        {"range": "How far back, until now. The steps are 60, 300, 900 and 3,600 seconds."},
    ),
}

CODES = {
    "STOP_DISABLED": Code(
        409,
        "stopping VMs is switched off for the organization.",
        "Stopping VMs is switched off for your organization. Let it run, or terminate it.",
    ),
    "KEY_IN_USE": Code(
        409,
        "a live VM or pod has no other key; `blockingVms` names them.",
        "laptop is the only key of trainer-1. Attach another one there first.",
        {"blockingVms": ["trainer-1"]},
        "KeyInUse",
    ),
    "VM_NODE_BUSY": Code(
        503,
        "the VM's node cannot take it back now, or one of its GPUs has failed; the sentence says what is "
        "short.",
        "trainer-1 cannot start on its node now: it needs 2 free GPUs of NVIDIA H100 SXM5 80 GB and there is "
        "1 for it. GPU 0000:20:00.0 has failed. Its disk is kept. Try again later, or create a new one to "
        "place it elsewhere.",
    ),
    "POD_NODE_BUSY": Code(
        503,
        "the same for a pod.",
        "trainer-1 cannot start on its node now: it needs 2 free GPUs of NVIDIA H100 SXM5 80 GB and there "
        "are none for it. Its volume is kept. Try again later, or create a new one to place it elsewhere.",
    ),
    "POD_NODE_OFFLINE": Code(
        409,
        "the node that holds the pod's volume is offline.",
        "The node that holds the volume of trainer-1 is offline. Try again when it is back.",
    ),
    "POD_STOPPING": Code(
        409,
        "the pod's earlier run is still being torn down.",
        "The earlier run of trainer-1 is still being torn down. Try again in a moment.",
    ),
}

_VM = {
    "id": TRAINER,
    "name": "trainer-1",
    "organizationId": LUMEN,
    "status": "running",
    "tier": "community",
    "createdAt": "2026-11-02T10:05:00.5Z",
    "diskSizeGb": 200,
    "gpuCount": 2,
    "gpuModelId": H100,
    "pricePerHourCents": 438,
    "public": False,
}
_SUMMARY = {
    **_VM,
    "gpuModelName": "NVIDIA H100 SXM5 80 GB",
    "gpuManufacturer": "NVIDIA",
}
_DETAIL = {
    **_VM,
    "healthy": True,
    "resourceSize": "",
    "updatedAt": "2026-11-02T10:06:10Z",
    "startedAt": "2026-11-02T10:06:10Z",
    "guestMemMb": 507904,
    "guestVcpu": 56,
    "requestedGuestMemMb": 507904,
    "gpuInfo": {
        "name": "NVIDIA H100 SXM5 80 GB",
        "vramGb": 80,
        "manufacturer": "NVIDIA",
        "pricePerHourCents": 219,
    },
    "nodeInfo": {"location": "Frankfurt 1"},
    "sshHandle": "wxtjvmay7hq32",
    "sshHost": "ssh.example.com",
    "sshPort": 22,
    "sshCommand": "ssh wxtjvmay7hq32@ssh.example.com",
    "sshUser": "ubuntu",
    "sshReady": True,
    "sshState": "ready",
    "sshStateReason": "Its SSH server answers.",
}
_LOGS = {"found": True, "content": "Ubuntu 24.04 LTS trainer-1 ttyS0\n"}

OPERATIONS = {
    "get_vm_detail": Operation(
        tag="vms",
        summary="Show all of a VM or pod",
        description="Shows its sizes, GPUs, place, price, times, and how to log in, with the reason while "
        "that does not work.",
        answer=ref("VmDetail"),
        example=_DETAIL,
    ),
    "stop_vm": Operation(
        tag="vms",
        summary="Stop a VM or pod",
        description="Ends its guest and gives up its GPUs; its disk and its node stay. They are sold again "
        "once the node confirms that the guest is gone.",
        answer=ref("VmSummary"),
        example={**_SUMMARY, "status": "stopped", "statusReason": states.USER_STOPPED},
        errors=("INVALID_STATE", "STOP_DISABLED"),
    ),
    "restart_vm": Operation(
        tag="vms",
        summary="Restart a VM or pod",
        description="A running one is rebooted in place. A stopped or failed one starts again on the node "
        "that holds its disk, on whatever GPUs the organization may have there now, what is reserved to it "
        "first; it asks for the memory that it had asked for, or starts at the node's share of now where "
        "that is less and still enough. A VM whose node was removed deploys afresh elsewhere.\n\n"
        "A restart of a pod recreates its container: everything outside `/workspace` is reset to the image, "
        "and the volume at `/workspace` is kept. A reboot of a VM keeps its disk.",
        answer=ref("VmSummary"),
        example={
            **_SUMMARY,
            "status": "deploying",
            "statusReason": states.USER_RESTARTED,
            "provisioningStage": "scheduled",
        },
        errors=(
            "INVALID_STATE",
            "ACCOUNT_RESTRICTED",
            "INSUFFICIENT_BALANCE",
            "VM_NODE_BUSY",
            "POD_NODE_BUSY",
            "POD_NODE_OFFLINE",
            "POD_STOPPING",
            "POD_NODE_NO_INFINIBAND",
            "POD_NODE_NO_AMD_GRANT",
            "INSUFFICIENT_IP_CAPACITY",
            "INSUFFICIENT_GPU_CAPACITY",
            "INSUFFICIENT_HOST_CAPACITY",
        ),
    ),
    "reboot_vm": Operation(
        tag="vms",
        summary="Reboot a VM or pod",
        description="Reboots a running one in place: it keeps its GPUs and its disk. Never on a GPU that "
        "has failed.",
        answer=None,
        errors=("INVALID_STATE",),
    ),
    "resize_vm_disk": Operation(
        tag="vms",
        summary="Grow a stopped VM's disk",
        description="Lets the disk be larger from the next start on, within what the VM's GPUs come with "
        "and its node has left. It never shrinks; a pod's volume keeps its size.",
        body=serializers.ResizeDisk,
        body_example={"newSizeGb": 400},
        answer=None,
        errors=("INVALID_STATE", "VM_SHAPE_NOT_PLACEABLE", "INSUFFICIENT_HOST_CAPACITY"),
    ),
    "set_vm_visibility": Operation(
        tag="vms",
        summary="Open or close an endpoint",
        description="Says whether everyone reaches the HTTP endpoint of a VM or pod, or its organization's "
        "keys alone.",
        body=serializers.SetVisibility,
        body_example={"public": True},
        answer=ref("VmSummary"),
        example={**_SUMMARY, "public": True},
        errors=("INVALID_STATE",),
    ),
    "get_vm_ssh_keys": Operation(
        tag="vms",
        summary="List a VM's SSH keys",
        description="Lists the SSH keys of the organization, newest first, and which of them open this VM or "
        "pod.",
        answer=listed("VmSshKeyItem"),
        example=[
            {
                "id": SSH_KEY,
                "name": "laptop",
                "fingerprint": "SHA256:3vVf0l0rE3lq6mO0c0oYbq5oZ1b3Qq9sVwQh1m2n4pI",
                "attached": True,
                "crossOrg": False,
                "orgName": None,
            }
        ],
    ),
    "attach_vm_ssh_key": Operation(
        tag="vms",
        summary="Attach an SSH key",
        description="Lets one more key of the organization open a VM or pod that is not terminated. Safe to "
        "repeat.",
        body=serializers.AttachSshKey,
        body_example={"sshKeyId": SSH_KEY},
        answer=None,
    ),
    "detach_vm_ssh_key": Operation(
        tag="vms",
        summary="Detach an SSH key",
        description="Lets a key open a VM or pod no more. The only key stays. Safe to repeat.",
        answer=None,
        errors=("VALIDATION_ERROR",),
    ),
    "get_vm_logs": Operation(
        tag="vms",
        summary="Show a console",
        description="Shows the tail of the console of a VM or pod, of its latest run that wrote any.",
        answer=ref("GuestLogs"),
        example=_LOGS,
    ),
    "get_pod_logs": Operation(
        tag="pods",
        summary="Show a pod's output",
        description="Shows the tail of the output of a pod or VM, of its latest run that wrote any.",
        answer=ref("GuestLogs"),
        example={"found": False, "content": None, "message": "Nothing was written yet."},
    ),
    "get_vm_metrics": Operation(
        tag="vms",
        summary="Show GPUs over time",
        description="Shows how busy the GPUs were, where their host can read them. It cannot read a VM's: "
        "they are passed through to it.",
        query=serializers.MetricsQuery,
        answer=ref("VmMetrics"),
        example={
            "vmId": TRAINER,
            "range": "1h",
            "start": "2026-11-02T10:00:00Z",
            "end": "2026-11-02T11:00:00Z",
            "stepSeconds": 60,
            "pointCount": 60,
            "accelerator": {
                "class": "accelerator",
                "status": "unavailable",
                "reason": "accelerator_passthrough",
                "detail": "The GPUs are passed through to the VM; only the VM itself can read them.",
            },
            "gpus": [],
        },
    ),
    "delete_org_ssh_key": Operation(
        tag="ssh_keys",
        summary="Delete an SSH key",
        description="Deletes a key and detaches it from every VM and pod; not while a live one has no other.",
        answer=None,
        errors=("KEY_IN_USE",),
    ),
}

LIFE = Description(operations=OPERATIONS, shapes=SHAPES, bodies=BODIES, codes=CODES)
