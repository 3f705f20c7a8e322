"""The states of a workload, and the one table of how it may go from one to another."""

import re
from typing import Final

PENDING: Final = "pending"
DEPLOYING: Final = "deploying"
RUNNING: Final = "running"
INTERRUPTED: Final = "interrupted"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
TERMINATED: Final = "terminated"

ALL: Final = (PENDING, DEPLOYING, RUNNING, INTERRUPTED, STOPPED, FAILED, TERMINATED)

# While in one of these a workload holds its claims, and so needs a node.
HOLDING: Final = (PENDING, DEPLOYING, RUNNING, INTERRUPTED)

# What something is still to become of, and is looked after until it has.
PASSING: Final = (PENDING, DEPLOYING, INTERRUPTED)

TABLE: Final[dict[str, frozenset[str]]] = {
    PENDING: frozenset({DEPLOYING, FAILED, TERMINATED}),
    DEPLOYING: frozenset({RUNNING, FAILED, STOPPED, INTERRUPTED, TERMINATED}),
    RUNNING: frozenset({RUNNING, STOPPED, FAILED, INTERRUPTED, TERMINATED}),
    INTERRUPTED: frozenset({RUNNING, STOPPED, FAILED, TERMINATED}),
    STOPPED: frozenset({DEPLOYING, TERMINATED}),
    FAILED: frozenset({DEPLOYING, TERMINATED}),
    TERMINATED: frozenset(),
}

# Reasons that programs read; anything else in `status_reason` is for people.
USER_STOPPED: Final = "user_stopped"
USER_RESTARTED: Final = "user_restarted"
USER_TERMINATED: Final = "user_terminated"
VM_EXITED: Final = "vm_exited"
SPOT_RECLAIMED: Final = "spot_reclaimed_by_capacity_owner"
SPOT_PREEMPTED: Final = "spot_preempted_for_reservation_tenant"
NODE_REMOVED: Final = "node_removed"
NODE_LOST: Final = "node_lost"
BALANCE_USED_UP: Final = "auto_stopped_insufficient_balance"
ACCOUNT_SUSPENDED: Final = "auto_stopped_account_suspended"
ORGANIZATION_DELETED: Final = "auto_stopped_organization_deleted"
NODE_LEAVING: Final = "node leaving at "  # and the RFC 3339 time: of a running workload

# The form of most of them.
_READ_BY_PROGRAMS: Final = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+")


def read_by_programs(reason: str) -> bool:
    """Whether a statusReason reads as one of the platform's own, which what others say must never do."""
    return bool(_READ_BY_PROGRAMS.fullmatch(reason)) or reason.startswith(NODE_LEAVING)


def sources(target: str) -> tuple[str, ...]:
    """The states from which a workload may become `target`, in the table's order."""
    return tuple(source for source, targets in TABLE.items() if target in targets)


def may(source: str, target: str) -> bool:
    """Whether the table lets a workload go from `source` to `target`."""
    return target in TABLE[source]
