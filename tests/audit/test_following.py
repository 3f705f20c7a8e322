"""Whoever follows the log by `after` reads every event once, however late its transaction commits."""

import threading
import time
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from openrelay.audit.models import AuditEvent
from openrelay.audit.services.record import SYSTEM, record
from openrelay.audit.services.retention import delete_expired
from openrelay.identity.models import Organization
from tests.concurrency.conftest import together
from tests.identity.factories import bearer, make_key, make_org

pytestmark = pytest.mark.django_db(transaction=True)


class Log:
    """An organization's log, and who reads it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.org = make_org()
        self.secret = make_key(self.org)[1]

    def add(self, target: object = "x") -> None:
        record(SYSTEM, "e", target_type="t", target_id=target, org_id=self.org.pk)

    def follow(self, after: str = "start", **query: Any) -> tuple[list[str], str]:
        """The targets of one page, and the cursor that follows it."""
        page = self.client.get("/v1/audit-events", {"after": after, **query}, **bearer(self.secret)).json()
        return [item["targetId"] for item in page["items"] if item["event"] == "e"], page["nextCursor"]


@pytest.fixture
def log(client: Client) -> Log:
    return Log(client)


def write_late(org: Organization, writer: int) -> None:
    """Thirty events, each committed some time after it was written."""
    for number in range(30):
        with transaction.atomic():
            record(SYSTEM, "e", target_type="t", target_id=f"{writer}-{number}", org_id=org.pk)
            time.sleep(((writer * 7 + number * 3) % 11) / 500)


def test_twenty_writers_lose_nothing_where_the_newest_time_does(log: Log) -> None:
    followed: list[str] = []
    by_time: list[str] = []
    is_over = threading.Event()

    def follow() -> None:
        own, after = Log.__new__(Log), "start"
        own.client, own.secret = Client(), log.secret
        while True:
            was_over = is_over.is_set()
            while True:
                targets, after = own.follow(after, limit=100)
                followed.extend(targets)
                if not targets:
                    break
            if was_over:
                return

    def poll_by_time() -> None:
        newest = None
        while True:
            was_over = is_over.is_set()
            rows = AuditEvent.objects.filter(organization=log.org, event="e").order_by("created_at", "id")
            if newest is not None:
                rows = rows.filter(created_at__gt=newest)
            for row in rows:
                by_time.append(row.target_id)
                newest = row.created_at
            if was_over:
                return

    def write() -> None:
        outcomes = together(*[lambda writer=writer: write_late(log.org, writer) for writer in range(20)])
        assert outcomes == [None] * 20
        is_over.set()

    outcomes = together(follow, poll_by_time, write)
    assert outcomes == [None] * 3
    written = {f"{writer}-{number}" for writer in range(20) for number in range(30)}
    assert len(followed) == len(written)
    assert set(followed) == written
    # The negative control: the way that looks right, and is not.
    assert len(by_time) < len(written)


def test_an_event_behind_an_open_transaction_waits_for_it_and_comes_after(log: Log) -> None:
    log.add("first")
    has_written, may_commit = threading.Event(), threading.Event()

    def write_slowly() -> None:
        with transaction.atomic():
            log.add("slow")
            has_written.set()
            assert may_commit.wait(60)

    def watch() -> list[list[str]]:
        assert has_written.wait(60)
        log.add("quick")
        seen, after = log.follow()
        pages = [seen]
        may_commit.set()
        deadline = time.monotonic() + 60
        while sum(map(len, pages)) < 3 and time.monotonic() < deadline:
            seen, after = log.follow(after)
            pages.append(seen)
        return [page for page in pages if page]

    _, pages = together(write_slowly, watch)
    assert pages[0] == ["first"]
    assert sorted(target for page in pages for target in page) == ["first", "quick", "slow"]


def test_every_page_has_a_cursor_and_a_page_of_nothing_stays_where_it_is(log: Log) -> None:
    for target in range(5):
        log.add(target)
    seen, after = [], "start"
    for _ in range(10):
        targets, after = log.follow(after, limit=2)
        seen += targets
    assert seen == ["0", "1", "2", "3", "4"]
    assert log.follow(after) == ([], after)
    log.add("new")
    assert log.follow(after)[0] == ["new"]
    first = log.client.get("/v1/audit-events", {"after": ""}, **bearer(log.secret)).json()
    assert [item["targetId"] for item in first["items"]][-1] == "new"


def test_a_cursor_survives_that_its_event_is_deleted(log: Log, clock: Any) -> None:
    at = clock.freeze()
    log.add("old")
    _, after = log.follow()
    clock.advance(366 * 86400)
    assert delete_expired() > 0
    log.add("new")
    assert log.follow(after)[0] == ["new"]
    clock.freeze(at)


def test_a_dump_restored_elsewhere_goes_on_where_it_was(log: Log) -> None:
    """Its rows have the transaction ids of the server it is from, which may be above those given here."""
    log.add("before")
    with transaction.atomic(), connection.cursor() as cursor:
        # As if the server that it is from had been very busy.
        cursor.execute("ALTER TABLE audit_auditevent DISABLE TRIGGER audit_is_append_only")
        cursor.execute("UPDATE audit_auditevent SET position = position + (1::bigint << 40)")
        cursor.execute("ALTER TABLE audit_auditevent ENABLE TRIGGER audit_is_append_only")
        # COPY writes the epoch's row again, as it was, by a transaction of this server.
        cursor.execute("UPDATE audit_epoch SET epoch = epoch")
    targets, after = log.follow()
    assert targets == ["before"]
    outcomes = together(*[lambda number=number: log.add(number) for number in range(4)])
    assert outcomes == [None] * 4
    seen, after = log.follow(after)
    assert sorted(seen) == ["0", "1", "2", "3"]
    with transaction.atomic(), transaction.atomic():
        log.add("in a savepoint")
    assert log.follow(after)[0] == ["in a savepoint"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT position >> 48) FROM audit_auditevent WHERE event = 'e'")
        assert cursor.fetchone() == (2,)


@pytest.mark.parametrize("other", ["cursor", "actor", "event", "targetId", "since", "until"])
def test_after_goes_with_nothing_else(log: Log, other: str) -> None:
    value = "2026-01-01T00:00:00Z" if other in ("since", "until") else "x"
    answer = log.client.get("/v1/audit-events", {"after": "start", other: value}, **bearer(log.secret))
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
    assert other in answer.json()["error"]


def test_a_cursor_of_the_other_direction_is_refused(log: Log) -> None:
    log.add()
    log.add()
    page = log.client.get("/v1/audit-events", {"limit": 1}, **bearer(log.secret)).json()
    for after in (page["nextCursor"], "x", "W10", "bnVsbA"):
        answer = log.client.get("/v1/audit-events", {"after": after}, **bearer(log.secret))
        assert answer.status_code == 400
