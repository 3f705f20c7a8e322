"""Models of workloads, their claims and occupancies of units, and their prices and usage."""

from compute.models.agent_report import AgentState, FlaggedReport
from compute.models.availability import AvailabilityState, NodeChange, NodeOffer
from compute.models.claim import Claim
from compute.models.guest_state import GuestState
from compute.models.occupancy import Occupancy
from compute.models.price import GpuPrice, OrgGpuPrice, ResourceSize
from compute.models.run import Run
from compute.models.session import UsageSession, UsageUnit
from compute.models.ssh_key import SshKey
from compute.models.template import VmTemplate
from compute.models.workload import Tier, Workload, WorkloadSshKey

__all__ = [
    "AgentState",
    "AvailabilityState",
    "Claim",
    "FlaggedReport",
    "GpuPrice",
    "GuestState",
    "NodeChange",
    "NodeOffer",
    "Occupancy",
    "OrgGpuPrice",
    "ResourceSize",
    "Run",
    "SshKey",
    "Tier",
    "UsageSession",
    "UsageUnit",
    "VmTemplate",
    "Workload",
    "WorkloadSshKey",
]
