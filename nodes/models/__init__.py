"""Models of the hardware: nodes, their GPU units, topology generations, and holds."""

from nodes.models.agent import AgentEpoch, InventoryState, ReportOrder
from nodes.models.fabric import Fabric, FabricAddress
from nodes.models.gpu_model import GpuModel
from nodes.models.gpu_unit import Gpu, GpuUnit
from nodes.models.hold import Hold, HoldAudience, HoldUnit
from nodes.models.incident import NodeIncident
from nodes.models.location import Location
from nodes.models.node import Node, NodeCredential, NodeHeartbeat
from nodes.models.provider_application import ProviderApplication
from nodes.models.topology import InventoryReport, TopologyGeneration

__all__ = [
    "AgentEpoch",
    "Fabric",
    "FabricAddress",
    "Gpu",
    "GpuModel",
    "GpuUnit",
    "Hold",
    "HoldAudience",
    "HoldUnit",
    "InventoryReport",
    "InventoryState",
    "Location",
    "Node",
    "NodeCredential",
    "NodeHeartbeat",
    "NodeIncident",
    "ProviderApplication",
    "ReportOrder",
    "TopologyGeneration",
]
