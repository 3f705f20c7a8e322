"""Connection information of a workload: its handle, its SSH command, the URL of its HTTP port."""

import base64
from dataclasses import dataclass

from django.conf import settings

from compute.domain import states
from compute.models import GuestState, Workload

# Operating systems whose images have a login user of the same name.
_USERS = frozenset({"ubuntu", "debian", "fedora", "rocky", "almalinux", "centos"})


@dataclass(frozen=True, slots=True)
class Ssh:
    """How to log in, the state of SSH (`ready`, `booting` or `offline`), and the reason of the state."""

    handle: str
    host: str
    port: int
    command: str
    user: str
    state: str
    reason: str


def handle(workload: Workload) -> str:
    """The workload's public name, which never changes: its user at the SSH gateway and its DNS label."""
    # The last eight bytes of the id are random.
    return base64.b32encode(workload.pk.bytes[8:]).decode().rstrip("=").lower()


def endpoint(workload: Workload) -> str | None:
    """The URL of the workload's HTTP port; None without a port or without an endpoint domain."""
    if not settings.ENDPOINT_DOMAIN or workload.container_port is None:
        return None
    return f"https://{handle(workload)}.{settings.ENDPOINT_DOMAIN}"


def ssh(workload: Workload, guest: GuestState | None, *, os_type: str = "") -> Ssh:
    """Make the SSH information of the workload. `guest` is the state of its wanted run's guest."""
    name, host, port = handle(workload), settings.SSH_GATEWAY_HOST, settings.SSH_GATEWAY_PORT
    state, reason = _state(workload, guest)
    return Ssh(
        handle=name,
        host=host,
        port=port,
        command=f"ssh {name}@{host}" if port == 22 else f"ssh -p {port} {name}@{host}",
        user=os_type if os_type in _USERS else "root",
        state=state,
        reason=reason,
    )


def _state(workload: Workload, guest: GuestState | None) -> tuple[str, str]:
    if workload.status == states.RUNNING and guest is not None and guest.ssh_ready:
        return "ready", "Its SSH server answers."
    if workload.status == states.RUNNING:
        return "booting", "It runs, and its SSH server has not answered yet. That can take some minutes."
    if workload.status == states.PENDING:
        return "booting", "It waits for its GPUs."
    if workload.status == states.DEPLOYING:
        return "booting", "Its node is starting it."
    if workload.status == states.INTERRUPTED and workload.status_reason != states.NODE_LOST:
        return "offline", f"It is interrupted: {workload.status_reason}."
    if workload.status == states.INTERRUPTED:
        return "offline", "Its node is offline. It goes on when the node is back."
    if workload.status == states.TERMINATED:
        return "offline", "It is terminated."
    return "offline", f"It is {workload.status}. Restart it to log in."
