"""What the operations on VMs, SSH keys and the catalogue take and answer, for the OpenAPI schema."""

from compute.api import serializers
from compute.api.schema_agent import AGENT
from compute.api.schema_availability import AVAILABILITY, AVAILABILITY_EXAMPLE
from compute.api.schema_life import LIFE
from compute.api.schema_money import MONEY
from compute.api.schema_pods import PODS
from compute.api.schema_states import status, status_reason
from compute.domain import states
from compute.models import Tier
from openrelay.api.lists import ListQuery
from openrelay.api.schema.book import Body, Code, Description, Operation
from openrelay.api.schema.examples import H100, LUMEN, NODE, PUBLIC_KEY, SSH_KEY, TRAINER
from openrelay.api.schema.shapes import (
    an_id,
    flag,
    integer,
    listed,
    one_of,
    page,
    ref,
    shape,
    text,
    time,
    words,
)

SHAPES = {
    "VmSummary": shape(
        "A VM or pod.",
        {
            "id": an_id("The id of the VM or pod."),
            "name": text("Its name."),
            "organizationId": an_id("Whose it is."),
            "status": status(),
        },
        {
            "statusReason": status_reason(),
            "provisioningStage": text("While it is on its way up: what it waits for."),
            "tier": one_of(
                Tier.values, "Its tier. The owner of the capacity may end a `spot` workload at any moment."
            ),
            "capabilityTier": text("`pod` for a pod; absent for a VM."),
            "computeClass": text("A pod's class."),
            "createdAt": time("When it was created."),
            "diskSizeGb": integer("Disk in GB."),
            "volumeGb": integer("A pod's volume in GB."),
            "gpuCount": integer("How many GPUs it has; 0 for a VM without GPUs."),
            "gpuModelId": an_id("The GPU model; absent without GPUs."),
            "gpuModelName": text("The model's name."),
            "gpuManufacturer": text("Who makes the GPUs."),
            "resourceSize": text("The size of a VM without GPUs."),
            "imageUrl": text("The image that it was started from."),
            "endpointUrl": text("Where its HTTP port is reached."),
            "serviceType": text("What kind of service it runs, as given at create."),
            "managedBy": text("What made it, when that was no person or key."),
            "public": flag("Whether its endpoint is open to everyone."),
            "pricePerHourCents": integer("The price of all its GPUs together, in cents an hour."),
        },
    ),
    "VmPage": page("VmSummary", "One page of VMs or pods."),
    "SshKeySummary": shape(
        "A public SSH key.",
        {
            "id": an_id("The key's id."),
            "name": text("The key's name."),
            "publicKey": text("The key in its canonical form, without comment."),
            "fingerprint": text("SHA-256, as ssh-keygen shows it."),
            "createdAt": time("When the key was added."),
        },
        {
            "attachedVmCount": integer("How many live VMs and pods it opens."),
            "blockingVms": words("The names of those that have no other key."),
        },
    ),
    "GpuModel": shape(
        "A kind of GPU.",
        {
            "id": an_id("The model's id."),
            "name": text("The model's name."),
            "manufacturer": text("Who makes it."),
            "vramGb": integer("Memory of one GPU in GB."),
            "hidden": flag("Whether it is left out of shop windows."),
        },
        {
            "architecture": text("Its architecture."),
            "formFactor": text("Its form factor, such as SXM5 or PCIe."),
            "interconnect": text("How its GPUs are connected to each other."),
            "createdAt": time("When it was added to the catalog."),
        },
    ),
    **AVAILABILITY,
    **LIFE.shapes,
    **MONEY.shapes,
    **PODS.shapes,
    **AGENT.shapes,
}

