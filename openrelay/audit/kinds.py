"""What an organization reads of each kind of event in its log: an allow list, so that a fact that nobody
declared is for operators alone.

What the API shows the organization of the object is declared; nothing else. In logs of tenants there is no
node, unit or other workload; in logs of a node's owner there is its own node, and no workload of others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of event. `fields` are the facts of `before` and `after` that are shown as they are; `counted`
    are lists of which only the length is shown, as `<name>Count`.

    `is_on_node` says that its target is a workload of somebody else on the organization's node: the node,
    which `after` names as `nodeId`, is shown as the target instead.
    """

    fields: frozenset[str] = frozenset()
    counted: frozenset[str] = frozenset()
    is_on_node: bool = False

    def shown(self, side: Any) -> dict[str, Any] | None:
        """What is shown of one side of the change; None for no side, or for one that has nothing to show."""
        if not isinstance(side, Mapping):
            return None
        shown = {name: value for name, value in side.items() if name in self.fields}
        for name in self.counted & side.keys():
            shown[f"{name}Count"] = len(side[name])
        return shown or None


def _kind(*fields: str, counted: tuple[str, ...] = (), is_on_node: bool = False) -> Kind:
    return Kind(frozenset(fields), frozenset(counted), is_on_node)


_STATE = ("status", "statusReason", "since")
_ROLE = ("name", "description", "permissions", "ipRanges", "endpoints", "models")
_BALANCE = ("leftCents", "centsPerHour", "stopsAt")
_HOST = ("runtime", "cpuCores", "cpuModel", "ramMb", "diskTotalGb", "tdx")
_CONTRACT = (
    *("nodeId", "units", "released", "audience", "managers"),
    *("startsAt", "endsAt", "topologyGen", "contractRef"),
)
_BUDGET = ("limitNanoUsd", "period")
#: What concerns the platform alone, and is in no organization's log.
_OPERATORS_ONLY = _kind()

KINDS: Mapping[str, Kind] = {
    # An organization, its people and their credentials.
    "org.created": _kind("name", "slug", "isPlatformOps", "isProvider"),
    "org.deleted": _kind("name", "slug"),
    "org.switches_changed": _kind(
        *("isProvider", "reservationsEnabled", "stopEnabled", "infinibandEnabled", "leaveNoticesEnabled"),
        *("balanceCents", "accountStatus"),
    ),
    "member.added": _kind("role"),
    "member.role_changed": _kind("role"),
    "member.removed": _kind("role"),
    "role.created": _kind(*_ROLE),
    "role.updated": _kind(*_ROLE),
    "role.deleted": _kind(*_ROLE),
    "apikey.created": _kind("name", "keyPrefix", "permissions", "ipRanges", "expiresAt"),
    "apikey.updated": _kind(*_BUDGET),
    "apikey.revoked": _kind("name", "keyPrefix"),
    "session.created": _kind("userId", "expiresAt"),
    "session.revoked": _kind("userId"),
    "request.refused": _kind(
        *("method", "operation", "status", "code", "permission", "deniedBy", "times", "since")
    ),
    "balance.low": _kind(*_BALANCE),
    "balance.depleted": _kind(*_BALANCE),
    "balance.restored": _kind(*_BALANCE),
    "price.set": _kind("tier", "centsPerGpuHour"),
    "price.dropped": _kind("tier", "centsPerGpuHour"),
    "user.created": _OPERATORS_ONLY,
    "user.password_set": _OPERATORS_ONLY,
    "console.signed_in": _OPERATORS_ONLY,
    "console.sign_in_refused": _OPERATORS_ONLY,
    # A tenant's workloads and SSH keys.
    **{
        f"vm.{name}": _kind(*_STATE)
        for name in (
            *("deploying", "running", "stopped", "failed", "interrupted", "terminated"),
            *("restarted", "rebooted", "job_lost", "node_leaving", "node_removed"),
        )
    },
    "vm.created": _kind(*_STATE, "name", "tier", "resourceSize"),
    "vm.disk_resized": _kind("diskSizeGb"),
    "vm.visibility_changed": _kind("public"),
    "vm.ssh_key_attached": _kind("sshKeyId", "name"),
    "vm.ssh_key_detached": _kind("sshKeyId", "name"),
    "vm.deploy_overdue": _kind("since", "observed"),
    "ssh_key.created": _kind("name", "fingerprint"),
    "ssh_key.deleted": _kind("name", "fingerprint", "vmIds"),
    # A provider's nodes, and the contracts on them.
    "provider.applied": _kind("status", "note"),
    "provider.approved": _kind("status"),
    "provider.rejected": _kind("status"),
    "node.enrolled": _kind("hostname", "class", "runtime"),
    "node.credential_issued": _kind("credential", "prefix"),
    "node.credentials_revoked": _kind("prefixes"),
    "node.agent_reset": _kind("inventorySequence", "reportSequence"),
    "node.hold_changed": _kind("hold"),
    "node.leaving": _kind("terminateAt"),
    "node.removed": _kind("generation"),
    "node.host_changed": _kind(*_HOST),
    "node.topology_changed": _kind("generation", "changes", *_HOST),
    "node.report_flagged": _kind("sequence", "flagged", "times", "since"),
    "node.report_refused": _kind("operation", "status", "error", "times", "since"),
    "node.two_hosts_suspected": _kind("detail"),
    "node.incident_over": _kind("incident"),
    "node.fabric_changed": _OPERATORS_ONLY,
    "node.spot_reclaimed": _kind(counted=("terminated",)),
    "unit.changed": _kind("nodeId", "unitId", "sellable", "notSellableReason", "failedGpus"),
    "gpu.card_changed": _kind("nodeId", "unitId", "gpu", "serialBefore", "serial", "times", "since"),
    "reservation.created": _kind(*_CONTRACT),
    "reservation.amended": _kind(*_CONTRACT),
    "reservation.reaffirmed": _kind(*_CONTRACT),
    "reservation.cancelled": _kind("status"),
    "reservation.units_released": _kind("units"),
    "reservation.units_reclaimed": _kind("units", counted=("terminated",)),
    "reservation.activated": _kind("occurredAt"),
    "reservation.expired": _kind("occurredAt"),
    "reservation.needs_review": _kind("occurredAt", "topologyGen"),
    "vm.guest_returned": _kind("nodeId", is_on_node=True),
    "vm.teardown_overdue": _kind("nodeId", "askedAt", "observed", is_on_node=True),
    "vm.occupancy_overridden": _kind("nodeId", is_on_node=True),
    # The platform's catalogue.
    "gpu_model.set": _OPERATORS_ONLY,
    "location.set": _OPERATORS_ONLY,
    "fabric.set": _OPERATORS_ONLY,
    "size.set": _OPERATORS_ONLY,
    "size.dropped": _OPERATORS_ONLY,
}

ON_NODE = tuple(name for name, kind in KINDS.items() if kind.is_on_node)
UNDECLARED = Kind()


def kind_of(event: str) -> Kind:
    """The kind of that name. One that was not declared shows nothing of its facts."""
    return KINDS.get(event, UNDECLARED)
