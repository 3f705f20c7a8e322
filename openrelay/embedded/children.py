"""The supervised processes of one home: started, watched, started again, stopped in order."""

import signal
import subprocess
import time
from collections.abc import Callable

from openrelay.embedded import processes
from openrelay.embedded.home import Home
from openrelay.embedded.processes import Program

FIRST_DELAY = 0.3
LAST_DELAY = 10.0
# A process that has run this many seconds has recovered: its next end is a first one.
SETTLED = 10.0
# For how long PostgreSQL may take to close its files when it is told to end at once.
URGENT_SECONDS = 5.0
# The log is shown when a process keeps ending, not at the first kill.
SHOW_LOG_AT = 3


class Child:
    """One process, kept running."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.process: subprocess.Popen[bytes] | None = None
        self.started = 0.0
        self.ends = 0
        self.due = 0.0

    def start(self) -> None:
        """Start it now."""
        self.process = processes.start(self.program)
        self.started = time.monotonic()

    def kill(self) -> None:
        """End it at once, with all that it started; `Children.tend` starts it again."""
        if self.process is not None:
            processes.kill_with_children(self.process.pid)


class Children:
    """All processes of a home, in the order they were started."""

    def __init__(self, home: Home, say: Callable[[str], None]) -> None:
        self.home = home
        self.say = say
        self.all: list[Child] = []

    def add(self, program: Program) -> Child:
        """Start `program` and keep it running from now on."""
        child = Child(program)
        self.all.append(child)
        child.start()
        self._record()
        return child

    def named(self, name: str) -> list[Child]:
        """The children of that name."""
        return [child for child in self.all if child.program.name == name]

    def tend(self) -> None:
        """Notice what ended; start again what is due."""
        for child in self.all:
            if child.process is None:
                if time.monotonic() >= child.due:
                    child.start()
                    self._record()
                continue
            code = child.process.poll()
            if code is None:
                continue
            # What it started must not go on beside its successor.
            processes.signal_group(child.process.pid, signal.SIGKILL)
            if time.monotonic() - child.started > SETTLED:
                child.ends = 0
            child.ends += 1
            delay = min(FIRST_DELAY * 2 ** (child.ends - 1), LAST_DELAY)
            child.process, child.due = None, time.monotonic() + delay
            log = child.program.log
            self.say(
                f"{child.program.name} {processes.how_it_ended(code)}; starting it again in {delay:.1f} s"
                + (f" (log: {log})" if child.ends == 1 else "")
            )
            if child.ends == SHOW_LOG_AT:
                self.say(f"the end of {log}:\n{processes.tail(log)}")

    def stop(self, hurry: Callable[[], bool]) -> None:
        """Stop all, last started first, each within its time; at once when `hurry()` turns true."""
        for child in reversed(self.all):
            process = child.process
            if process is None or process.poll() is not None:
                continue
            # To the process itself: it knows how to end what it started.
            process.send_signal(child.program.stop_signal)
            deadline = time.monotonic() + child.program.stop_seconds
            while process.poll() is None and time.monotonic() < deadline and not hurry():
                time.sleep(0.05)
            if process.poll() is None:
                # Even in a hurry PostgreSQL is let close its files: SIGQUIT is its immediate shutdown.
                urgent = signal.SIGQUIT if child.program.name == "postgres" else signal.SIGKILL
                self.say(f"{child.program.name} would not stop; ending it")
                processes.signal_group(process.pid, urgent)
                try:
                    process.wait(URGENT_SECONDS)
                except subprocess.TimeoutExpired:  # a process that is stopped takes no signal but this one
                    processes.kill_with_children(process.pid)
                    process.wait()
            processes.signal_group(process.pid, signal.SIGKILL)
        self.all.clear()
        self._record()

    def _record(self) -> None:
        running = [
            {
                "name": child.program.name,
                "pid": child.process.pid,
                "born": processes.born(child.process.pid),
                "stopSignal": int(child.program.stop_signal),
                "stopSeconds": child.program.stop_seconds,
            }
            for child in self.all
            if child.process is not None
        ]
        self.home.remember(processes=running)

    def end_leftovers(self) -> None:
        """End what a supervisor that was killed left behind, told from strangers by pid and time of birth."""
        for left in reversed(self.home.state.get("processes", [])):
            if processes.born(left["pid"]) == left["born"]:
                self.say(f"ending a {left['name']} left behind by an earlier run (pid {left['pid']})")
                processes.end(left["pid"], left["born"], left["stopSignal"], left["stopSeconds"])
            processes.kill_orphans(left["pid"], self.home.path)
        self.home.remember(processes=[])