BODIES = {
    serializers.CreateVm: Body(
        "CreateVmRequest",
        "A VM to create. A field that cannot be honoured is refused with a reason, never ignored.",
        {
            "name": "A name for people.",
            "sshKeyIds": "Keys of the organization that open the VM; at least one.",
            "gpuCount": "How many GPUs, met exactly by whole units of one node. 1 when a model is named.",
            "gpuModelId": "Which GPU; absent: any.",
            "nodeId": "Place it on this node or nowhere. Only named like this does capacity that is "
            "reserved to the organization serve.",
            "tier": "`spot` is cheaper with GPUs, may run on released reserved units, and may be ended at "
            "any moment by the owner of the capacity. Absent: community.",
            "guestMemMb": "Memory in MiB, of a VM with GPUs. Absent: the node's share per GPU; less than "
            "65 % of the GPUs' memory is raised to that.",
            "diskSizeGb": "Disk in GB. Absent: 100 a GPU, and 100 without any.",
            "resourceSize": "The size of a VM without GPUs, as `/v1/pricing` lists them; refused beside a "
            "GPU count or model. It sets memory and CPUs.",
            "templateId": "The image to start from, by template. Without it and `imageUrl`: the default one, "
            "where it suits.",
            "preferredRegions": "Regions to place it in.",
            "allowFallback": "Whether another region will do when the preferred ones have no room.",
            "imageUrl": "What to start from: a disk image by its https address, or a container image.",
            "cloudInit": "A script, beginning with a shebang, that runs as root once a disk.",
            "envVars": "Environment variables.",
            "containerCommand": "The command of the container.",
            "containerPort": "The port that the container listens on.",
            "healthCheckPath": "The path that tells whether it is well.",
            "healthCheckPort": "The port for that.",
            "healthChecks": "Further checks.",
            "kernelModules": "Kernel modules to load.",
            "privileged": "Whether the container runs privileged.",
            "public": "Whether its endpoint is open to everyone.",
        },
    ),
    serializers.VmQuery: Body(
        "VmQuery",
        "What to list.",
        {
            "limit": "How many to list at most.",
            "cursor": "`nextCursor` of the page before.",
            "activeOnly": "Leave out terminated ones.",
            "status": "Only those in this state.",
            "tier": "Only those of this tier.",
            "nodeId": "Only those on this node.",
            "gpuModelId": "Only those with this GPU.",
            "name": "Only those of exactly this name.",
        },
    ),
    serializers.CreateSshKey: Body(
        "CreateSshKeyRequest",
        "A public key to add.",
        {
            "name": "A name for people.",
            "publicKey": "One line as in an id_….pub file; options before the key are refused.",
        },
    ),
    **LIFE.bodies,
    **PODS.bodies,
    **AGENT.bodies,
}

CODES = {
    "UNKNOWN_NODE": Code(
        400,
        "`nodeId` names no node that this caller may name; whether there is one is not told.",
        "nodeId does not name a node that you can place on. Omit it to use the public pool.",
    ),
    "GPU_COUNT_NOT_ALLOCATABLE": Code(
        400,
        "no node could ever hold that many GPUs for this organization.",
        "No node can give a VM 3 GPUs of one model. Possible are 2, 4, 6, 8.",
    ),
    "VM_SHAPE_NOT_PLACEABLE": Code(
        400,
        "the memory or disk is above what the GPUs come with on any node, or the size above what any node "
        "has.",
        "guestMemMb or diskSizeGb is above what 1 GPU come with on any node. Ask for less.",
    ),
    "RESOURCE_SIZE_NOT_APPLICABLE": Code(
        400,
        "`resourceSize` is given together with GPUs.",
        "resourceSize is for VMs without GPUs; a VM with GPUs gets its share of the host. Omit it, and ask "
        "for memory by guestMemMb and disk by diskSizeGb.",
    ),
    "INVALID_KEY": Code(
        400,
        "it is not a public SSH key that can be used; the sentence says why.",
        "publicKey is not an SSH public key that can be used: what follows the type is not the base64 of a "
        "key.",
    ),
    "KEY_EXISTS": Code(
        409,
        "the organization has this key already.",
        "Your organization already has this key, as laptop. Use it.",
    ),
    "INSUFFICIENT_GPU_CAPACITY": Code(
        503,
        "it could be placed, but there are not enough free GPUs now.",
        "There is no room in the public pool now. At most 2 would fit now. Try again later, or with fewer "
        "GPUs.",
    ),
    "INSUFFICIENT_HOST_CAPACITY": Code(
        503,
        "there are free GPUs, but not with that much memory and disk now; or no host has room for the size.",
        "2 GPUs are free, but not with that much memory and disk now. At most 1 would fit now. Ask for "
        "less, or try later.",
    ),
    "ACCOUNT_RESTRICTED": Code(
        409,
        "operators suspended the organization's account: nothing new is started; what runs goes on.",
        "The account of your organization is suspended, so nothing new is started for it. What runs goes on. "
        "Ask an operator.",
    ),
    "INSUFFICIENT_BALANCE": Code(
        409,
        "the organization's balance, less what it has spent, is used up, and it would be billed for this.",
        "Your organization has -12 cents left, and nothing that is billed is started at 0 or below. Add to "
        "its balance first.",
    ),
    **LIFE.codes,
    **PODS.codes,
}

_VM = {
    "id": TRAINER,
    "name": "trainer-1",
    "organizationId": LUMEN,
    "status": "deploying",
    "provisioningStage": "starting",
    "tier": "community",
    "createdAt": "2026-11-02T10:05:00.5Z",
    "diskSizeGb": 200,
    "gpuCount": 2,
    "gpuModelId": H100,
    "gpuModelName": "NVIDIA H100 SXM5 80 GB",
    "gpuManufacturer": "NVIDIA",
    "pricePerHourCents": 438,
    "public": False,
}
_KEY = {
    "id": SSH_KEY,
    "name": "laptop",
    "publicKey": PUBLIC_KEY,
    "fingerprint": "SHA256:3vVf0l0rE3lq6mO0c0oYbq5oZ1b3Qq9sVwQh1m2n4pI",
    "createdAt": "2026-11-01T12:00:00Z",
    "attachedVmCount": 1,
    "blockingVms": ["trainer-1"],
}

