"""Free ports on this machine."""

import platform
import socket
import zlib
from pathlib import Path


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether nothing listens on `port` of `host`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do it: what lingers of a connection that was closed does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def find(first: int, host: str = "127.0.0.1", *, span: int = 1000) -> int:
    """The first free port from `first` on. Raises RuntimeError when all `span` of them are taken."""
    for port in range(first, min(first + span, 65536)):
        if is_free(port, host):
            return port
    raise RuntimeError(f"No port is free on {host} from {first} on.")


def first_for(home: Path, number: int) -> int:
    """Where the `number`th embedded server of a home begins to look for a port.

    Homes begin at different places, so that one that starts does not take the port of another's server that
    is just being restarted. All are below what systems hand out to clients.
    """
    return 20000 + zlib.crc32(str(home).encode()) % 5000 * 2 + number


def hold(port: int, host: str = "127.0.0.1") -> socket.socket | None:
    """Keep `port` for servers of ours that share it, also while none of them runs; raises OSError when taken.

    None where that cannot be done. Nothing ever connects to what is returned: it does not listen.
    """
    if platform.system() != "Linux":
        return None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    holder = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Bound as the only one, and opened to sharing only then: two who want it cannot both have it.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        holder.close()
        raise
    return holder
