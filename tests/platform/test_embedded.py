"""The parts of the embedded home: ports, children, files and whose they are."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from openrelay.embedded import binaries, ports, processes
from openrelay.embedded.children import Children
from openrelay.embedded.home import SYSTEM_FOLDER, AlreadyRunning, Home, HomeError
from openrelay.embedded.postgres import Postgres
from openrelay.embedded.processes import MARK, Program
from tests.support.web import ROOT

AS_ROOT = os.geteuid() == 0


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    yield home
    home.destroy()


def modes(path):
    """The permissions of `path` and of all its parents."""
    return {each: oct(each.stat().st_mode) for each in [path, *path.parents]}


def sleeper(home, name="sleeper", code="import time; time.sleep(60)"):
    return Program(
        name=name,
        command=[sys.executable, "-c", code],
        env={MARK: str(home.path), "PATH": os.defpath},
        log=home.path / "logs" / f"{name}.log",
        stop_seconds=2,
    )


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


def test_a_taken_port_is_passed_over():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not ports.is_free(port)
        assert ports.find(port) > port


def test_a_port_that_is_held_is_only_for_those_who_share_it():
    port = ports.find(30000)
    with ports.hold(port):
        assert not ports.is_free(port)
        with pytest.raises(OSError, match="in use"):
            ports.hold(port)
        with socket.socket() as server:
            # As the web server does it.
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.bind(("127.0.0.1", port))
            server.listen()
            with socket.create_connection(("127.0.0.1", port), timeout=20):
                server.accept()[0].close()
    # What lingers of connections does not keep it from the next start.
    ports.hold(port).close()


def test_secrets_are_made_once_and_only_the_owner_reads_them(home):
    assert home.secret_key() == home.secret_key()
    assert home.remembered_secret("a") == home.remembered_secret("a") != home.remembered_secret("b")
    for name in ("secret", "state.json"):
        assert (home.path / name).stat().st_mode & 0o777 == 0o600
    assert home.path.stat().st_mode & 0o777 == 0o700


def test_a_home_runs_once(home):
    with home.locked():
        home.announce("http://127.0.0.1:8000")
        with pytest.raises(AlreadyRunning, match=rf"pid {os.getpid()}, http://127.0.0.1:8000"):
            Home(home.path).locked().__enter__()
    with home.locked():
        pass


def test_a_child_that_is_killed_is_started_again_and_reported(home):
    said = []
    children = Children(home, said.append)
    child = children.add(sleeper(home))
    first = child.process.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: children.tend() or (child.process and child.process.pid != first))
    assert "sleeper was killed by SIGKILL; starting it again" in said[0]
    children.stop(lambda: False)
    assert processes.born(first) is None


def test_a_child_that_keeps_ending_is_tried_less_and_less_often_and_its_log_is_shown(home):
    said = []
    children = Children(home, said.append)
    child = children.add(sleeper(home, code="print('out of cheese', flush=True); raise SystemExit(3)"))
    until(lambda: children.tend() or child.ends >= 3)
    assert "ended with exit code 3" in said[0]
    assert [line.split(" in ")[1][:3] for line in said if "again in" in line] == ["0.3", "0.6", "1.2"]
    assert any("out of cheese" in line for line in said)
    children.stop(lambda: False)


def test_what_a_child_started_goes_with_it(home):
    spawn = "import subprocess, time; subprocess.Popen(['sleep', '60'])"
    children = Children(home, print)
    child = children.add(sleeper(home, code=f"{spawn}; time.sleep(60)"))
    group = child.process.pid
    until(lambda: len(members(group)) == 2)
    os.kill(group, signal.SIGKILL)
    until(lambda: children.tend() or not members(group))
    children.stop(lambda: False)


def members(group):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[2] == str(group) and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def test_a_child_that_will_not_stop_is_ended(home):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('set'); time.sleep(60)"
    children = Children(home, print)
    child = children.add(sleeper(home, code=code.replace("'set'", "'set', flush=True")))
    until(lambda: "set" in child.program.log.read_text())
    pid = child.process.pid
    children.stop(lambda: False)
    assert processes.born(pid) is None


def test_leftovers_of_a_killed_run_are_ended_and_strangers_are_not(home):
    left = subprocess.Popen(sleeper(home).command, env={MARK: str(home.path)}, start_new_session=True)
    stranger = subprocess.Popen(sleeper(home).command, start_new_session=True)
    entry = {"name": "web", "stopSignal": int(signal.SIGTERM), "stopSeconds": 2}
    try:
        home.remember(
            processes=[
                {**entry, "pid": left.pid, "born": processes.born(left.pid)},
                # Its pid was used again by a process that was born at another time.
                {**entry, "pid": stranger.pid, "born": "1"},
            ]
        )
        said = []
        Children(home, said.append).end_leftovers()
        assert left.wait(60) == -signal.SIGTERM
        assert stranger.poll() is None
        assert said == [f"ending a web left behind by an earlier run (pid {left.pid})"]
    finally:
        stranger.kill()
        stranger.wait()


PREPARE_AND_ASK = """
import sys
from pathlib import Path
import psycopg
from openrelay.embedded.children import Children
from openrelay.embedded.home import Home
from openrelay.embedded.postgres import Postgres

