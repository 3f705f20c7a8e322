"""The audit log: only ever added to, and read by those whose it is."""

import datetime as dt
import importlib
import json
from types import ModuleType
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from openrelay.audit.models import AuditEvent
from openrelay.audit.services import retention
from openrelay.audit.services.record import SYSTEM, Actor, AuditEntry, record, record_all
from openrelay.audit.services.retention import delete_expired
from openrelay.core.clock import read, rfc3339
from openrelay.core.ids import new_id
from openrelay.identity.models import Organization
from tests.identity.factories import bearer, make_key, make_org, make_person, sdk_client
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db


def note(organization: Organization | None, event: str = "thing.changed", **fields: Any) -> None:
    record(
        fields.pop("actor", SYSTEM),
        event,
        **{"target_type": "thing", "target_id": "t", "org_id": organization and organization.id, **fields},
    )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_auditevent SET reason = 'x'",
        "DELETE FROM audit_auditevent",
        "DELETE FROM audit_auditevent WHERE false",
        "TRUNCATE audit_auditevent",
    ],
)
@pytest.mark.parametrize("retention", [False, True])
def test_rows_are_only_added(statement: str, retention: bool) -> None:
    note(None)

    def execute() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            if retention:
                cursor.execute("SET LOCAL openrelay.audit_retention = 'on'")
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute(statement)

    if retention and statement.startswith("DELETE"):
        execute()
        return
    with pytest.raises(DatabaseError, match="append-only"):
        execute()
    assert AuditEvent.objects.count() == 1


