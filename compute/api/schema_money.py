"""How places, templates, prices and spending read, for the OpenAPI schema."""

from openrelay.api.schema.book import Description, Operation
from openrelay.api.schema.examples import H100, TRAINER
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
)

_PLACE = "01985a3f-1c00-7a02-8b02-0f1e2d3c4b81"
_TEMPLATE = "01985a3f-1c00-7a03-8b02-0f1e2d3c4b91"

SHAPES = {
    "Location": shape(
        "A data centre, or a part of one.",
        {
            "id": an_id("The location's id."),
            "name": text("The location's name."),
            "city": text("The city."),
            "country": text("Two letters, as ISO 3166 has them."),
            "region": text("What `preferredRegions` names."),
        },
        {"latitude": number("Degrees north."), "longitude": number("Degrees east.")},
    ),
    "VmTemplate": shape(
        "An image that VMs may start from.",
        {
            "id": an_id("What `templateId` names."),
            "slug": text("The template's short name."),
            "name": text("The template's name."),
            "filename": text("What nodes keep it as."),
            "osType": text("The operating system."),
            "requiresGpu": flag("Whether it is for VMs with GPUs alone."),
        },
        {
            "description": text("What the template is for."),
            "osVersion": text("The version of the operating system."),
            "driverVersion": text("Of the GPU driver in it."),
            "isDefault": flag("Whether it is what a VM starts from that names nothing."),
            "sortOrder": integer("Its place in a list for people; lists come in this order."),
            "compatibleGpuModelIds": {
                "type": ["array", "null"],
                "items": an_id(),
                "description": "The GPU models it suits; null: all.",
            },
        },
    ),
    "GpuPrice": shape(
        "What one GPU of a model costs at a tier.",
        {
            "gpuModelId": an_id("The GPU model."),
            "tier": text("The tier that the price is for."),
            "pricePerHourCents": integer("In cents an hour, of one GPU."),
        },
        {"gpuModelName": text("The model's name."), "vramGb": integer("Memory of one GPU in GB.")},
    ),
    "CpuPrice": shape(
        "A size of VMs without GPUs.",
        {
            "resourceSize": text("What a request names."),
            "vcpu": integer("CPUs of this size."),
            "ramMb": integer("Memory in MiB."),
            "pricePerHourCents": integer("In cents an hour."),
        },
    ),
    "VmDiskLimits": shape(
        "The bounds of a VM's disk.",
        {"minGb": integer("The smallest, in GB."), "maxGb": integer("The largest, in GB.")},
    ),
    "Pricing": shape(
        "What the caller's organization pays.",
        {
            "gpu": many(ref("GpuPrice"), "By model and tier; a tier without a price is not sold."),
            "cpu": many(ref("CpuPrice"), "By size, the smallest first."),
            "vmDisk": ref("VmDiskLimits", "How small and how large a VM's disk may be."),
        },
    ),
    "PublicGpuPrice": shape(
        "What anybody pays for a GPU model.",
        {
            "id": an_id("The GPU model's."),
            "name": text("The model's name."),
            "manufacturer": text("Who makes it."),
            "vramGb": integer("Memory of one GPU in GB."),
            "communityCents": integer("At tier community, in cents a GPU and hour."),
            "verifiedCents": integer("At tier verified, in cents a GPU and hour."),
        },
        {
            "architecture": text("Its architecture."),
            "formFactor": text("Its form factor, such as SXM5 or PCIe."),
            "interconnect": text("How its GPUs are connected to each other."),
        },
    ),
    "PublicModelPrice": shape(
        "What an inference model costs, in US dollars for a million tokens.",
        {"id": text("The model's id."), "inputPerMTokens": number("Price of a million input tokens.")},
        {
            "outputPerMTokens": number("Price of a million output tokens."),
            "cachedInputPerMTokens": number("Price of a million input tokens that were cached."),
            "cacheWritePerMTokens": number("Price of writing a million tokens to the cache."),
        },
    ),
    "PublicPricing": shape(
        "The price list for everybody.",
        {
            "generatedAt": time("When it was read."),
            "gpu": many(ref("PublicGpuPrice"), "Models that are sold both as community and as verified."),
            "model": many(ref("PublicModelPrice"), "Inference models; empty where none are served."),
        },
    ),
    "VmBurn": shape(
        "What a workload costs, and what that means for its organization. Cents are whole, counted down.",
        {
            "vmId": an_id("The VM or pod."),
            "rateBasis": one_of(("gpu", "cpu"), "Whether the rate comes from its GPUs or from its size."),
            "rateSource": one_of(
                ("locked", "catalog"),
                "`locked`: fixed when it came to run. `catalog`: it does not run; what it would cost now.",
            ),
            "pricePerHourCents": integer("The whole workload's rate."),
            "diskBilled": flag("False: the disk is in the rate."),
            "orgBurnPerHourCents": integer("The rates of everything of the organization that runs."),
            "orgAccruedCents": integer("What the organization has used and not settled."),
            "orgAccruedMonthCents": integer("The same."),
            "orgAvailableCents": integer("Its balance without that; may be negative."),
            "autoStopFloorCents": integer("What is available ends here."),
            "projectedRunwayHours": number(
                "How long what is available lasts at this rate; null while nothing runs.", nullable=True
            ),
        },
        {
            "gpuCount": integer("With rate basis gpu."),
            "perGpuCents": integer("With rate basis gpu: the rate of one."),
            "sessionStartedAt": time("Since when it runs; absent while it does not."),
            "accruedSessionCents": integer("What it cost since then."),
            "nonBillable": flag(
                "True for a provider's own workload on its own node under its own reservation: the rate "
                "shows, and nothing accrues."
            ),
        },
    ),
}

