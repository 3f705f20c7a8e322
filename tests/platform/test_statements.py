"""Statements of our own: several in one message are what they would be alone, whichever of them fails."""

import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
from django.db import (
    DataError,
    IntegrityError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    connection,
    transaction,
)

from openrelay.core.rows import query, query_all
from openrelay.identity.models import Organization
from tests import factories


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("prepared", [False, True])
def test_what_is_read_along_with_a_lock_is_not_from_before_the_wait(prepared: bool) -> None:
    """The statements are one message, but each has its own snapshot and its own time."""
    connection.close()
    node = factories.node(factories.organization())
    lock_and_read = (
        ("SELECT id FROM nodes_node WHERE id = %s::uuid FOR UPDATE", [node.pk]),
        ("SELECT hostname, statement_timestamp() FROM nodes_node WHERE id = %s::uuid", [node.pk]),
    )
    if prepared:
        with transaction.atomic():
            query_all(*lock_and_read)
    waiting, freed = threading.Event(), []

    def hold() -> None:
        with transaction.atomic():
            query(*lock_and_read[0])
            assert waiting.wait(60)
            time.sleep(0.3)
            query("UPDATE nodes_node SET hostname = 'later' WHERE id = %s::uuid RETURNING id", [node.pk])
            freed.append(query("SELECT clock_timestamp()")[0][0])
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    time.sleep(0.2)
    waiting.set()
    with transaction.atomic():
        locked, read = query_all(*lock_and_read)
    holder.join()
    assert locked == [(node.pk,)]
    ((hostname, at),) = read
    assert hostname == "later"
    assert at > freed[0]


@pytest.mark.django_db(transaction=True)
def test_a_statement_that_fails_ends_the_message_and_leaves_the_connection_usable() -> None:
    for _ in range(2):  # prepared by then or not
        with pytest.raises(DataError), transaction.atomic():
            query_all(("SELECT 1 / %s::int", [0]), ("SELECT nextval('audit_never')", []))
        assert query_all(("SELECT %s::int", [1]), ("SELECT %s::int", [2])) == [[(1,)], [(2,)]]
    with pytest.raises(ProgrammingError), transaction.atomic():
        query_all(("SELECT 1", []), ("SELECT nowhere", []), ("SELECT 2", []))
    assert query("SELECT 3") == [(3,)]


@pytest.mark.django_db(transaction=True)
def test_a_closing_statement_is_committed_with_its_transaction_or_not_at_all() -> None:
    org = factories.organization()
    rename = "UPDATE identity_organization SET name = %s WHERE id = %s::uuid RETURNING id"
    done: list[str] = []
    with transaction.atomic():
        transaction.on_commit(lambda: done.append("told"))
        query(rename, ["first", org.pk])
        query(rename, ["second", org.pk], closing=True)
        assert done == []
    org.refresh_from_db()
    assert (org.name, done) == ("second", ["told"])

    attach = """
        INSERT INTO compute_workloadsshkey (workload_id, ssh_key_id) VALUES (%s::uuid, %s::uuid) RETURNING id
    """

    @transaction.atomic
    def refused_by_the_commit() -> None:
        query(rename, ["third", org.pk])
        query(attach, [org.pk, org.pk], closing=True)

    @transaction.atomic
    def part_of_another() -> None:
        with transaction.atomic():
            query(rename, ["fourth", org.pk], closing=True)
        raise ValueError("not committed by itself")

    with pytest.raises(IntegrityError):
        refused_by_the_commit()
    with pytest.raises(ValueError, match="by itself"):
        part_of_another()
    org.refresh_from_db()
    assert org.name == "second"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["query", "cursor", "savepoint"])
