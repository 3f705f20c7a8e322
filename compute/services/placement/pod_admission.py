"""What a node must have beside room for a pod to start there: an agent of the level that its GPUs and its
organization ask for, and an address on the node's InfiniBand fabric.
"""

from uuid import UUID

from compute.models import Run, Workload
from compute.services.fleet.pod_levels import AMD, on_infiniband
from compute.services.placement.request import Rejection
from nodes.levels import AMD_GRANT, INFINIBAND
from nodes.models import GpuModel, Node
from nodes.services.fabrics import lease_address, release_addresses
from nodes.services.liveness import agent_level_of
from nodes.services.locking import LockedNode
from openrelay.core.errors import Conflict


def reject_pod(held: LockedNode, organization_id: UUID, model_id: UUID, pod_id: UUID) -> Rejection | None:
    """Why the locked node cannot take a new pod of that organization with GPUs of that model; None when it
    can, and then the pod has its address.
    """
    level = agent_level_of(held.node)
    if level < AMD_GRANT and GpuModel.objects.filter(pk=model_id, manufacturer__iexact=AMD).exists():
        return Rejection("the node's agent cannot give AMD GPUs to pods")
    if level < INFINIBAND and on_infiniband(organization_id):
        return Rejection("the node's agent cannot give pods InfiniBand")
    if not connect(held, organization_id, pod_id):
        return Rejection("the node's InfiniBand fabric has no free address", addresses=True)
    return None


def connect(held: LockedNode, organization_id: UUID, pod_id: UUID) -> bool:
    """Give the pod an address on the locked node's fabric, where the organization is on InfiniBand and the
    node on a fabric; returns whether it has all that it needs.
    """
    if held.node.fabric_id is None or not on_infiniband(organization_id):
        release_addresses([pod_id])
        return True
    return lease_address(held, pod_id) is not None


def admit(held: LockedNode, pod: Workload) -> None:
    """Refuse to start a stopped or failed pod on the locked node, for another reason than room.

    Raises Conflict POD_NODE_OFFLINE, POD_STOPPING, POD_NODE_NO_INFINIBAND or POD_NODE_NO_AMD_GRANT.
    """
    require_online(held, pod)
    if Run.objects.open().filter(workload=pod).exists():
        raise Conflict(
            f"The earlier run of {pod.name} is still being torn down. Try again in a moment.",
            code="POD_STOPPING",
        )
    level = agent_level_of(held.node)
    if level < INFINIBAND and on_infiniband(pod.organization_id):
        raise Conflict(
            f"Your organization is enabled for InfiniBand, and the agent of the node that holds the volume "
            f"of {pod.name} is older than that. Ask the node's provider to update it.",
            code="POD_NODE_NO_INFINIBAND",
        )
    if level < AMD_GRANT and pod.gpu_model is not None and pod.gpu_model.manufacturer.lower() == AMD:
        raise Conflict(
            f"The GPUs of {pod.name} are AMD, and the agent of the node that holds its volume is too old to "
            "grant them. Ask the node's provider to update it.",
            code="POD_NODE_NO_AMD_GRANT",
        )


def require_online(held: LockedNode, pod: Workload) -> None:
    """Raises Conflict POD_NODE_OFFLINE while the locked node, which holds the pod's volume, is offline."""
    if not Node.objects.online(held.at).filter(pk=held.node.pk).exists():
        raise Conflict(
            f"The node that holds the volume of {pod.name} is offline. Try again when it is back.",
            code="POD_NODE_OFFLINE",
        )