OPERATIONS = {
    "list_locations": Operation(
        tag="catalog",
        summary="List locations",
        description="Lists where nodes stand, by name.",
        answer=listed("Location"),
        example=[
            {
                "id": _PLACE,
                "name": "Oslo 1",
                "city": "Oslo",
                "country": "NO",
                "region": "eu-north",
                "latitude": 59.91,
                "longitude": 10.75,
            }
        ],
    ),
    "list_vm_templates": Operation(
        tag="catalog",
        summary="List VM templates",
        description="Lists the images that VMs may start from, with the GPU models each suits.",
        answer=listed("VmTemplate"),
        example=[
            {
                "id": _TEMPLATE,
                "slug": "ubuntu-24-04-cuda",
                "name": "Ubuntu 24.04 with CUDA",
                "filename": "ubuntu-24.04-cuda-12.8.qcow2",
                "osType": "ubuntu",
                "osVersion": "24.04",
                "driverVersion": "570",
                "requiresGpu": True,
                "isDefault": False,
                "sortOrder": 20,
                "compatibleGpuModelIds": [H100],
            }
        ],
    ),
    "get_pricing": Operation(
        tag="catalog",
        summary="What does it cost us?",
        description="Shows what the caller's organization pays: each GPU model at each tier it is sold at, "
        "by the organization's own rate where it has one; VMs without GPUs by size; and how large a disk "
        "may be.",
        answer=ref("Pricing"),
        example={
            "gpu": [
                {
                    "gpuModelId": H100,
                    "gpuModelName": "NVIDIA H100 SXM5 80 GB",
                    "vramGb": 80,
                    "tier": "community",
                    "pricePerHourCents": 219,
                }
            ],
            "cpu": [{"resourceSize": "cpu-small", "vcpu": 2, "ramMb": 4096, "pricePerHourCents": 4}],
            "vmDisk": {"minGb": 10, "maxGb": 1000000},
        },
    ),
    "get_public_pricing": Operation(
        tag="catalog",
        summary="What does it cost anybody?",
        description="The price list for everybody, without a credential.",
        answer=ref("PublicPricing"),
        example={
            "generatedAt": "2026-11-02T10:00:00Z",
            "gpu": [
                {
                    "id": H100,
                    "name": "NVIDIA H100 SXM5 80 GB",
                    "manufacturer": "NVIDIA",
                    "vramGb": 80,
                    "communityCents": 219,
                    "verifiedCents": 259,
                    "formFactor": "SXM5",
                }
            ],
            "model": [],
        },
    ),
    "get_vm_burn": Operation(
        tag="vms",
        summary="What does it cost now?",
        description="Shows the workload's rate, what it has come to since it last came to run, and how long "
        "the organization's balance lasts. The rate is fixed when it comes to run; while it is interrupted, "
        "nothing accrues.",
        answer=ref("VmBurn"),
        example={
            "vmId": TRAINER,
            "rateBasis": "gpu",
            "rateSource": "locked",
            "pricePerHourCents": 438,
            "gpuCount": 2,
            "perGpuCents": 219,
            "sessionStartedAt": "2026-11-02T10:06:00Z",
            "accruedSessionCents": 219,
            "nonBillable": False,
            "diskBilled": False,
            "orgBurnPerHourCents": 438,
            "orgAccruedCents": 219,
            "orgAccruedMonthCents": 219,
            "orgAvailableCents": 99781,
            "autoStopFloorCents": 0,
            "projectedRunwayHours": 227.8,
        },
    ),
}

MONEY = Description(operations=OPERATIONS, shapes=SHAPES)
