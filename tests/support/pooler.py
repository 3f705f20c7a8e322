"""PgBouncer in transaction mode before a database of its own, for tests of what runs behind a pooler."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from tests.support.web import free_port

NAME = "openrelay_pooled"
# So few that each is handed from one client to the next all the time.
SERVERS = 3
CONFIGURATION = """
[databases]
{name} = host={host} port={port} dbname={name}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listens}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
admin_users = {name}
pool_mode = transaction
default_pool_size = {servers}
max_client_conn = 200
{prepares}"""
# From here on it gives each client its prepared statements in whichever session it lends them.
KEEPS_PREPARED = (1, 22)


@dataclass(frozen=True)
class Pooler:
    """A running PgBouncer: the address through it, and the log it writes."""

    url: str
    log: Path

    def clients(self) -> int:
        """How many clients it has now, beside the one that asks."""
        with psycopg.connect(
            self.url, dbname="pgbouncer", autocommit=True, cursor_factory=psycopg.ClientCursor
        ) as console:
            return len(console.execute("SHOW CLIENTS").fetchall()) - 1

    @contextmanager
    def every_session(self) -> Iterator[list[psycopg.Connection[Any]]]:
        """A transaction in each of the server's sessions that it hands around, all open at once."""
        with ExitStack() as stack:
            sessions = [
                stack.enter_context(psycopg.connect(self.url, prepare_threshold=None)) for _ in range(SERVERS)
            ]
            pids = {session.execute("SELECT pg_backend_pid()").fetchone() for session in sessions}
            assert len(pids) == SERVERS
            yield sessions


def program() -> str:
    """The system's PgBouncer. Without it the test is skipped, and fails where everything must be tested."""
    path = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if path is None:
        reason = "pgbouncer is not installed: apt-get install pgbouncer"
        if os.environ.get("OPENRELAY_CI") or os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def version(binary: str) -> tuple[int, ...]:
    """Major and minor version of a PgBouncer."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(number) for number in said.split()[1].split(".")[:2])


@contextmanager
def running(*, prepares: bool) -> Iterator[Pooler]:
    """PgBouncer before a fresh, empty database whose owner is no superuser; both are gone afterwards.

    With `prepares` it keeps track of prepared statements; the test is skipped where it is too old to.
    """
    binary = program()
    if prepares and version(binary) < KEEPS_PREPARED:
        pytest.skip("this PgBouncer keeps no track of prepared statements; 1.22 and later do")
    with _database() as password, tempfile.TemporaryDirectory(prefix="openrelay-pooler-") as name:
        folder, port = Path(name), free_port()
        given = connection.settings_dict
        (folder / "users").write_text(f'"{NAME}" "{password}"\n')
        (folder / "ini").write_text(
            CONFIGURATION.format(
                name=NAME,
                host=given["HOST"],
                port=given["PORT"],
                listens=port,
                folder=folder,
                servers=SERVERS,
                prepares="max_prepared_statements = 200\n" if prepares else "",
            )
        )
        who: dict[str, Any] = {}
        if os.geteuid() == 0:  # which it refuses to be
            nobody = pwd.getpwnam("nobody")
            who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            for path in (folder, *folder.iterdir()):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [binary, str(folder / "ini")], cwd="/", stdout=output, stderr=output, **who
            )
        try:
            pooler = Pooler(f"postgres://{NAME}:{password}@127.0.0.1:{port}/{NAME}", log)
            _wait(pooler, process)
            yield pooler
        finally:
            process.kill()
            process.wait()


@contextmanager
def _database() -> Iterator[str]:
    """A database and a role that owns it, both called NAME; yields the role's password."""
    name, password = sql.Identifier(NAME), secrets.token_hex(16)
    with psycopg.connect(
        host=connection.settings_dict["HOST"],
        port=connection.settings_dict["PORT"],
        user=connection.settings_dict["USER"],
        password=connection.settings_dict["PASSWORD"] or None,
        dbname="postgres",
        autocommit=True,
    ) as admin:

        def drop() -> None:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
            admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(name))

        drop()  # what a run that was killed left
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(password)))
        admin.execute(sql.SQL("CREATE DATABASE {0} OWNER {0}").format(name))
        # A server need not keep UTC; a session that forgot to ask for it would be hours off.
        admin.execute(sql.SQL("ALTER DATABASE {} SET TimeZone = 'Asia/Kathmandu'").format(name))
        try:
            yield password
        finally:
            drop()


def _wait(pooler: Pooler, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            psycopg.connect(pooler.url, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                print(pooler.log.read_text())
                raise
            time.sleep(0.05)
