"""Free ports on this machine."""

import socket


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