home = Home(Path(sys.argv[1]))
children = Children(home, print)
with home.locked():
    postgres = Postgres(home, home.place())
    children.add(postgres.prepare())
    try:
        postgres.open()
        with psycopg.connect(postgres.url) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
            connection.execute("INSERT INTO kept VALUES (1)")
            rows = connection.execute("SELECT count(*), current_setting('fsync') FROM kept").fetchone()
            me = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
            print(*rows, connection.execute(me).fetchone()[0])
    finally:
        children.stop(lambda: False)
"""


def run_python(code, *arguments, user=None, python=sys.executable):
    """Run `code` in a process of its own, with the packages of this environment."""
    packages = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    return subprocess.run(
        [python, "-c", code, *map(str, arguments)],
        cwd="/",
        env={"PATH": os.defpath, "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(packages)},
        user=user,
        group=pwd.getpwnam(user).pw_gid if user else None,
        extra_groups=[] if user else None,
        capture_output=True,
        text=True,
    )


def ask(home_path, **kwargs):
    """Start PostgreSQL in that home and add a row; returns what was printed."""
    done = run_python(PREPARE_AND_ASK, home_path, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def python_for(user):
    """A Python that `user` may run and that has what we need; None when this checkout is closed to them."""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            if run_python("import psycopg, openrelay.embedded", user=user, python=python).returncode == 0:
                return python
        except OSError:
            continue
    return None


@pytest.fixture
def closed_folder():
    """A folder inside one that only its owner may enter, as a user's home is."""
    outer = Path(tempfile.mkdtemp(prefix="openrelay-closed-"))
    inner = outer / "inner"
    inner.mkdir(mode=0o700)
    yield inner
    Home(inner / "home").destroy()
    shutil.rmtree(outer)


def test_postgres_changes_no_permissions_and_keeps_its_data(closed_folder):
    programs = binaries.postgres("postgres").parent
    before = modes(closed_folder) | modes(programs)
    assert before[closed_folder] == oct(0o40700)
    home_path = closed_folder / "home"
    # With fsync, by a role that is no superuser; and the second time the first row is there.
    assert ask(home_path) == "1 on False"
    assert ask(home_path) == "2 on False"
    assert modes(closed_folder) | modes(programs) == before
    assert home_path.stat().st_mode & 0o777 == 0o700
    data = (home_path / "data").resolve()
    assert data.stat().st_mode & 0o777 == 0o700
    if AS_ROOT:
        assert data.parent == SYSTEM_FOLDER
        assert data.owner() == (data / "postgres").owner() == "openrelay-embedded"
    else:
        assert data.parent == home_path


@pytest.mark.skipif(not AS_ROOT, reason="only root can become another user")
def test_an_ordinary_user_keeps_everything_in_the_home():
    with tempfile.TemporaryDirectory(prefix="openrelay-nobody-") as name:
        folder = Path(name)
        shutil.chown(folder, "nobody")
        python = python_for("nobody")
        if python is None:
            pytest.skip("this checkout is closed to other users")
        before = modes(folder)
        assert ask(folder / "home", user="nobody", python=python) == "1 on False"
        assert modes(folder) == before
        assert (folder / "home" / "data" / "postgres").owner() == "nobody"
        # Root does not take over what is another's.
        with pytest.raises(HomeError, match="made by nobody"):
            Home(folder / "home").place()


@pytest.mark.skipif(not AS_ROOT, reason="only root's data lives outside the home")
def test_root_follows_no_link_out_of_its_own_folder(home, tmp_path):
    bent = tmp_path / "somewhere"
    bent.mkdir()
    (home.path / "data").symlink_to(bent)
    with pytest.raises(HomeError, match="not a folder of /var/lib/openrelay"):
        home.place()
    assert bent.owner() == "root"
    (home.path / "data").unlink()


def test_the_database_wants_a_password(home):
    with home.locked():
        postgres = Postgres(home, home.place(), careless=True)
        children = Children(home, print)
        children.add(postgres.prepare())
        try:
            postgres.open()
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(f"postgres://openrelay@127.0.0.1:{postgres.port}/openrelay")
            log = (home.path / "logs" / "postgres.log").read_text()
            assert home.remembered_secret("postgresPassword") not in log
        finally:
            children.stop(lambda: False)


@pytest.mark.skipif(not processes.LINUX, reason="only Linux shows which signals a process blocks")
def test_a_make_that_is_interrupted_alone_is_noticed(tmp_path):
    makefile = tmp_path / "Makefile"
    makefile.write_text("up:\n\t@echo up; exec sleep 60\n")
    make = subprocess.Popen(
        ["make", "-f", str(makefile)],
        # Below another make, as here under `make test`, it would speak of folders first.
        env={name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))},
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )

    def becomes(wanted):
        deadline = time.monotonic() + 60
        while processes.interrupted(make.pid) != wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        return processes.interrupted(make.pid) == wanted

    try:
        assert make.stdout.readline() == b"up\n"
        # It blocks signals for a moment around starting what it runs.
        assert becomes(False)
        make.send_signal(signal.SIGINT)
        assert becomes(True)
        assert make.poll() is None
    finally:
        processes.signal_group(make.pid, signal.SIGKILL)
        make.wait()
    assert not processes.interrupted(make.pid)
