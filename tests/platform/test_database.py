"""Our database backend: dead connections are noticed before use, and `query` is what Django's cursors are."""

import subprocess
import sys
import textwrap
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from nodes.models import Location
from openrelay.core import clock
from openrelay.core.rows import query
from tests.support.web import environment


def in_a_process(code: str, options: str = "", pool: str = "1") -> str:
    """What a process on the test database prints, with a pool of so many connections, or none; `options` end
    the URL.
    """
    database = connection.settings_dict
    login = database["USER"] + (f":{database['PASSWORD']}" if database["PASSWORD"] else "")
    done = subprocess.run(
        [sys.executable, "-c", "import django; django.setup()" + textwrap.dedent(code)],
        env=environment(
            DATABASE_POOL_SIZE=pool,
            DATABASE_URL=f"postgres://{login}@{database['HOST']}:{database['PORT']}/{database['NAME']}{options}",
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.django_db(transaction=True)
def test_a_pooled_connection_that_its_server_ended_is_not_given_out() -> None:
    told = in_a_process(
        """
        import os
        import time
        import psycopg
        from django.db import connection
        from openrelay.core.rows import query
        pids = []
        def pid():
            ((found,),) = query("SELECT pg_backend_pid()")
            connection.close()  # back to the pool
            return found
        first, again = pid(), pid()
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [first])
            time.sleep(0.3)
        third = pid()
        print(first == again, third != first)
        """
    )
    assert told == "True True"


@pytest.mark.django_db
@pytest.mark.parametrize("prepares", [True, False])
def test_query_reads_writes_and_is_counted(prepares: bool) -> None:
    connection.ensure_connection()
    usual = connection.connection.prepare_threshold
    with override_settings(DATABASE_PREPARES=prepares):
        if prepares:
            connection.connection.prepare_threshold = 0  # as the settings have it, where they say so
            before = query(
                "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT 40 + $1%%'"
            )
            for number in range(3):
                assert query("SELECT 40 + %s::int, NULL", [number]) == [(40 + number, None)]
            after = query(
                "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT 40 + $1%%'"
            )
            assert (before, after) == ([(0,)], [(1,)])
        assert query("SELECT %(one)s::int WHERE false", {"one": 1}) == []
        with CaptureQueriesContext(connection) as queries:
            assert query("SELECT %s::int", [1]) == [(1,)]
        assert [told["sql"] for told in queries] == ["SELECT 1::int"]
        at = clock.read()
        assert at.utcoffset() == timedelta(0)
    connection.connection.prepare_threshold = usual


@pytest.mark.django_db
@pytest.mark.parametrize("prepares", [True, False])
def test_what_the_database_refuses_is_djangos_error(prepares: bool) -> None:
    with override_settings(DATABASE_PREPARES=prepares):
        with pytest.raises(IntegrityError), transaction.atomic():
            query("INSERT INTO nodes_location (id) VALUES (gen_random_uuid()) RETURNING id")
        assert query("SELECT 1") == [(1,)]  # the savepoint ended it
    assert not Location.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_what_is_asked_with_every_request_is_asked_as_everything_else_is() -> None:
    # What DATABASE_URL says of the session counts for the connection beside Django's too.
    told = in_a_process(
        """
        from openrelay.core import shared_connection
        from openrelay.core.rows import query
        ask = "SELECT current_setting('search_path'), current_setting('application_name')"
        shared_connection.fetchone(ask, [])  # by Django's connection, and the other is made
        ((usual,), quickly) = (query(ask), shared_connection.fetchone(ask, []))
        assert len(shared_connection._kept) == 1
        print(usual == quickly, quickly)
        """,
        "?options=-c%20search_path%3Dpublic,pg_temp&application_name=asking",
    )
    assert told == "True ('public,pg_temp', 'asking')"


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_kept_is_tried_before_a_statement_of_ours_too() -> None:
    told = in_a_process(
        """
        import os
        import time
        import psycopg
        from django.db import close_old_connections, connection
        from openrelay.core.rows import query
        pid = "SELECT pg_backend_pid()"
        ((first,),) = query(pid)
        close_old_connections()  # as between two tasks
        ((kept,),) = query(pid)
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [first])
            time.sleep(0.3)
        close_old_connections()
        print(first == kept, query(pid) != [(first,)])
        """,
        pool="0",
    )
    assert told == "True True"


@pytest.mark.django_db(transaction=True)
def test_what_fails_on_the_connection_beside_djangos_is_djangos_error_or_none() -> None:
    told = in_a_process(
        """
        from django.db import DataError, connection
        from openrelay.core import shared_connection
        shared_connection.fetchone("SELECT 1", [])
        assert len(shared_connection._kept) == 1
        for _ in range(2):
            try:
                shared_connection.fetchone("SELECT 1 / %s::int", [0])
            except DataError:
                print("refused")
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE asked (a int)")
            try:
                cursor.execute("INSERT INTO asked VALUES (1)")
                assert len(shared_connection._kept) == 0
                assert shared_connection.fetchone("SELECT * FROM asked", []) == (1,)
                assert len(shared_connection._kept) == 1
                assert shared_connection.fetchone("SELECT * FROM asked", []) == (1,)
                cursor.execute("ALTER TABLE asked ADD b int")
                print(shared_connection.fetchone("SELECT * FROM asked", []))
            finally:
                cursor.execute("DROP TABLE asked")
        shared_connection._kept.clear()
        connection.settings_dict["OPTIONS"]["connect_timeout"] = "no number"  # others cannot be had
        print(shared_connection.fetchone("SELECT 2", []))
        """
    )
    assert told.split("\n") == ["refused", "refused", "(1, None)", "(2,)"]