def test_nothing_is_written_after_a_closing_statement(how: str) -> None:
    org = factories.organization()
    rename = "UPDATE identity_organization SET name = %s WHERE id = %s::uuid RETURNING id"

    @transaction.atomic
    def goes_on() -> None:
        query(rename, ["closed", org.pk], closing=True)
        if how == "query":
            query(rename, ["after", org.pk])
        elif how == "cursor":
            Organization.objects.filter(pk=org.pk).update(name="after")
        else:
            with transaction.atomic():
                pass

    with pytest.raises(transaction.TransactionManagementError, match="closing statement"):
        goes_on()
    org.refresh_from_db()
    assert org.name == "closed"
    with transaction.atomic():
        query(rename, ["next", org.pk])
    org.refresh_from_db()
    assert org.name == "next"


@pytest.mark.django_db(transaction=True)
def test_statements_are_prepared_anew_when_their_table_changed() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE changing (a int)")
        try:
            assert query("SELECT * FROM changing") == []
            cursor.execute("ALTER TABLE changing ADD b int")
            with pytest.raises(NotSupportedError):
                query("SELECT * FROM changing")
            cursor.execute("INSERT INTO changing VALUES (1, 2)")
            assert query("SELECT * FROM changing") == [(1, 2)]
        finally:
            cursor.execute("DROP TABLE changing")


@pytest.mark.django_db(transaction=True)
def test_a_server_that_goes_away_under_a_message_is_djangos_error() -> None:
    @transaction.atomic
    def ended(begun: bool) -> None:
        if begun:
            query("SELECT 1")
        query_all(("SELECT pg_terminate_backend(pg_backend_pid())", []), ("SELECT 1", []))

    for begun in (False, True):
        with pytest.raises(OperationalError):
            ended(begun)
        connection.close()
        assert query("SELECT 1") == [(1,)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("begun", [False, True])
def test_a_value_that_cannot_be_sent_costs_no_connection(begun: bool) -> None:
    @transaction.atomic
    def asked(value: object) -> int:
        if begun:
            query("SELECT 1")
        ((pid,),), _ = query_all(("SELECT pg_backend_pid()", []), ("SELECT %s::text", [value]))
        return int(pid)

    usual = asked("a")
    for _ in range(2):
        with pytest.raises(DataError, match="NUL"):
            asked("a\0b")
        with pytest.raises(ProgrammingError, match="adapt"):
            asked(object())
        assert asked("a") == usual


class _Interrupted(Exception):
    """What a signal raises, as a task's time limit does."""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("block", [transaction.atomic, nullcontext], ids=["transaction", "none"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_wait_that_is_interrupted_is_over_for_the_server_too(
    block: Callable[[], AbstractContextManager[None]], begun: bool
) -> None:
    org = factories.organization()
    lock = ("SELECT id FROM identity_organization WHERE id = %s::uuid FOR UPDATE", [org.pk])
    rename = "UPDATE identity_organization SET name = 'never' WHERE id = %s::uuid RETURNING id"
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            query(*lock)
            held.set()
            over.wait(60)
        connection.close()

    def interrupt(*_: object) -> None:
        raise _Interrupted

    pids: list[int] = []

    def wait() -> None:
        with block():
            if begun:
                pids.extend(query("SELECT pg_backend_pid()")[0])
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            query_all(lock, (rename, [org.pk]), closing=True)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    usual = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(_Interrupted):
            wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
    try:
        # On a connection of its own, for what is left of the other tells nobody anything.
        assert query("SELECT 1") == [(1,)]
        left = """
            SELECT pid FROM pg_stat_activity
            WHERE datname = %s AND wait_event_type = 'Lock' OR pid = ANY(%s::int[])
        """
        until = time.monotonic() + 60
        while query(left, [connection.settings_dict["NAME"], pids]):
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        over.set()
        holder.join()
    org.refresh_from_db()
    assert org.name != "never"


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_no_block_began_is_not_ended_by_one() -> None:
    org = factories.organization()
    connection.set_autocommit(False)
    try:
        with transaction.atomic():
            query(
                "UPDATE identity_organization SET name = 'kept' WHERE id = %s::uuid RETURNING id",
                [org.pk],
                closing=True,
            )
    finally:
        transaction.rollback()
        connection.set_autocommit(True)
    org.refresh_from_db()
    assert org.name != "kept"
