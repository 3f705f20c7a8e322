"""The embedded Valkey, the broker: on 127.0.0.1 with a password."""

import os
import socket
import time
from collections.abc import Callable

from openrelay.embedded import ports
from openrelay.embedded.home import Home, HomeError, Place, write_private
from openrelay.embedded.processes import MARK, Program


class Valkey:
    """The server of one home."""

    def __init__(self, home: Home, place: Place) -> None:
        self.home = home
        self.place = place
        self.folder = place.folder("valkey")
        self.port = home.state.get("valkeyPort", 0)

    @property
    def url(self) -> str:
        """REDIS_URL."""
        return f"redis://:{self.home.remembered_secret('valkeyPassword')}@127.0.0.1:{self.port}/0"

    def prepare(self) -> Program:
        """Settle on a port, write the configuration, and say what to run."""
        if not self.port or not ports.is_free(self.port):
            self.port = ports.find(self.port or ports.first_for(self.home.path, 1))
            self.home.remember(valkeyPort=self.port)
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "requirepass": self.home.remembered_secret("valkeyPassword"),
            "dir": f'"{self.folder}"',
            "daemonize": "no",
            # Messages survive a restart; losing the last second is no harm, the sweeps find what is due.
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "tcp-keepalive": "60",
        }
        # In a file and not on the command line, which every user of the machine can read.
        configuration = self.folder / "valkey.conf"
        write_private(configuration, "".join(f"{name} {value}\n" for name, value in settings.items()))
        self.place.give(configuration)
        return Program(
            name="valkey",
            command=[str(self.place.valkey_server), str(configuration)],
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", MARK: str(self.home.path)},
            log=self.home.path / "logs" / "valkey.log",
            user=self.place.user,
        )

    def open(self, pause: Callable[[], None] = lambda: time.sleep(0.05), *, seconds: float = 30) -> None:
        """Wait until the server answers. Raises HomeError."""
        deadline = time.monotonic() + seconds
        password = self.home.remembered_secret("valkeyPassword")
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                    connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
                    answer = b""
                    while answer.count(b"\r\n") < 2 and (part := connection.recv(256)):
                        answer += part
                    if answer == b"+OK\r\n+PONG\r\n":
                        return
            except OSError:
                answer = b"no answer"
            if time.monotonic() > deadline:
                raise HomeError(f"Valkey did not answer within {seconds:.0f} s: {answer.decode()!r}")
            pause()
