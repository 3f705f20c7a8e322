"""The OpenAPI description of inventory reports."""

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
            summary="Report the node's hardware",
            description="Takes an inventory report of the node. If the set of units changed, or a unit's "
            "class, GPU model or GPU count, the topology generation increases by one and every reservation "
            "of the node needs review. A report that is partial, empty or older than one already taken "
            "changes nothing; `flagged` in the answer gives the reason. A repeated report changes nothing. "
            "A report that contradicts itself is refused, and the error names the field: a unit or a GPU "
            "that is listed twice, a unit whose address is not that of one of its GPUs, two units of one "
            "IOMMU group, a class that the node's runtime cannot run, more free disk than total disk. PCI "
            "addresses may have any common spelling.",
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
            "The result of an inventory report.",
            {
                "topologyGen": integer("The node's topology generation now."),
                "changed": flag("Whether the report changed any stored value."),
            },
            {"flagged": text("Why the report was not taken; absent when it was.")},
        )
    },
    bodies={
        Inventory: Body(
            "Inventory",
            "An inventory report of a node.",
            {
                "epoch": "An id that the agent chooses at each start, such as a random UUID. Sequences are "
                "compared within an epoch. A report of an earlier epoch is not taken. Without an epoch, "
                "`sequence` must also increase from one start to the next.",
                "sequence": "Increases with every report of an epoch. A lower number is not taken.",
                "complete": "False when the agent could not read all of its hardware.",
                "runtime": "What the node runs: `qemu` VMs, `runc` pods, or `process` containers.",
                "host": "The host.",
                "units": "All GPU units of the node.",
            },
        ),
        HostReport: Body(
            "InventoryHost",
            "The host.",
            {
                "cpuCores": "CPU threads.",
                "cpuModel": "The CPU's name.",
                "ramMb": "RAM in MiB.",
                "diskTotalGb": "Disk for guests in GB.",
                "diskFreeGb": "Free disk for guests in GB.",
                "tdx": "Whether the host can run confidential guests.",
            },
        ),
        UnitReport: Body(
            "InventoryUnit",
            "One IOMMU group with its GPUs: the smallest hardware that is reserved or sold.",
            {
                "address": "The PCI address of the unit's first GPU. It is the unit's id on this node.",
                "allocClass": "`vfio-group` (for VMs) or `device-request` (for pods). Set `sellable` to "
                "false for a unit of any other class.",
                "iommuGroup": "The number of the unit's IOMMU group. Two units cannot have the same.",
                "numaNode": "The NUMA node of the unit.",
                "sellable": "Whether the owner sells the unit.",
                "notSellableReason": "Why the owner does not sell the unit.",
                "gpus": "The GPUs of the unit, all of one model.",
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
