"""Statements of our own: several in one message are what they would be alone, whichever of them fails."""

import threading
import time

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

from openrelay.rows import query, query_all
from tests import factories


@pytest.mark.django_db(transaction=True)
def test_what_is_read_along_with_a_lock_is_not_from_before_the_wait() -> None:
    """The statements are one message, but each has its own snapshot and its own time."""
    node = factories.node(factories.organization())
    waiting, freed = threading.Event(), []

    def hold() -> None:
        with transaction.atomic():
            query("SELECT id FROM nodes_node WHERE id = %s::uuid FOR UPDATE", [node.pk])
            assert waiting.wait(10)
            time.sleep(0.3)
            query("UPDATE nodes_node SET hostname = 'later' WHERE id = %s::uuid RETURNING id", [node.pk])
            freed.append(query("SELECT clock_timestamp()")[0][0])
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    time.sleep(0.2)
    waiting.set()
    with transaction.atomic():
        locked, read = query_all(
            ("SELECT id FROM nodes_node WHERE id = %s::uuid FOR UPDATE", [node.pk]),
            ("SELECT hostname, statement_timestamp() FROM nodes_node WHERE id = %s::uuid", [node.pk]),
        )
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
