"""Make or renew .venv: `python3 openrelay/embedded/setup_venv.py run|dev|sdk…`.

Runs before anything is installed, so it needs the standard library only. What is there already is judged by a
stamp of each requirements file, so that a checkout of other pins is noticed whatever the files' times are.
"""

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
    if not works("-c", ""):
        return {}
    try:
        found: dict[str, str] = json.loads(STAMPS.read_text())
    except (OSError, ValueError):
        return {}
    return found


def works(*command: str) -> bool:
    """Whether the Python of the environment is there and runs `command`."""
    try:
        return subprocess.run([PYTHON, *command], capture_output=True).returncode == 0
    except OSError:
        return False


def create() -> list[str]:
    """Make the environment if it does not work; returns the command that is its pip."""
    if works("-m", "pip", "--version"):
        return [str(PYTHON), "-m", "pip"]
    # Without ensurepip the pip of this Python can still install into another.
    bare = find_spec("ensurepip") is None
    if bare and find_spec("pip") is None:
        sys.exit(NO_ENSUREPIP.format(python=sys.executable))
    if not (bare and works("-c", "")):
        print(f"making {VENV}", flush=True)
        shutil.rmtree(VENV, ignore_errors=True)
        if subprocess.run([sys.executable, "-m", "venv", *(["--without-pip"] * bare), str(VENV)]).returncode:
            sys.exit(NO_ENSUREPIP.format(python=sys.executable))
    return [sys.executable, "-m", "pip", "--python", str(PYTHON)] if bare else [str(PYTHON), "-m", "pip"]


def install(pip: list[str], name: str) -> None:
    """Install the set `name` exactly as it is pinned."""
    command = [*pip, "install", "-qq", "--disable-pip-version-check", "--no-input", "--require-hashes"]
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
