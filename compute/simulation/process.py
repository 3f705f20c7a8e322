"""The process that plays the agents of several pretended hosts, and remembers them across its own end."""

import fcntl
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import httpx

from compute.simulation.node import Memory, SimulatedNode

log = logging.getLogger(__name__)


class AlreadyRunning(Exception):
    """Another process plays these hosts."""


class Simulation:
    """The hosts of one credentials file: a JSON list of `{nodeId, credential, inventory, baseUrl}`.

    The file is read again whenever it changes, so that editing it changes a host's hardware or behaviour. The
    guests are kept in `memory_path`, where a later process finds them, as an agent finds the real ones.
    """

    def __init__(self, credentials: Path, memory_path: Path, *, base_url: str, http: httpx.Client) -> None:
        self._credentials = credentials
        self._memory_path = memory_path
        self._base_url = base_url
        self._http = http
        self._read_at: tuple[int, int] | None = None
        self._nodes: dict[str, SimulatedNode] = {}
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._lock = open(memory_path.with_suffix(".lock"), "w")  # noqa: SIM115 - held while the process lives
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise AlreadyRunning(f"another process keeps {memory_path}") from None
        self._memories = self._recall()

    def close(self) -> None:
        """Let another process play these hosts."""
        self._lock.close()

    def turn(self) -> None:
        """Let every host take its turn; one that cannot reach the control plane is tried again later."""
        self._read()
        for node_id, node in self._nodes.items():
            if self._not_before.get(node_id, 0.0) > time.monotonic():
                continue
            try:
                node.turn()
                self._failures[node_id] = 0
            except (httpx.HTTPError, ValueError) as error:
                failures = self._failures[node_id] = self._failures.get(node_id, 0) + 1
                self._not_before[node_id] = time.monotonic() + min(5.0, 0.25 * 2**failures)
                if failures in (1, 10) or failures % 100 == 0:
                    log.warning("node %s cannot speak to the control plane: %s", node_id, error)

    def _read(self) -> None:
        """Take the credentials file when it is new; one that is half written is tried at the next turn."""
        try:
            stat = self._credentials.stat()
            stamp = (stat.st_mtime_ns, stat.st_ino)
            if stamp == self._read_at:
                return
            entries: list[dict[str, Any]] = json.loads(self._credentials.read_text())
            named = {entry["nodeId"]: entry for entry in entries}
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be read: %s", self._credentials, error)
            return
        self._read_at = stamp
        for node_id in self._nodes.keys() - named.keys():
            del self._nodes[node_id]
        for node_id, entry in named.items():
            if node_id in self._nodes:
                self._nodes[node_id].configure(entry)
            else:
                self._nodes[node_id] = SimulatedNode(
                    entry,
                    self._memories.setdefault(node_id, Memory()),
                    http=self._http,
                    base_url=self._base_url,
                    clock=time.time,
                    remember=self._save,
                )
        log.info("playing the agents of %d nodes", len(self._nodes))

    def _recall(self) -> dict[str, Memory]:
        try:
            kept = json.loads(self._memory_path.read_text())
        except FileNotFoundError:
            return {}
        return {node_id: Memory.from_json(memory) for node_id, memory in kept.items()}

    def _save(self) -> None:
        """Write the memory at once, so that nothing is said that a later process would not know of.

        In one step: whoever reads it finds all of the old one or all of the new.
        """
        fresh = self._memory_path.with_suffix(".new")
        fresh.write_text(
            json.dumps({node_id: memory.as_json() for node_id, memory in self._memories.items()})
        )
        os.replace(fresh, self._memory_path)
