"""The real web server on the test database, for tests that need HTTP, threads or processes."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Server:
    """A running server: its address, its process, and the environment for commands beside it."""

    url: str
    pid: int
    env: dict[str, str]


def free_port() -> int:
    """A port on 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def start(
    env: dict[str, str], log: IO[bytes], *, workers: int = 2, threads: int = 8
) -> subprocess.Popen[bytes]:
    """Start the web server with `env`, whose PORT says where to listen."""
    return subprocess.Popen(
        [sys.executable, "-m", "openrelay.web"],
        env={"WEB_WORKERS": str(workers), "WEB_THREADS": str(threads), **env},
        cwd=ROOT,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def wait(url: str, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    """Wait until the server answers; raises RuntimeError when it ended or stays silent."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/livez", timeout=2):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            if process.poll() is not None:
                raise RuntimeError(f"the web server ended with {process.returncode}") from None
            time.sleep(0.05)
    raise RuntimeError(f"the web server at {url} did not answer within {seconds} s")


def environment(**overrides: str) -> dict[str, str]:
    """The environment of a process on the test database."""
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "openrelay.test_settings", **overrides}
