"""What an agent says of its node's hardware, for the OpenAPI schema."""

from nodes.inventory import GpuReport, HostReport, Inventory, UnitReport
from openrelay.api.schema.book import Body, Code, Description, Operation
from openrelay.api.schema.shapes import flag, integer, ref, shape, text

_UNIT = {
    "address": "0000:10:00.0",
    "allocClass": "vfio-group",
    "iommuGroup": 20,
    "numaNode": 0,
    "gpus": [{"address": "0000:10:00.0", "model": "nvidia-h100-sxm5-80gb", "healthy": True}],
}

DESCRIPTION = Description(
    operations={
        "agent_inventory": Operation(
            tag="agents",
            summary="Say what the node has",
            description="Takes the node's account of its hardware. When the set of units, or a unit's "
            "class, GPU model or GPU count changed, the topology generation grows by one and every "
            "reservation of the node needs review. A report that is partial, empty or older than one "
            "already taken changes nothing and is answered with the reason in `flagged`. The same report "
            "again changes nothing. A report that contradicts itself is refused by the place of the "
            "contradiction: a unit or a GPU that is listed twice, a unit whose address is none of its GPUs', "
            "two units of one IOMMU group, a class that the node's runtime cannot run, more disk free than "
            "there is. PCI addresses may be spelled as any tool prints them.",
            body=Inventory,
            body_example={
                "sequence": 12,
                "runtime": "qemu",
                "host": {"cpuCores": 224, "ramMb": 2097152, "diskTotalGb": 30000, "diskFreeGb": 28800},
                "units": [_UNIT],
            },
            answer=ref("InventoryTaken"),
            example={"topologyGen": 3, "changed": True},
            errors=("NODE_DECOMMISSIONED",),
        )
    },
    shapes={
        "InventoryTaken": shape(
            "What became of an inventory report.",
            {
                "topologyGen": integer("The node's topology generation now."),
                "changed": flag("Whether the report changed anything that is kept."),
            },
            {"flagged": text("Why the report was not taken; absent when it was.")},
        )
    },
    bodies={
        Inventory: Body(
            "Inventory",
            "A node's account of its hardware.",
            {
                "epoch": "An id that the agent chooses anew each time it starts, such as a random UUID. "
                "Sequences are compared within it; a report of an earlier start is not taken. Without it, "
                "`sequence` has to grow across starts.",
                "sequence": "Grows with every report of one start; an older one is not taken.",
                "complete": "False when the agent could not read all of its hardware.",
                "runtime": "What the node runs: `qemu` VMs, `runc` pods, or `process` containers.",
                "host": "The host around the GPUs.",
                "units": "Every GPU unit there is now.",
            },
        ),
        HostReport: Body(
            "InventoryHost",
            "The host around the GPUs.",
            {
                "cpuCores": "CPU threads.",
                "cpuModel": "The CPU's name.",
                "ramMb": "RAM in MiB.",
                "diskTotalGb": "Disk for guests in GB.",
                "diskFreeGb": "What is free of it in GB.",
                "tdx": "Whether the host can run confidential guests.",
            },
        ),
        UnitReport: Body(
            "InventoryUnit",
            "One IOMMU group with its GPUs: the smallest thing that is reserved or sold.",
            {
                "address": "The PCI address of the unit's first GPU, its id on this node.",
                "allocClass": "`vfio-group` (for VMs) or `device-request` (for pods); a unit of any other is "
                "not `sellable`.",
                "iommuGroup": "The IOMMU group's number, of this unit alone.",
                "numaNode": "The NUMA node it sits on.",
                "sellable": "Whether the owner sells it.",
                "notSellableReason": "Why not.",
                "gpus": "Its GPUs, all of one model.",
            },
        ),
        GpuReport: Body(
            "InventoryGpu",
            "One GPU.",
            {
                "address": "Its PCI address.",
                "model": "The slug of its GPU model.",
                "serial": "Its serial number.",
                "healthy": "False for a GPU that has failed: nothing new is placed on its unit.",
                "failure": "What failed.",
            },
        ),
    },
    codes={
        "NODE_DECOMMISSIONED": Code(
            400, "the node was removed.", "The node was removed. Name another, or none."
        ),
    },
    tags={"agents": "For the agent on each node."},
)
