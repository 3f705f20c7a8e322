"""How availability reads, for the OpenAPI schema."""

from openrelay.api.schema.examples import H100, NODE
from openrelay.api.schema.shapes import an_id, flag, integer, listed, many, ref, shape, text


def _counts(note: str) -> dict[str, object]:
    return many(integer(), note)


AVAILABILITY = {
    "ShapeCap": shape(
        "A share of a host.",
        {
            "ramMb": integer("Memory in MiB."),
            "vcpu": integer("Virtual CPUs."),
            "diskGb": integer("Disk in GB."),
        },
        {"ramBudgetMb": integer("What of the host's memory the share takes, the guest's overhead included.")},
    ),
    "NodeClassCap": shape(
        "A node with capacity that is reserved to the caller.",
        {
            "nodeId": an_id("Name it when creating a VM to use what is reserved."),
            "freeGpus": integer("How many GPUs could be started there now."),
            "freeUnits": integer("How many GPU units are free there."),
        },
        {
            "reserved": flag("True: it is reserved to the caller."),
            "spot": flag("Whether some of it is released to the spot market now."),
            "unitSizes": _counts("How many GPUs each free unit has."),
        },
    ),
    "ClassOffer": shape(
        "What one node of the public pool has, without saying which.",
        {
            "perGpu": ref("ShapeCap", "The node's share for each GPU."),
            "free": ref("ShapeCap", "What is free on the node."),
            "unitSizes": _counts("How many GPUs each unit has that is free for ordinary VMs."),
            "structuralUnitSizes": _counts("The same of all units, free or not."),
        },
        {
            "spotUnitSizes": _counts("How many GPUs each unit has that is free for spot VMs alone."),
            "spotStructuralUnitSizes": _counts("The same of all such units, free or not."),
        },
    ),
    "ClassAvailability": shape(
        "How many GPUs of a model could be had.",
        {
            "freeGpus": integer("Free for ordinary VMs, what is reserved to the caller included."),
            "maxPlaceableGpus": integer("The most that one VM could get now."),
            "totalGpus": integer(
                "Free or not. What is reserved to others, and units with a failed GPU, are left out."
            ),
        },
        {
            "reservedFreeGpus": integer("Those of `freeGpus` that are reserved to the caller."),
            "spotFreeGpus": integer("Free at tier spot alone: what others reserved and released."),
            "placeableGpuCounts": _counts("The GPU counts that a VM could get now, met exactly on one node."),
            "spotPlaceableGpuCounts": _counts("The same at tier spot, ordinary units included."),
            "tileLattice": _counts(
                "The counts that would be possible for the caller if nothing were claimed. Units that are "
                "reserved to others and not released are left out, and so are units with a failed GPU."
            ),
            "shapeSizing": flag("Whether memory and disk can be asked for."),
            "minDiskGb": integer("The smallest disk in GB."),
            "floorPerGpu": ref("ShapeCap", "The least that a VM gets for each GPU."),
            "minPerGpu": ref(
                "ShapeCap",
                "The smallest share of a host for each GPU, over the hosts that the caller could be "
                "placed on. Absent when there is none.",
            ),
            "maxPerGpu": ref("ShapeCap", "The largest share of a host for each GPU, over the same hosts."),
            "nodes": listed("NodeClassCap", "Where capacity is reserved to the caller."),
            "offers": listed("ClassOffer", "One for each node of the public pool, full ones too."),
        },
    ),
    "GpuAvailability": shape(
        "How much of one GPU model could be had now.",
        {"gpuModelId": an_id("The GPU model."), "vm": ref("ClassAvailability", "What VMs could have of it.")},
        {
            "name": text("The model's name."),
            "formFactor": text("The model's form factor, such as SXM5 or PCIe."),
            "vramGb": integer("Memory of one GPU in GB."),
        },
    ),
}

_SHARE = {"ramMb": 253952, "vcpu": 28, "diskGb": 3750}

AVAILABILITY_EXAMPLE = [
    {
        "gpuModelId": H100,
        "name": "NVIDIA H100 SXM5 80 GB",
        "formFactor": "SXM5",
        "vramGb": 80,
        "vm": {
            "freeGpus": 6,
            "reservedFreeGpus": 4,
            "spotFreeGpus": 0,
            "totalGpus": 8,
            "maxPlaceableGpus": 6,
            "placeableGpuCounts": [1, 2, 3, 4, 5, 6],
            "spotPlaceableGpuCounts": [1, 2],
            "tileLattice": [1, 2, 3, 4, 5, 6, 7, 8],
            "shapeSizing": True,
            "minDiskGb": 10,
            "floorPerGpu": {"ramMb": 53248, "vcpu": 1, "diskGb": 0},
            "minPerGpu": _SHARE,
            "maxPerGpu": _SHARE,
            "nodes": [
                {
                    "nodeId": NODE,
                    "freeGpus": 4,
                    "freeUnits": 4,
                    "unitSizes": [1, 1, 1, 1],
                    "reserved": True,
                    "spot": False,
                }
            ],
            "offers": [
                {
                    "perGpu": {**_SHARE, "ramBudgetMb": 262144},
                    "free": {"ramMb": 509952, "vcpu": 56, "diskGb": 7500},
                    "unitSizes": [1, 1],
                    "structuralUnitSizes": [1, 1, 1, 1],
                    "spotUnitSizes": [],
                    "spotStructuralUnitSizes": [],
                }
            ],
        },
    }
]
