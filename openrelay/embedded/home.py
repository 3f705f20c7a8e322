"""The home of an embedded OpenRelay: OPENRELAY_HOME, with all that it keeps.

lock         held while it runs; says by whom and where
state.json   ports, passwords of the embedded servers, running processes (0600)
secret       SECRET_KEY (0600)
run.env      what commands beside it need (0600)
data/        PostgreSQL's and Valkey's files; as root a link to /var/lib/openrelay/<name>
logs/        one a process
demo.json, agents.json   written by seeding the demo
"""

import contextlib
import fcntl
import json
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openrelay.embedded import binaries

# PostgreSQL refuses to run as root. Root's instances live here, with a system user of their own.
SYSTEM_FOLDER = Path("/var/lib/openrelay")
SYSTEM_USER = "openrelay-embedded"


class HomeError(RuntimeError):
    """Something about the home keeps it from running; the message says what to do."""


class AlreadyRunning(HomeError):
    """Another process runs this home."""


@dataclass(frozen=True)
class Place:
    """Where the embedded servers keep their files, as whom they run, and which programs they are."""

    data: Path
    user: str | None
    postgres_programs: Path
    valkey_server: Path

    def folder(self, name: str) -> Path:
        """A folder in the data, owned by whom the servers run as."""
        path = self.data / name
        if not path.is_dir():
            path.mkdir(mode=0o700)
            self.give(path)
        return path

    def give(self, path: Path) -> None:
        """Hand `path` to whom the servers run as."""
        if self.user:
            owner = pwd.getpwnam(self.user)
            os.chown(path, owner.pw_uid, owner.pw_gid)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(name, path)


def _ensure_system_user() -> None:
    with contextlib.suppress(KeyError):
        pwd.getpwnam(SYSTEM_USER)
        return
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    useradd = shutil.which("useradd", path=path)
    if useradd is None:
        raise HomeError(
            f"As root the embedded PostgreSQL needs a system user `{SYSTEM_USER}`, and there is no useradd "
            "to make it. Make it, run OpenRelay as an ordinary user, or set DATABASE_URL and REDIS_URL."
        )
    command = [useradd, "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    made = subprocess.run(
        [*command, "--shell", "/usr/sbin/nologin", SYSTEM_USER], capture_output=True, text=True
    )
    with contextlib.suppress(KeyError):
        pwd.getpwnam(SYSTEM_USER)  # also when another start made it first
        return
    raise HomeError(f"Could not make the system user `{SYSTEM_USER}`: {made.stderr.strip()}")


class Home:
    """One home folder and what it remembers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise HomeError(
                f"The home {path} cannot be made: {error.strerror}. Set OPENRELAY_HOME."
            ) from None
        if not os.access(path, os.W_OK | os.X_OK):
            raise HomeError(
                f"The home {path} belongs to {self._owner(path)} and is not yours to write. Run OpenRelay as "
                "that user, or set OPENRELAY_HOME to a folder of yours."
            )

    @staticmethod
    def _owner(path: Path) -> str:
        try:
            return path.owner()
        except KeyError:
            return f"user {path.stat().st_uid}"

    @property
    def state(self) -> dict[str, Any]:
        """What is remembered from one run to the next."""
        try:
            found: dict[str, Any] = json.loads((self.path / "state.json").read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            raise HomeError(f"{self.path / 'state.json'} is not JSON any more; restore it.") from None
        return found

    def remember(self, **changes: Any) -> None:
        """Add to what is remembered."""
        write_private(self.path / "state.json", json.dumps({**self.state, **changes}, indent=2) + "\n")

    def remembered_secret(self, name: str) -> str:
        """A password that is made once."""
        found = self.state.get(name)
        if not isinstance(found, str):
            found = secrets.token_hex(24)
            self.remember(**{name: found})
        return found

    def secret_key(self) -> str:
        """The SECRET_KEY of this home, made once."""
        path = self.path / "secret"
        if not path.exists():
            write_private(path, secrets.token_urlsafe(50))
        return path.read_text().strip()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home for this process. Raises AlreadyRunning, saying which process has it and its URL."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                said = os.pread(descriptor, 4096, 0).decode().strip() or "starting up"
                raise AlreadyRunning(
                    f"OpenRelay already runs on {self.path} ({said}). Stop it with Ctrl-C there, or set "
                    "OPENRELAY_HOME to run another beside it."
                ) from None
            self._descriptor = descriptor
            self.announce("starting up")
            yield
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def announce(self, what: str) -> None:
        """Say in the lock what runs here."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"pid {os.getpid()}, {what}\n".encode(), 0)

    def place(self) -> Place:
        """Where the embedded servers of this home live; made on first use. The home must be locked."""
        data = self.path / "data"
        if os.geteuid() != 0:
            if data.is_symlink():
                raise HomeError(
                    f"{data} was made by root. Run this home as root, or set OPENRELAY_HOME to another."
                )
            data.mkdir(mode=0o700, exist_ok=True)
            return Place(data, None, binaries.postgres("postgres").parent, binaries.valkey())
        if data.is_dir() and not data.is_symlink():
            raise HomeError(
                f"{data} was made by {self._owner(data)}. Run this home as that user, or set OPENRELAY_HOME "
                "to another."
            )
        _ensure_system_user()
        SYSTEM_FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
        programs, valkey_server = binaries.copy_for_others(SYSTEM_FOLDER / "programs" / binaries.version())
        if not data.is_symlink():
            # A name of its own for each home that is made: one made anew at an old path starts empty.
            target = Path(tempfile.mkdtemp(prefix=f"{self.path.name}-", dir=SYSTEM_FOLDER))
            data.symlink_to(target)
            (target / "home").write_text(f"{self.path}\n")
        target = data.resolve()
        # What follows hands the folder to another user, so a link that somebody bent is not followed.
        if target.parent != SYSTEM_FOLDER or not target.is_dir():
            raise HomeError(
                f"{data} points to {target}, which is gone or not a folder of {SYSTEM_FOLDER}. Restore it, "
                f"or remove {self.path} to begin anew."
            )
        place = Place(target, SYSTEM_USER, programs, valkey_server)
        place.give(target)
        return place

    @staticmethod
    def strays() -> list[Path]:
        """Root's data folders whose home is gone: nobody will use them again."""
        found = []
        for note in SYSTEM_FOLDER.glob("*/home"):
            link = Path(note.read_text().strip()) / "data"
            if not link.is_symlink() or link.resolve() != note.parent:
                found.append(note.parent)
        return found

    def destroy(self) -> None:
        """Remove the home and its data, wherever that is."""
        shutil.rmtree((self.path / "data").resolve(), ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)
