"""Locking the first unlocked node of several, and limits of single lock waits."""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from django.db import connection, transaction

from nodes.services.locking import first_locked_for, locked, locked_for
from openrelay.core.rows import Reading, array, query
from tests import factories

# The nodes that no other transaction has locked.
_FREE = "SELECT id FROM nodes_node WHERE id = ANY(%s::uuid[]) FOR NO KEY UPDATE SKIP LOCKED"


def free(ids: Collection[UUID]) -> set[UUID]:
    """Return the nodes that another transaction could lock now."""

    def look() -> set[UUID]:
        try:
            with transaction.atomic():
                return {pk for (pk,) in query(_FREE, [array(ids)])}
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as others:
        return others.submit(look).result()


@pytest.mark.django_db(transaction=True)
def test_the_first_that_is_free_is_locked_and_no_other() -> None:
    org = factories.organization()
    caller = factories.caller(org)
    ids = [factories.node(org, 1).pk for _ in range(5)]

    def first(asked: list[UUID]) -> UUID | None:
        """Return the node that was locked, after checking that no other was."""
        try:
            with transaction.atomic():
                before = free(ids)
                with first_locked_for(asked, caller) as found:
                    mine = {found[0].node.pk} if found else set()
                    assert free(ids) == before - mine
                return min(mine, default=None)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as others:
        for asked in (ids, ids[::-1], ids[2:] + ids[:2], [ids[1], ids[1], ids[0]]):
            assert others.submit(first, asked).result() == asked[0]
        with locked(ids[3]), locked(ids[2]):
            assert others.submit(first, [ids[3], ids[2], ids[4], ids[0]]).result() == ids[4]
            assert others.submit(first, [ids[2], ids[3]]).result() is None
        assert others.submit(first, []).result() is None


@pytest.mark.django_db(transaction=True)
def test_a_short_wait_for_a_node_shortens_no_later_wait() -> None:
    org = factories.organization()
    node_id, caller = factories.node(org, 1).pk, factories.caller(org)
    limit = "current_setting('lock_timeout')"
    with transaction.atomic():
        ((usual,),) = query(f"SELECT {limit}")
        with locked_for(node_id, caller, seconds=0.05, reading=Reading(limit)) as (locked_node, _):
            assert locked_node.read_result == usual
            assert query(f"SELECT {limit}") == [(usual,)]
        with locked(node_id, seconds=0.05):
            assert query(f"SELECT {limit}") == [(usual,)]