OPERATIONS = {
    "create_vm": Operation(
        tag="vms",
        summary="Create a VM",
        description="Creates a VM and claims whole GPU units of one node for it. Without `nodeId` it is "
        "placed in the public pool, on the node that is left with the fewest free GPUs; at tier `spot` first "
        "where it takes the fewest GPUs that are not on the spot market alone. With `nodeId` it is placed "
        "there or refused: units that are reserved to the organization serve first, if need be "
        "by ending spot VMs on them, and only for what they cannot cover the node's free unreserved ones.\n\n"
        "With `resourceSize` instead of GPUs it is a VM without: placed where it is least in the way of "
        "GPUs, and never on memory, CPUs or disk that reserved GPUs start with, unless they are reserved to "
        "the organization and it names the node.",
        body=serializers.CreateVm,
        body_example={"name": "trainer-1", "sshKeyIds": [SSH_KEY], "gpuCount": 2, "nodeId": NODE},
        answer=ref("VmSummary"),
        example=_VM,
        errors=(
            "UNKNOWN_NODE",
            "NODE_DECOMMISSIONED",
            "GPU_COUNT_NOT_ALLOCATABLE",
            "VM_SHAPE_NOT_PLACEABLE",
            "RESOURCE_SIZE_NOT_APPLICABLE",
            "ACCOUNT_RESTRICTED",
            "INSUFFICIENT_BALANCE",
            "INSUFFICIENT_GPU_CAPACITY",
            "INSUFFICIENT_HOST_CAPACITY",
        ),
        takes_idempotency_key=True,
    ),
    "list_org_vms": Operation(
        tag="vms",
        summary="List VMs",
        description="Lists the organization's VMs, newest first, page by page. A row that stays is seen "
        "exactly once, whatever comes or goes meanwhile.",
        query=serializers.VmQuery,
        answer=ref("VmPage"),
        example={"items": [{**_VM, "status": "running"}], "nextCursor": "WyJjb21wdXRlLndvcmtsb2FkIl0"},
    ),
    "get_vm": Operation(
        tag="vms",
        summary="Show a VM or pod",
        description="Shows what it is and in which state, and for one that ended, why.",
        answer=ref("VmSummary"),
        example={
            **_VM,
            "tier": "spot",
            "status": "terminated",
            "statusReason": states.SPOT_RECLAIMED,
            "pricePerHourCents": 198,
        },
    ),
    "terminate_vm": Operation(
        tag="vms",
        summary="Terminate a VM or pod",
        description="Ends it for good, its disk with it, and gives up its GPUs. They are sold again once "
        "the node confirms that the guest is gone. Safe to repeat.",
        answer=ref("VmSummary"),
        example={**_VM, "status": "terminated", "statusReason": states.USER_TERMINATED},
        errors=("INVALID_STATE",),
    ),
    "list_org_ssh_keys": Operation(
        tag="ssh_keys",
        summary="List SSH keys",
        description="Lists the organization's public SSH keys, newest first.",
        query=ListQuery,
        answer=listed("SshKeySummary"),
        example=[_KEY],
    ),
    "create_org_ssh_key": Operation(
        tag="ssh_keys",
        summary="Add an SSH key",
        description="Adds a public SSH key for VMs to be opened with.",
        body=serializers.CreateSshKey,
        body_example={"name": "laptop", "publicKey": f"{PUBLIC_KEY} ada@laptop"},
        answer=ref("SshKeySummary"),
        example={**_KEY, "attachedVmCount": 0, "blockingVms": []},
        errors=("INVALID_KEY", "KEY_EXISTS"),
    ),
    "list_gpu_models": Operation(
        tag="catalog",
        summary="List GPU models",
        description="Lists the kinds of GPU there are, by name.",
        answer=listed("GpuModel"),
        example=[
            {
                "id": H100,
                "name": "NVIDIA H100 SXM5 80 GB",
                "manufacturer": "NVIDIA",
                "vramGb": 80,
                "hidden": False,
                "architecture": "Hopper",
                "formFactor": "SXM5",
                "interconnect": "NVLink",
                "createdAt": "2026-10-01T00:00:00Z",
            }
        ],
    ),
    "get_gpu_availability": Operation(
        tag="catalog",
        summary="What could be placed now?",
        description="Shows, for each GPU model, how many GPUs a VM of the caller's organization could get "
        "now and in which counts: from the public pool, from what is reserved to it, and at tier spot.",
        answer=listed("GpuAvailability"),
        example=AVAILABILITY_EXAMPLE,
    ),
    **LIFE.operations,
    **MONEY.operations,
    **PODS.operations,
    **AGENT.operations,
}

DESCRIPTION = Description(
    operations=OPERATIONS,
    shapes=SHAPES,
    bodies=BODIES,
    codes=CODES,
    tags={
        "vms": "Virtual machines.",
        "pods": "Containers with GPUs.",
        "ssh_keys": "The keys that open them.",
        "catalog": "What there is to have, and how much of it.",
    },
)