@pytest.mark.parametrize("days", [1, 30, 4000])
def test_retention_is_as_long_as_it_is_set_in_bounded_batches(
    days: int, clock: Clock, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AUDIT_RETENTION_DAYS = days
    monkeypatch.setattr(retention, "BATCH", 10)
    at = clock.freeze()
    for number in range(25):
        note(None, "old", at=at - dt.timedelta(days=days, microseconds=1 + number))
    note(None, "young", at=at - dt.timedelta(days=days))
    with CaptureQueriesContext(connection) as queries:
        assert delete_expired() == 25
    assert len([query for query in queries if query["sql"].startswith("DELETE")]) == 3
    assert AuditEvent.objects.get().event == "young"


def test_retention_of_0_days_keeps_events_for_ever(clock: Clock, settings: Any) -> None:
    settings.AUDIT_RETENTION_DAYS = 0
    note(None, "old", at=clock.freeze() - dt.timedelta(days=30_000))
    assert delete_expired() == 0
    assert AuditEvent.objects.count() == 1


def test_retention_deletes_what_is_older_than_365_days_unless_set_otherwise(clock: Clock) -> None:
    at = clock.freeze()
    note(None, "old", at=at - dt.timedelta(days=365, microseconds=1))
    note(None, "young", at=at - dt.timedelta(days=365))
    assert delete_expired() == 1
    assert AuditEvent.objects.get().event == "young"
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('openrelay.audit_retention', true)")
        setting = cursor.fetchone()[0]
    # Local to its transaction, which in this test is the test's own.
    assert setting in ("on", "", None)


def test_an_event_carries_its_transactions_time_or_the_databases(clock: Clock) -> None:
    at = clock.freeze()
    note(None)
    note(None, at=at - dt.timedelta(hours=1))
    assert [row.created_at for row in AuditEvent.objects.all()] == [at, at - dt.timedelta(hours=1)]


def test_many_events_are_one_statement(django_assert_num_queries: Any) -> None:
    entries = [
        AuditEntry(
            actor=SYSTEM, event="e", target_type="t", target_id=number, before={"at": read()}, after=[1]
        )
        for number in range(50)
    ]
    with django_assert_num_queries(1):
        record_all(entries)
    with django_assert_num_queries(0):
        record_all([])


def listing(client: Client, secret: str, **query: Any) -> Any:
    return client.get("/v1/audit-events", query, **bearer(secret)).json()


def test_an_organization_sees_its_own_events_and_operators_all(client: Client) -> None:
    mine, theirs, ops = make_org(), make_org(), make_org(is_platform_ops=True)
    _, secret = make_key(mine)
    _, operator = make_key(ops)
    _, blind = make_key(ops, "compute.read")
    for org in (mine, theirs, None):
        note(org)
    assert len(listing(client, secret, event="thing.changed")["items"]) == 1
    assert len(listing(client, operator, event="thing.changed")["items"]) == 3
    assert client.get("/v1/audit-events", **bearer(blind)).status_code == 403


def test_filters_narrow(client: Client, clock: Clock) -> None:
    org = make_org()
    _, secret = make_key(org)
    at = clock.freeze()
    note(
        org,
        "a",
        at=at - dt.timedelta(minutes=2),
        target_id="one",
        actor=Actor("user:1", organization_id=org.id),
    )
    note(
        org,
        "b",
        at=at - dt.timedelta(minutes=1),
        target_id="two",
        actor=Actor("user:2", organization_id=org.id),
    )
    note(
        org,
        "b",
        at=at + dt.timedelta(minutes=1),
        target_id="one",
        actor=Actor("user:1", organization_id=org.id),
    )

    def events(**query: Any) -> list[str]:
        return [item["event"] for item in listing(client, secret, **query)["items"]]

    assert events(targetId="one") == ["b", "a"]
    assert events(actor="user:2") == ["b"]
    assert events(event="a") == ["a"]
    assert events(
        until=rfc3339(at - dt.timedelta(minutes=1)), since=rfc3339(at - dt.timedelta(minutes=2))
    ) == ["a"]
    assert events(targetId="three") == []


def test_the_client_reads_events_with_both_sides_as_json(sdk: ModuleType) -> None:
    person = make_person()
    note(
        person.organization,
        "member.role_changed",
        before={"role": "member"},
        after={"role": "admin"},
        reason="promoted",
        actor=Actor("user:1", "203.0.113.1", "req-1", person.organization.pk),
    )
    module = importlib.import_module(f"{sdk.__name__}.api.audit_events.list_audit_events")
    page = module.sync(client=sdk_client(sdk, person.token), event="member.role_changed", limit=1)
    (event,) = page.items
    assert (json.loads(event.before), json.loads(event.after)) == ({"role": "member"}, {"role": "admin"})
    assert (event.actor, event.source_ip, event.request_id) == ("user:1", "203.0.113.1", "req-1")
    assert (event.target_type, event.target_id) == ("thing", "t")
    # The published client knows it by this name alone.
    assert event.additional_properties == {"reason": "promoted"}
    assert page.additional_properties == {}
    everything = module.sync(client=sdk_client(sdk, person.token))
    created = next(item for item in everything.items if item.event == "org.created")
    assert "before" not in created.to_dict()
    assert "sourceIp" not in created.to_dict()


def test_a_walk_sees_every_old_row_once_whatever_comes_between(client: Client, clock: Clock) -> None:
    org = make_org()
    _, secret = make_key(org)
    at = clock.freeze()
    record_all(
        [
            AuditEntry(actor=SYSTEM, event="e", target_type="t", target_id=number, org_id=org.id, at=at)
            for number in range(1000)
        ]
    )
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = listing(client, secret, event="e", limit=97, **cursor)
        seen += [item["targetId"] for item in page["items"]]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
        record_all(
            [AuditEntry(actor=SYSTEM, event="e", target_type="t", target_id="new", org_id=org.id, at=at)] * 3
        )
        clock.advance(1)
        note(org, "e", target_id="new")
    old = [target for target in seen if target != "new"]
    assert sorted(old, key=int) == [str(number) for number in range(1000)]


def test_pages_take_one_query_however_many_rows(client: Client, django_assert_num_queries: Any) -> None:
    person = make_person()
    for count in (1, 300):
        record_all(
            [
                AuditEntry(
                    actor=SYSTEM, event="e", target_type="t", target_id="x", org_id=person.organization.id
                )
                for _ in range(count)
            ]
        )
        with django_assert_num_queries(2):
            listing(client, person.token, limit=100)


def test_a_full_last_page_has_no_cursor(client: Client) -> None:
    org = make_org()
    _, secret = make_key(org)
    for _ in range(2):
        note(org, "e")
    assert "nextCursor" not in listing(client, secret, event="e", limit=2)
    assert "nextCursor" in listing(client, secret, event="e", limit=1)


def test_a_cursor_of_another_list_is_refused(client: Client) -> None:
    _, secret = make_key()
    forged = f'["identity.apikey:-created_at,-id","{rfc3339(read())}","{new_id()}"]'
    for text in (forged, "[]", "{}", "null", '["audit.auditevent:-created_at,-id","2030-01-01","x"]'):
        cursor = importlib.import_module("base64").urlsafe_b64encode(text.encode()).decode()
        response = client.get("/v1/audit-events", {"cursor": cursor}, **bearer(secret))
        assert response.status_code == 400
