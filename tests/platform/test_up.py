"""The whole as `make up` runs it: ready, found by commands, healed part by part, ended in order."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from random import Random

import psycopg
import pytest

from openrelay.embedded import processes
from openrelay.embedded.home import Home
from tests.support.web import ROOT, free_port

pytestmark = pytest.mark.slow

PARTS = ["postgres", "valkey", "worker", "beat", "web", "agents"]


class Up:
    """A supervisor on a home of its own."""

    def __init__(self, home):
        self.home = home
        self.terminal = home.parent / "terminal"
        self.process = None

    @property
    def env(self):
        """Next to nothing: what OpenRelay needs, it has to find or make."""
        return {"PATH": os.defpath, "OPENRELAY_HOME": str(self.home)}

    def start(self, **env):
        with self.terminal.open("ab") as terminal:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "openrelay.embedded"],
                cwd=ROOT,
                env={**self.env, **env},
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
            )
        began = time.monotonic()
        self.until(lambda: "OpenRelay is ready" in self.said(), 90)
        return time.monotonic() - began

    def said(self):
        return self.terminal.read_text()

    def until(self, condition, seconds):
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def stop(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.process.wait(60)

    def settings(self):
        lines = (self.home / "run.env").read_text().splitlines()
        return {name: value.strip("'") for name, _, value in (line.partition("=") for line in lines)}

    def children(self):
        return {
            each["name"]: each for each in json.loads((self.home / "state.json").read_text())["processes"]
        }

    def ready(self):
        try:
            with urllib.request.urlopen(f"{self.settings()['BASE_URL']}/readyz", timeout=15) as answer:
                return answer.status == 200
        except OSError:
            return False

    def manage(self, *arguments):
        return subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=self.env, capture_output=True, text=True
        )


@pytest.fixture(scope="module")
def up():
    folder = Path(tempfile.mkdtemp(prefix="openrelay-up-"))
    up = Up(folder / "home")
    try:
        up.start()
        yield up
    finally:
        if up.process.poll() is None:
            up.process.send_signal(signal.SIGTERM)
            try:
                up.process.wait(60)
            except subprocess.TimeoutExpired:
                up.process.kill()
        Home(up.home).destroy()
        shutil.rmtree(folder)


def test_it_is_ready_and_says_where(up):
    settings = up.settings()
    assert up.ready()
    assert f"OpenRelay is ready: {settings['BASE_URL']}" in up.said()
    assert set(up.children()) >= set(PARTS)
    for name in ("run.env", "secret", "state.json"):
        assert (up.home / name).stat().st_mode & 0o777 == 0o600
    # What is secret is on no command line.
    for each in up.children().values():
        line = Path(f"/proc/{each['pid']}/cmdline").read_bytes().decode()
        assert settings["SECRET_KEY"] not in line
        assert settings["REDIS_URL"].split("@")[0][9:] not in line


def test_a_second_one_on_the_same_home_says_so(up):
    done = subprocess.run(
        [sys.executable, "-m", "openrelay.embedded"], cwd=ROOT, env=up.env, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert f"already runs on {up.home}" in done.stderr
    assert f"pid {up.process.pid}" in done.stderr
    assert up.settings()["BASE_URL"] in done.stderr
    assert up.ready()


def test_commands_beside_it_use_its_database(up):
    done = up.manage("showmigrations", "api")
    assert done.returncode == 0, done.stderr
    assert "[X] 0002_beat" in done.stdout


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_part_is_started_again(up, part):
    before = up.children()
    os.kill(before[part]["pid"], signal.SIGKILL)
    up.until(lambda: up.children().get(part, before[part])["pid"] != before[part]["pid"], 20)
    up.until(up.ready, 60)
    assert f"{part} was killed by SIGKILL; starting it again" in up.said()
    after = up.children()
    assert {name for name in after if after[name]["pid"] != before[name]["pid"]} == {part}
    if part not in ("valkey", "worker", "beat"):
        return
    # Not only up again but at work: a beat is written after the kill.
    with psycopg.connect(up.settings()["DATABASE_URL"], autocommit=True) as connection:
        since = connection.execute("SELECT now()").fetchone()[0]
        up.until(lambda: connection.execute("SELECT at FROM api_beat").fetchone()[0] > since, 45)


def events(connection, since):
    """How often each thing that matters was written to the audit log after `since`."""
    rows = connection.execute(
        "SELECT event, count(*) FROM audit_auditevent WHERE created_at > %s "
        "AND split_part(event, '.', 1) <> ALL(%s) GROUP BY 1",
        [since, ["request", "node"]],
    )
    return dict(rows.fetchall())


def test_the_tour_completes_with_nothing_lost_or_doubled_while_parts_are_killed(up):
    random = Random(20261129)
    with psycopg.connect(up.settings()["DATABASE_URL"], autocommit=True) as connection:
        began = connection.execute("SELECT now()").fetchone()[0]
        quiet = up.manage("tour")
        assert quiet.returncode == 0, quiet.stdout + quiet.stderr
        expected = events(connection, began)
        assert sum(expected.values()) > 10
        began = connection.execute("SELECT now()").fetchone()[0]
        tour = subprocess.Popen(
            [sys.executable, "manage.py", "tour", "--pause", "1"],
            cwd=ROOT,
            env=up.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        victims = ["web", "worker", "beat", "agents"] * 2
        random.shuffle(victims)
        for part in victims:
            # Long enough for the last victim to be at work again now and then, also on a busy machine.
            time.sleep(random.uniform(1, 4))
            with contextlib.suppress(KeyError, ProcessLookupError):
                os.kill(up.children()[part]["pid"], signal.SIGKILL)
        assert tour.poll() is None, "the tour was over too soon: it has to be killed more quickly"
        said, _ = tour.communicate(timeout=180)
        assert tour.returncode == 0, said
        up.until(up.ready, 60)
        assert events(connection, began) == expected, said
        claims, doubled = connection.execute(
            "SELECT count(*), count(*) - count(DISTINCT unit_id) FROM compute_claim"
        ).fetchone()
        assert (claims, doubled) == (0, 0)
    invariants = up.manage("check_invariants")
    assert invariants.returncode == 0, invariants.stdout


def test_no_request_meets_a_connection_that_died_with_the_database(up):
    os.kill(up.children()["postgres"]["pid"], signal.SIGKILL)
    up.until(up.ready, 60)
    # More requests than there are connections in all pools together.
    for _ in range(40):
        assert up.ready()


def test_after_the_supervisor_is_killed_the_next_start_finds_everything(up):
    with psycopg.connect(up.settings()["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept AS SELECT 42 AS answer")
    settings, before = up.settings(), up.children()
    up.process.kill()
    up.process.wait()
    up.terminal.write_text("")
    took = up.start()
    assert took < 60
    for each in before.values():
        assert processes.born(each["pid"]) != each["born"], f"{each['name']} of the killed run still lives"
    assert up.settings()["SECRET_KEY"] == settings["SECRET_KEY"]
    assert up.settings()["PORT"] == settings["PORT"]
    with psycopg.connect(up.settings()["DATABASE_URL"], autocommit=True) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
        connection.execute("DROP TABLE kept")


def test_a_named_port_that_is_taken_is_refused(up):
    folder = Path(tempfile.mkdtemp(prefix="openrelay-up-"))
    try:
        env = {**up.env, "OPENRELAY_HOME": str(folder / "home"), "PORT": up.settings()["PORT"]}
        # With services named nothing of its own is started before the port is looked at.
        env |= {name: up.settings()[name] for name in ("DATABASE_URL", "REDIS_URL")}
        done = subprocess.run(
            [sys.executable, "-m", "openrelay.embedded"], cwd=ROOT, env=env, capture_output=True, text=True
        )
        assert done.returncode == 1
        assert f"PORT {env['PORT']} cannot be had" in done.stderr
        assert not (folder / "home" / "data").exists()
    finally:
        shutil.rmtree(folder)


def test_a_database_that_is_not_there_is_said_plainly(tmp_path):
    env = {"PATH": os.defpath, "OPENRELAY_HOME": str(tmp_path / "home"), "PORT": str(free_port())}
    env |= {"DATABASE_URL": "postgres://me:hidden@127.0.0.1:1/none", "REDIS_URL": "redis://127.0.0.1:1/0"}
    done = subprocess.run(
        [sys.executable, "-m", "openrelay.embedded"], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "127.0.0.1:1/none" in done.stderr
    assert "DATABASE_URL" in done.stderr
    assert "hidden" not in done.stderr


def test_ctrl_c_ends_all_of_it(up):
    before, url = up.children(), up.settings()["BASE_URL"]
    assert up.stop() == 0
    assert up.said().rstrip().endswith("stopped")
    for each in before.values():
        assert processes.born(each["pid"]) is None, f"{each['name']} still lives"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{url}/livez", timeout=2)
    log = (up.home / "logs" / "postgres.log").read_text()
    assert log.rstrip().endswith("database system is shut down")
