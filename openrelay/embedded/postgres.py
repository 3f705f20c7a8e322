"""The embedded PostgreSQL: a real server of this home's own, on 127.0.0.1 with passwords."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import sql

from openrelay.embedded import ports
from openrelay.embedded.home import Home, HomeError, Place
from openrelay.embedded.processes import MARK, Program

ADMIN = "postgres"
ROLE = "openrelay"
DATABASE = "openrelay"

# For tests: what is lost in a crash of the machine does not matter there.
CARELESS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


class Postgres:
    """The server of one home: made on first use, and reached by the role that owns OpenRelay's database."""

    def __init__(self, home: Home, place: Place, *, careless: bool = False) -> None:
        self.home = home
        self.place = place
        self.careless = careless
        self.folder = place.folder("postgres")
        self.port = home.state.get("postgresPort", 0)
        self._env = {
            "PATH": os.defpath,
            "LC_ALL": "C",
            "TZ": "UTC",
            MARK: str(home.path),
        }

    @property
    def url(self) -> str:
        """DATABASE_URL of the role that owns the database, and no more than that."""
        return self._url(ROLE, self.home.remembered_secret("postgresPassword"), DATABASE)

    @property
    def admin_url(self) -> str:
        """The superuser's URL."""
        return self._url(ADMIN, self.home.remembered_secret("postgresAdminPassword"), "postgres")

    def _url(self, user: str, password: str, database: str) -> str:
        return f"postgres://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def prepare(self) -> Program:
        """Make the cluster if there is none, settle on a port, and say what to run. Raises HomeError."""
        if not (self.folder / "PG_VERSION").exists():
            self._initdb()
        if not self.port or not ports.is_free(self.port):
            self.port = ports.find(self.port or ports.first_for(self.home.path, 0))
            self.home.remember(postgresPort=self.port)
        settings = [
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "timezone=UTC",
            "log_timezone=UTC",
            *(CARELESS if self.careless else ("fsync=on",)),
        ]
        return Program(
            name="postgres",
            command=[
                str(self.place.postgres_programs / "postgres"),
                "-D",
                str(self.folder),
                *(part for setting in settings for part in ("-c", setting)),
            ],
            env=self._env,
            log=self.home.path / "logs" / "postgres.log",
            user=self.place.user,
            # Fast shutdown: sessions are ended, everything committed is on disk.
            stop_signal=signal.SIGINT,
            stop_seconds=30,
        )

    def _initdb(self) -> None:
        descriptor, name = tempfile.mkstemp(dir=self.place.data)
        password = Path(name)
        try:
            os.write(descriptor, self.home.remembered_secret("postgresAdminPassword").encode())
            os.close(descriptor)
            self.place.give(password)
            made = subprocess.run(
                [str(self.place.postgres_programs / "initdb"), "-D", str(self.folder), "-U", ADMIN]
                + ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
                + ["--auth=scram-sha-256", f"--pwfile={password}"]
                + (["--no-sync"] if self.careless else []),
                env=self._env,
                cwd="/",
                user=self.place.user,
                group=self.place.user,
                extra_groups=[] if self.place.user else None,
                capture_output=True,
                text=True,
            )
        finally:
            password.unlink()
        if made.returncode:
            raise HomeError(f"PostgreSQL could not make its files in {self.folder}: {made.stderr.strip()}")

    def open(self, pause: Callable[[], None] = lambda: time.sleep(0.05), *, seconds: float = 60) -> None:
        """Wait until the server answers, then make sure of the role and its database. Raises HomeError."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                connection = psycopg.connect(self.admin_url, autocommit=True, connect_timeout=5)
                break
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    raise HomeError(f"PostgreSQL did not answer within {seconds:.0f} s: {error}") from None
                pause()
        with connection, connection.cursor() as cursor:
            role, database = sql.Identifier(ROLE), sql.Identifier(DATABASE)
            if not cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone():
                # Encrypted here, so that no log of statements ever has it in clear.
                password = connection.pgconn.encrypt_password(
                    self.home.remembered_secret("postgresPassword").encode(), ROLE.encode(), b"scram-sha-256"
                )
                cursor.execute(
                    sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password.decode()))
                )
            if not cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                cursor.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, role))
