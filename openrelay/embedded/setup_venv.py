"""Make or renew .venv: `python3 openrelay/embedded/setup_venv.py run|dev|sdk…`.

Runs before anything is installed, so it needs the standard library only. What is there already is judged by a
stamp of each requirements file, so that a checkout of other pins is noticed whatever the files' times are.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / "requirements.json"
# What each set installs, and which sets it brings along.
FILES = {"run": "requirements.txt", "dev": "requirements-dev.txt", "sdk": "requirements-sdk.txt"}
INCLUDES = {"run": ["run"], "dev": ["run", "dev"], "sdk": ["sdk"]}

NO_ENSUREPIP = """\
This Python ({python}) cannot make a virtual environment with pip; a part of it is missing.
Install it (Debian and Ubuntu: `apt install python3-venv`),
or name another Python: make PYTHON=/path/to/python3 up"""


def stamp(name: str) -> str:
    """The hash of the requirements file of the set `name`."""
    return hashlib.sha256((ROOT / FILES[name]).read_bytes()).hexdigest()


def stamps() -> dict[str, str]:
    """What is installed, by set; nothing when the environment is missing or its Python is gone."""
    try:
        subprocess.run([PYTHON, "-c", ""], check=True, capture_output=True)
        found: dict[str, str] = json.loads(STAMPS.read_text())
    except (OSError, ValueError, subprocess.CalledProcessError):
        return {}
    return found


def create() -> list[str]:
    """Make the environment if it does not work; returns the command that is its pip."""
    pip = [str(PYTHON), "-m", "pip"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        subprocess.run([*pip, "--version"], check=True, capture_output=True)
        return pip
    own = find_spec("ensurepip") is not None
    if not own and find_spec("pip") is None:
        sys.exit(NO_ENSUREPIP.format(python=sys.executable))
    print(f"making {VENV}", flush=True)
    if VENV.exists():
        shutil.rmtree(VENV)
    command = [sys.executable, "-m", "venv", *([] if own else ["--without-pip"]), str(VENV)]
    if subprocess.run(command).returncode:
        sys.exit(NO_ENSUREPIP.format(python=sys.executable))
    return pip if own else [sys.executable, "-m", "pip", "--python", str(PYTHON)]


def install(pip: list[str], name: str) -> None:
    """Install the set `name` exactly as it is pinned."""
    command = [*pip, "install", "--quiet", "--disable-pip-version-check", "--no-input", "--require-hashes"]
    command += ["-r", str(ROOT / FILES[name])]
    if name == "sdk":
        # The client imports as `openrelay`, as the server does: it gets a folder of its own, off the path.
        shutil.rmtree(VENV / "openrelay-sdk", ignore_errors=True)
        command += ["--no-deps", "--target", str(VENV / "openrelay-sdk")]
    print(f"installing {FILES[name]}", flush=True)
    if subprocess.run(command, env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}).returncode:
        sys.exit(f"Could not install {FILES[name]}: pip says why, above. Mend that and run again.")


def main(names: list[str]) -> None:
    """Bring .venv to what `names` need, under a lock: two `make up` may start from one checkout."""
    if sys.version_info < (3, 11):  # noqa: UP036  (the one file that an older Python may be asked to run)
        sys.exit(f"OpenRelay needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}.")
    with (ROOT / "requirements.txt").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        have = stamps()
        missing = [name for name in names if have.get(name) != stamp(name)]
        if not missing:
            return
        pip = create()
        for name in missing:
            install(pip, name)
            have |= {each: stamp(each) for each in INCLUDES[name]}
            STAMPS.write_text(json.dumps(have))


if __name__ == "__main__":
    main(sys.argv[1:])
