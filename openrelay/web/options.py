"""The limits of the web server, read from the environment. `docs/configuration.md` explains each."""

import dataclasses
import os
import resource
from collections.abc import Mapping
from typing import Any

# File descriptors of a worker that are not connections: database, broker, log, temporary files.
RESERVED_FILES = 256


class OptionError(ValueError):
    """A variable of the environment has a value that cannot be used."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Limits of one worker process. Each is read from `WEB_` and its name in capitals."""

    threads: int = 8
    # Requests that wait for a thread, and for how long.
    queue: int = 1024
    queue_seconds: int = 10
    # Connections, and how long one may be idle between two requests.
    connections: int = 10_000
    idle_seconds: int = 75
    # The time for the headers, and for what is sent or read more slowly than the minimum rate.
    header_seconds: int = 10
    transfer_seconds: int = 10
    minimum_bytes_per_second: int = 16 * 1024
    header_bytes: int = 32 * 1024
    body_bytes: int = 1024 * 1024
    # Bodies in memory together, of all requests of this process.
    buffer_bytes: int = 64 * 1024 * 1024
    # Large answers in files, of all requests of this process; one client has a quarter at most.
    spool_files: int = 128
    spool_bytes: int = 1024 * 1024 * 1024
    # A running request is waited for so long at the end of the process.
    stop_seconds: int = 8
    # No thread has finished anything for so long, while requests wait: the process is stuck.
    stuck_seconds: int = 60

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> "Options":
        """The options that `environ` gives. Raises OptionError for one that is not a positive number."""
        given: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            given[field.name] = read_number(environ, f"WEB_{field.name.upper()}", field.default)  # type: ignore[arg-type]
        return cls(**given)


def read_number(environ: Mapping[str, str], name: str, default: int) -> int:
    """The positive whole number in the variable `name`. Raises OptionError for anything else."""
    value = environ.get(name) or str(default)
    if not value.isdecimal() or int(value) < 1:
        raise OptionError(f"{name} is `{value}`; it has to be a number of 1 or more.")
    return int(value)


def raise_file_limit(connections: int) -> str | None:
    """Raise the soft limit of open files for so many connections; returns a note where it cannot."""
    wanted = connections + RESERVED_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    return (
        f"note: a process may open {soft} files, so a web worker keeps {max(soft - RESERVED_FILES, 16)} "
        f"connections instead of {connections}. "
        f"Raise the hard limit (ulimit -Hn, or LimitNOFILE= of systemd) to {wanted}."
    )


def allowed_connections(options: Options) -> int:
    """How many connections this process can keep within its limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return options.connections
    return min(options.connections, max(soft - RESERVED_FILES, 16))
