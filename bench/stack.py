"""The embedded stack for a benchmark: a home of its own, with the bare views beside OpenRelay's."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import environ

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def running(seconds: float = 120) -> Iterator[dict[str, str]]:
    """A running OpenRelay in a temporary home; yields what its run.env says, and the home."""
    with tempfile.TemporaryDirectory(prefix="openrelay-bench-") as folder:
        home = Path(folder)
        log = home / "bench.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "openrelay.embedded"],
                cwd=ROOT,
                env={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "OPENRELAY_HOME": folder,
                    "DEMO": "false",
                    "LOG_LEVEL": "WARNING",
                    # Requests are counted as in production, and nobody reaches the limit.
                    "RATE_LIMIT_PER_MINUTE": "10000000",
                    "RATE_LIMIT_PER_ADDRESS_PER_MINUTE": "10000000",
                    "DJANGO_SETTINGS_MODULE": "bench.settings",
                },
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            deadline = time.monotonic() + seconds
            while "is ready" not in log.read_text():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"OpenRelay did not start:\n{log.read_text()}")
                time.sleep(0.2)
            values: dict[str, str] = {}
            environ.Env.read_env(home / "run.env", overwrite=True)
            for name in ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "PORT", "BASE_URL"):
                values[name] = os.environ[name]
            yield {**values, "OPENRELAY_HOME": folder}
        except Exception:
            for file in sorted((home / "logs").glob("*.log")):
                print(f"{file.name} ends:\n{file.read_text()[-2000:]}", file=sys.stderr)
            raise
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            # As root the data is outside the home.
            shutil.rmtree((home / "data").resolve(), ignore_errors=True)
