"""What the states of a workload and their reasons mean, in the schema's words."""

from compute.domain import states
from compute.services.agents.pod_recovery import START_FAILED
from openrelay.api.schema.shapes import Schema, one_of, text

_STATES = {
    states.PENDING: "placed, and waiting for an earlier guest to leave its GPUs",
    states.DEPLOYING: "its node is starting it",
    states.RUNNING: "its node reports that it runs",
    states.INTERRUPTED: "its node went offline, or a pod lost its job on a live node. It keeps its node, "
    "GPUs and disk, and is not billed. It runs again when the node returns. After 7 days a VM is stopped "
    "and a pod is terminated",
    states.STOPPED: "it gave up its GPUs and kept its disk; it can be restarted on its node",
    states.FAILED: "its guest could not be started or ended by itself with an error; it can be restarted",
    states.TERMINATED: "it ended for good, and its disk is deleted",
}
_REASONS = {
    states.NODE_LOST: "its node was offline for 7 days",
    states.NODE_REMOVED: "its node was removed or left",
    states.VM_EXITED: "the guest shut itself down",
    states.USER_STOPPED: "somebody of its organization stopped it",
    states.USER_TERMINATED: "somebody of its organization terminated it",
    states.USER_RESTARTED: "somebody of its organization restarted it",
    states.SPOT_RECLAIMED: "the owner of the capacity took it back",
    states.SPOT_PREEMPTED: "an organization that its GPUs are reserved to started a workload on them",
    states.BALANCE_USED_UP: "the organization's balance was used up",
    states.ACCOUNT_SUSPENDED: "the organization's account was suspended",
    states.ORGANIZATION_DELETED: "the organization was deleted",
}


def status() -> Schema:
    """A workload's status, with what each means."""
    meanings = "".join(f"\n- `{name}`: {_STATES[name]}." for name in states.ALL)
    return one_of(states.ALL, f"The state of the workload:{meanings}")


def status_reason() -> Schema:
    """Why a workload is in its state, with the fixed values."""
    meanings = "".join(f"\n- `{name}`: {meaning}." for name, meaning in _REASONS.items())
    return text(
        f"Why it is in this state. Fixed values:{meanings}\n\n"
        f"`{START_FAILED}` and a sentence: a pod's container did not start. `{states.NODE_LEAVING}` and an "
        "RFC 3339 time: it runs, and ends when its node leaves. Any other text is for people, such as a "
        "message of the guest."
    )
