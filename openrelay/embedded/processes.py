"""Processes of ours: started so that they do not outlive us, told apart from strangers, stopped in time."""

import ctypes
import os
import platform
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_PDEATHSIG = 1
LINUX = platform.system() == "Linux"
# Every process of a home carries its path in this variable.
MARK = "OPENRELAY_SUPERVISED"
LOG_LIMIT = 5 * 1024 * 1024


@dataclass(frozen=True)
class Program:
    """What to run, under which name and environment; how to stop it, and the seconds that may take."""

    name: str
    command: list[str]
    env: Mapping[str, str]
    log: Path
    user: str | None = None
    stop_signal: int = signal.SIGTERM
    stop_seconds: float = 10
    cwd: Path = field(default_factory=lambda: Path(__file__).resolve().parents[2])


def die_with_parent(number: int) -> None:
    """Have the kernel send this process the signal when its parent dies, where the kernel can (Linux)."""
    if LINUX:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def interrupted(pid: int) -> bool:
    """Whether the make `pid` was sent SIGINT and now waits in its handler for what it runs, which it does not
    tell: it takes it that a terminal told everybody. False where that cannot be seen.
    """
    if not LINUX:
        return False
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    blocked = next((line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:")), "0")
    return bool(int(blocked, 16) >> (signal.SIGINT - 1) & 1)


def start(program: Program) -> subprocess.Popen[bytes]:
    """Start `program` in a session of its own, so that a Ctrl-C reaches only us, and we end it in order."""
    program.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if program.log.exists() and program.log.stat().st_size > LOG_LIMIT:
        program.log.replace(program.log.with_suffix(".log.1"))
    descriptor = os.open(program.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            program.command,
            env=dict(program.env),
            cwd="/" if program.user else program.cwd,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            # Comes after the change of user, which would undo it. The supervisor has one thread only, as
            # preexec_fn wants it.
            preexec_fn=lambda: die_with_parent(program.stop_signal),
            user=program.user,
            group=program.user,
            extra_groups=[] if program.user else None,
        )
    finally:
        os.close(descriptor)


def born(pid: int) -> str | None:
    """When the process `pid` started, in the system's own words; with the pid this names one process."""
    if LINUX:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    found = subprocess.run(["/bin/ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
    return found.stdout.strip() or None


def signal_group(pid: int, number: int) -> None:
    """Send the signal to the group that the process `pid` leads, if there is one."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_with_children(pid: int) -> None:
    """Kill the process `pid` that leads a group, the group, and its children in groups of their own, such as
    PostgreSQL's sessions: stopped ones would keep the memory that its successor needs.
    """
    started = _children(pid)
    signal_group(pid, signal.SIGKILL)
    for child in started:
        signal_group(child, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    """The children of the process `pid`, where the system tells of them."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill_orphans(group: int, home: Path) -> None:
    """Kill what is left of a process group whose leader is gone, as far as it carries the mark of `home`."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if fields[2] == str(group) and f"{MARK}={home}".encode() in environment:
            os.kill(int(folder.name), signal.SIGKILL)


def end(pid: int, started: str, stop_signal: int, seconds: float) -> None:
    """End a process that is not our child, and its group: asked first, killed after `seconds`."""
    signal_group(pid, stop_signal)
    deadline = time.monotonic() + seconds
    while born(pid) == started and time.monotonic() < deadline:
        time.sleep(0.05)
    if born(pid) == started:
        signal_group(pid, signal.SIGKILL)
        while born(pid) == started:
            time.sleep(0.05)


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"ended with exit code {code}"


def tail(log: Path, lines: int = 8) -> str:
    """The last lines of a log, indented."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
