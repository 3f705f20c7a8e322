"""The supervisor: brings up all of OpenRelay on one machine, keeps it up, and ends it in order."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from openrelay.embedded import ports, probing, processes
from openrelay.embedded.binaries import Missing
from openrelay.embedded.children import Children
from openrelay.embedded.home import AlreadyRunning, Home, HomeError, write_private
from openrelay.embedded.postgres import Postgres
from openrelay.embedded.processes import MARK, Program
from openrelay.embedded.valkey import Valkey
from openrelay.web.options import OptionError, Options, raise_file_limit

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 90
# How often the running whole is asked how it is, and for how many seconds a part may give no sign of life
# before it is restarted: PostgreSQL and Valkey, the web server, worker and beat.
LOOK_SECONDS = 5
SERVICE_SECONDS = 15
UNWELL_SECONDS = 60
WORK_SECONDS = 30
# A worker notes every 10 s that beat and it work. From this age on it is taken that one of them does not.
BEAT_AGE_SECONDS = 45


class Stopped(Exception):
    """Somebody asked for the end while things were starting."""


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


class Supervisor:
    """One run of one home."""

    def __init__(self, home: Home, environ: dict[str, str], make: int | None = None) -> None:
        self.home = home
        # The process to follow, and when it is looked at next.
        self.make = make
        self.make_interrupted = False
        self.look_at = time.monotonic() + 1
        self.given = environ
        self.children = Children(home, _say)
        self.asked = 0
        self.asked_at = 0.0
        self.unwell: dict[str, float] = {}
        self.reported: set[str] = set()
        self.held: socket.socket | None = None
        self.host = environ.get("WEB_HOST") or "127.0.0.1"

    def run(self) -> int:
        """Bring everything up and stay until asked to stop; returns the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup ignores the hang-up, and so does what it starts.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._ask)
        with self.home.locked():
            try:
                self._bring_up()
                self._stay()
            except Stopped:
                pass
            except (HomeError, Missing) as error:
                print(f"\n{error}", file=sys.stderr, flush=True)
                return 1
            finally:
                if self.children.all:
                    _say("stopping")
                self.children.stop(lambda: self.asked > 1)
            _say("stopped")
        return 0

    def _ask(self, _number: int, _frame: object) -> None:
        # The same wish may arrive twice at once, from the terminal and by way of make; patience ends later.
        if time.monotonic() - self.asked_at > 1:
            self.asked += 1
            self.asked_at = time.monotonic()

    def _pause(self, seconds: float = 0.05) -> None:
        if self.make is not None and time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + 1
            before, self.make_interrupted = self.make_interrupted, processes.interrupted(self.make)
            # Twice in a row: a make that only just started us may block signals for a moment too.
            if before and self.make_interrupted:
                self.make = None
                self._ask(signal.SIGINT, None)
        if self.asked:
            raise Stopped
        self.children.tend()
        time.sleep(seconds)

    def _bring_up(self) -> None:
        self.children.end_leftovers()
        self.database_url, self.redis_url = database_url, redis_url = self._services()
        port = self._port()
        self.local = f"http://{self._reachable_host()}:{port}"
        self.url = self.given.get("BASE_URL") or self.local
        settings = {
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "SECRET_KEY": self.given.get("SECRET_KEY") or self.home.secret_key(),
            "PORT": str(port),
            "BASE_URL": self.url,
        }
        if self.given.get("REDIS_PREFIX"):
            # Else what a command beside us queues would be in a queue that no worker looks into.
            settings["REDIS_PREFIX"] = self.given["REDIS_PREFIX"]
        write_private(
            self.home.path / "run.env", "".join(f"{name}='{value}'\n" for name, value in settings.items())
        )
        self.env = {
            **self.given,
            **settings,
            # Our own server is spoken to directly; before another one there may be a pooler.
            "DATABASE_PREPARES": self.given.get(
                "DATABASE_PREPARES", str(not self.given.get("DATABASE_URL")).lower()
            ),
            "OPENRELAY_HOME": str(self.home.path),
            "DJANGO_SETTINGS_MODULE": self.given.get("DJANGO_SETTINGS_MODULE", "openrelay.settings"),
            "PYTHONUNBUFFERED": "1",
            MARK: str(self.home.path),
        }
        self._prepare()
        self.children.add(self._program("worker", self._celery("worker"), stop_seconds=15))
        self.children.add(self._program("beat", self._celery("beat")))
        # A thread that has to wait for a connection serves nobody: the pool has one for each.
        options = self._web_options()
        pool = self._number("DATABASE_POOL_SIZE", options.threads)
        self.children.add(
            self._program(
                "web", ["-m", "openrelay.web"], stop_seconds=options.stop_seconds + 3, DATABASE_POOL_SIZE=pool
            )
        )
        self.home.announce(self.url)
        self._agents()
        self._wait_until_ready()
        self._tell()

    def _services(self) -> tuple[str, str]:
        """Start the embedded servers that no address was given for; returns both addresses."""
        database_url, redis_url = self.given.get("DATABASE_URL", ""), self.given.get("REDIS_URL", "")
        if database_url and redis_url:
            return database_url, redis_url
        place = self.home.place()
        for stray in self.home.strays() if os.geteuid() == 0 else []:
            _say(f"note: {stray} holds the data of a home that is gone; remove it if you do not want it")
        postgres = Postgres(self.home, place) if not database_url else None
        valkey = Valkey(self.home, place) if not redis_url else None
        if postgres:
            if not (postgres.folder / "PG_VERSION").exists():
                _say("making the database")
            self.children.add(postgres.prepare())
        if valkey:
            self.children.add(valkey.prepare())
            valkey.open(self._pause)
        if postgres:
            postgres.open(self._pause)
        return postgres.url if postgres else database_url, valkey.url if valkey else redis_url

    def _port(self) -> int:
        """The web server's port, held from now on for as long as we run, whatever happens to the server."""
        given = self.given.get("PORT")
        if given:
            if not given.isdigit() or not 0 < int(given) < 65536:
                raise HomeError(f"PORT is `{given}`; it has to be a number from 1 to 65535.")
            try:
                self.held = ports.hold(int(given), self.host)
            except OSError as error:
                raise HomeError(
                    f"PORT {given} cannot be had on {self.host}: {error.strerror}. Name another, or none: "
                    "a free one is found."
                ) from None
            return int(given)
        port: int = self.home.state.get("port", 8000)
        while True:
            try:
                self.held = ports.hold(port, self.host)
                break
            except OSError:
                port = ports.find(8000 if port < 8000 else port + 1, self.host)
        self.home.remember(port=port)
        return port

    def _reachable_host(self) -> str:
        if self.host in ("0.0.0.0", "::", ""):  # noqa: S104  (compared, not bound)
            return "127.0.0.1"
        return f"[{self.host}]" if ":" in self.host else self.host

    def _web_options(self) -> Options:
        """The web server's limits; raises the limit of open files, or says that it is too low."""
        try:
            options = Options.read(self.given)
        except OptionError as error:
            raise HomeError(str(error)) from None
        if missing := raise_file_limit(options.connections):
            _say(missing)
        return options

    def _number(self, name: str, default: int) -> str:
        value = self.given.get(name) or str(default)
        if not value.isdigit() or int(value) < 1:
            raise HomeError(f"{name} is `{value}`; it has to be a number of 1 or more.")
        return value

    def _program(self, name: str, command: list[str], *, stop_seconds: float = 10, **env: str) -> Program:
        return Program(
            name=name,
            command=[sys.executable, *command],
            env={**self.env, **env},
            log=self.home.path / "logs" / f"{name}.log",
            stop_seconds=stop_seconds,
        )

    def _celery(self, part: str) -> list[str]:
        command = ["-m", "celery", "-A", "openrelay.celery", "--quiet", part]
        if part == "beat":
            return [*command, "--pidfile", ""]
        # Threads: tasks wait for the database, not for the processor, and one process is one thing to kill.
        concurrency = self._number("WORKER_THREADS", 4)
        return [
            *command,
            "--pool",
            "threads",
            "--concurrency",
            concurrency,
            "--without-gossip",
            "--without-mingle",
        ]

    def _prepare(self) -> None:
        """Migrate, and seed the demo unless DEMO=false."""
        _say("preparing the database")
        program = self._program("prepare", ["manage.py", "prepare"])
        process = processes.start(program)
        try:
            while process.poll() is None:
                self._pause()
        except Stopped:
            processes.signal_group(process.pid, signal.SIGTERM)
            try:
                process.wait(program.stop_seconds)
            except subprocess.TimeoutExpired:
                processes.signal_group(process.pid, signal.SIGKILL)
                process.wait()
            raise
        if process.returncode:
            raise HomeError(
                f"The database could not be prepared:\n{processes.tail(program.log, 15)}\n"
                f"The whole of it is in {program.log}."
            )

    def _agents(self) -> None:
        """Start the demo's agents once seeding has left them credentials."""
        credentials = self.home.path / "agents.json"
        if credentials.exists() and not self.children.named("agents"):
            command = [
                "manage.py",
                "simulated_agent",
                "--credentials",
                str(credentials),
                "--base-url",
                self.local,
            ]
            self.children.add(self._program("agents", command))

    def _ask_health(self, path: str) -> dict[str, Any]:
        """The answer of /livez or /readyz; without `status` when there is none."""
        try:
            with urllib.request.urlopen(f"{self.local}{path}", timeout=5) as answer:  # noqa: S310
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            try:
                found = json.load(error)
            except ValueError:
                found = {"error": f"HTTP {error.code}"}
        except (OSError, ValueError) as error:
            found = {"error": str(error)}
        return found if isinstance(found, dict) else {}

    def _wait_until_ready(self) -> None:
        _say("starting")
        deadline = time.monotonic() + READY_SECONDS
        while (found := self._ask_health("/readyz")).get("status") != "ready":
            if time.monotonic() > deadline:
                raise HomeError(
                    f"OpenRelay was not ready within {READY_SECONDS} s: {json.dumps(found)}\n"
                    f"The logs are in {self.home.path / 'logs'}."
                )
            for _ in range(4):
                self._pause()

    def _tell(self) -> None:
        demo = self.home.path / "demo.json"
        lines = ["", f"OpenRelay is ready: {self.url}"]
        if demo.exists():
            console = json.loads(demo.read_text()).get("console", {})
            lines += [
                f"  console   {console.get('url')}",
                f"            {console.get('email')}  {console.get('password')}",
                f"  demo      {demo}: keys, sessions and ids to try it with",
            ]
        lines += [
            f"  logs      {self.home.path / 'logs'}",
            f"  data      {(self.home.path / 'data').resolve()}",
            "Ctrl-C stops it; the data stays.",
            "",
        ]
        print("\n".join(lines), flush=True)

    def _stay(self) -> None:
        look = time.monotonic() + LOOK_SECONDS
        while True:
            self._pause(0.2)
            if time.monotonic() >= look:
                # From its beginning: to ask what does not answer takes its time.
                look = time.monotonic() + LOOK_SECONDS
                self._look_after()

    def _look_after(self) -> None:
        """Restart what runs but does nothing: a kill is noticed at once, a standstill only by asking.

        While PostgreSQL or the broker does not answer, the others are not judged: to restart them would not
        help, and they go on by themselves once it answers.
        """
        self._agents()
        database = probing.database_answers(self.database_url)
        broker = probing.broker_answers(self.redis_url)
        self._restart_if("PostgreSQL", not database, ["postgres"], SERVICE_SECONDS)
        self._restart_if("the broker", not broker, ["valkey"], SERVICE_SECONDS)
        if not database:
            self._forget("web")
        else:
            self._restart_if("web", self._ask_health("/livez").get("status") != "alive", ["web"])
        age = probing.beat_age_seconds(self.database_url) if database and broker else None
        late = age is not None and age > BEAT_AGE_SECONDS
        self._restart_if("background work", late, ["worker", "beat"], WORK_SECONDS)

    def _restart_if(self, what: str, unwell: bool, names: list[str], seconds: float = UNWELL_SECONDS) -> None:
        """Restart the children of these names when `what` has been unwell for so many seconds. What is not
        ours to restart is only reported.
        """
        if not unwell:
            self._forget(what)
            return
        since = self.unwell.setdefault(what, time.monotonic())
        if time.monotonic() - since < seconds or what in self.reported:
            return
        children = [child for name in names for child in self.children.named(name)]
        for child in children:
            _say(f"{child.program.name} runs but does nothing; restarting it")
            child.kill()
        if children:
            self.unwell.pop(what)
        else:
            self.reported.add(what)
            _say(f"{what} does not answer. It is not run from here: nothing is restarted, see after it.")

    def _forget(self, what: str) -> None:
        """Take it that `what` is well, or cannot be judged."""
        self.unwell.pop(what, None)
        if what in self.reported:
            self.reported.discard(what)
            _say(f"{what} answers again")


def home_path(environ: dict[str, str]) -> Path:
    """The folder that OPENRELAY_HOME names, or `var` in the checkout."""
    return Path(environ.get("OPENRELAY_HOME") or ROOT / "var").expanduser().resolve()


def main() -> int:
    """Run the home that the environment names; returns the exit code."""
    environ = dict(os.environ)
    make = None
    if "--follow-parent" in sys.argv[1:]:
        # Run by make: a make that is killed cannot say so, and must not leave everything running unseen.
        processes.die_with_parent(signal.SIGTERM)
        make = os.getppid()
    try:
        return Supervisor(Home(home_path(environ)), environ, make).run()
    except (AlreadyRunning, HomeError) as error:
        print(error, file=sys.stderr)
        return 1
