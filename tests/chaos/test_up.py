"""The whole as `make up` runs it: ready, found by commands, healed part by part, ended in order.

The last of the folder, for in the end there is nothing left of it.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pytest

from openrelay.embedded import processes
from tests.chaos.running import SUPERVISED, Whole
from tests.support.web import ROOT, free_port

pytestmark = pytest.mark.slow


def another(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Start one more, which has to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "openrelay.embedded"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_is_ready_and_says_where(whole: Whole) -> None:
    settings = whole.settings
    whole.until("it is ready", whole.ready)
    assert f"OpenRelay is ready: {settings['BASE_URL']}" in whole.said()
    assert set(whole.children()) >= set(SUPERVISED)
    for name in ("run.env", "secret", "state.json"):
        assert (whole.home / name).stat().st_mode & 0o777 == 0o600
    # What is secret is on no command line.
    for pid in whole.children().values():
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
        assert settings["SECRET_KEY"] not in line
        assert settings["REDIS_URL"].split("@")[0][9:] not in line


def test_a_second_one_on_the_same_home_says_so(whole: Whole) -> None:
    assert whole.supervisor is not None
    done = another(whole.env)
    assert done.returncode != 0
    assert f"already runs on {whole.home}" in done.stderr
    assert f"pid {whole.supervisor.pid}" in done.stderr
    assert whole.settings["BASE_URL"] in done.stderr
    assert whole.ready()


def test_commands_beside_it_use_its_database(whole: Whole) -> None:
    done = whole.manage("showmigrations", "api")
    assert done.returncode == 0, done.stderr
    assert "[X] 0002_beat" in done.stdout


@pytest.mark.parametrize("part", SUPERVISED)
def test_a_killed_part_is_started_again(whole: Whole, part: str) -> None:
    before = whole.children()
    os.kill(before[part], signal.SIGKILL)
    whole.until(f"{part} is back", lambda: whole.children().get(part, before[part]) != before[part])
    whole.until("all is well again", whole.ready)
    assert f"{part} was killed by SIGKILL; starting it again" in whole.said()
    after = whole.children()
    assert {name for name in after if after[name] != before[name]} == {part}
    if part in ("valkey", "worker", "beat"):
        # Not only up again but at work: a beat is written after the kill.
        ((since,),) = whole.rows("SELECT now()")
        beat = "SELECT at > %s FROM api_beat"
        whole.until("a beat is written", lambda: whole.rows(beat, since) == [(True,)])


def test_no_request_meets_a_connection_that_died_with_the_database(whole: Whole) -> None:
    os.kill(whole.children()["postgres"], signal.SIGKILL)
    whole.until("all is well again", whole.ready)
    # More requests than there are connections in all pools together.
    for _ in range(40):
        assert whole.ready()


def test_a_named_port_that_is_taken_is_refused(whole: Whole) -> None:
    folder = Path(tempfile.mkdtemp(prefix="openrelay-up-"))
    try:
        env = {**whole.env, "OPENRELAY_HOME": str(folder / "home"), "PORT": whole.settings["PORT"]}
        # With services named nothing of its own is started before the port is looked at.
        env |= {name: whole.settings[name] for name in ("DATABASE_URL", "REDIS_URL")}
        done = another(env)
        assert done.returncode == 1
        assert f"PORT {env['PORT']} cannot be had" in done.stderr
        assert not (folder / "home" / "data").exists()
    finally:
        shutil.rmtree(folder)


def test_a_database_that_is_not_there_is_said_plainly(tmp_path: Path) -> None:
    env = {"PATH": os.defpath, "OPENRELAY_HOME": str(tmp_path / "home"), "PORT": str(free_port())}
    env |= {"DATABASE_URL": "postgres://me:hidden@127.0.0.1:1/none", "REDIS_URL": "redis://127.0.0.1:1/0"}
    done = another(env)
    assert done.returncode == 1
    assert "127.0.0.1:1/none" in done.stderr
    assert "DATABASE_URL" in done.stderr
    assert "hidden" not in done.stderr


def test_ctrl_c_ends_all_of_it(whole: Whole) -> None:
    assert whole.supervisor is not None
    before, url = whole.children(), whole.settings["BASE_URL"]
    whole.supervisor.send_signal(signal.SIGINT)
    assert whole.supervisor.wait(120) == 0
    assert whole.said().rstrip().endswith("stopped")
    for name, pid in before.items():
        assert processes.born(pid) is None, f"{name} still lives"
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/livez", timeout=2, trust_env=False)
    log = (whole.home / "logs" / "postgres.log").read_text()
    assert log.rstrip().endswith("database system is shut down")
