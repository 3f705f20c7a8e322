"""Signing in to the console: who gets in, how often one may try, and what the audit log has of it."""

import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from playwright.sync_api import expect
from redis.client import Pipeline

from nodes.models import Node
from openrelay.audit.models import AuditEvent
from openrelay.console import attempts
from openrelay.core import counters
from openrelay.core.circuit_breaker import CircuitBreaker
from tests import factories
from tests.console import world as worlds
from tests.console.conftest import Screen
from tests.console.test_lists import list_of
from tests.console.world import PASSWORD, World
from tests.support.web import Server

LOGIN = "/console/login/"
WRONG = "wrong horse battery"


@pytest.fixture(autouse=True)
def counted(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three failures an account, five an address, and no count left over from anywhere else."""
    settings.SIGN_IN_FAILURES_PER_ACCOUNT = 3
    settings.SIGN_IN_FAILURES_PER_ADDRESS = 5
    settings.REDIS_PREFIX = f"openrelay-test-{uuid.uuid4()}:"
    monkeypatch.setattr(counters, "valkey", CircuitBreaker())
    return settings


def sign_in(name: str, password: str, *, address: str = "198.51.100.1", client: Client | None = None) -> Any:
    fields = {"username": name, "password": password}
    return (client or Client()).post(LOGIN, fields, REMOTE_ADDR=address, HTTP_X_REQUEST_ID="req-9")


def inside(answer: Any) -> bool:
    return bool(answer.status_code == 302)


def noted() -> list[tuple[str, str]]:
    """What happened and to whom, the oldest first."""
    events = AuditEvent.objects.filter(event__startswith="console.").order_by("created_at", "id")
    return [(event.event.removeprefix("console."), event.target_id) for event in events]


def last() -> AuditEvent:
    return AuditEvent.objects.filter(event__startswith="console.").latest("created_at", "id")


def test_who_signs_in_is_noted_with_the_session_or_neither_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    answer = sign_in("OPS@example.com ", PASSWORD, client=client)
    assert (answer.status_code, answer["Location"]) == (302, reverse("admin:index"))
    assert client.get(reverse("admin:index"), REMOTE_ADDR="198.51.100.1").status_code == 200
    assert client.get(LOGIN)["Location"] == reverse("admin:index")
    event = last()
    assert (event.event, event.actor, event.target_id) == (
        "console.signed_in",
        f"user:{world.operator.pk}",
        str(world.operator.pk),
    )
    assert (event.source_ip, event.request_id, event.organization_id) == ("198.51.100.1", "req-9", None)
    there = Session.objects.count()

    def broken(*_args: Any) -> None:
        raise RuntimeError("the log is full")

    monkeypatch.setattr(attempts, "succeeded", broken)
    with pytest.raises(RuntimeError):
        sign_in("ops@example.com", PASSWORD)
    assert Session.objects.count() == there


def test_a_page_that_was_asked_for_is_shown_afterwards_and_no_other_host(world: World) -> None:
    for wanted, shown in ((list_of(Node), list_of(Node)), ("https://elsewhere.example/", "/console/")):
        fields = {"username": "ops@example.com", "password": PASSWORD, "next": wanted}
        assert Client().post(LOGIN, fields)["Location"] == shown


def test_refusals_are_noted_with_why_and_never_what_was_typed(world: World) -> None:
    gone = factories.user(world.platform, email="gone@example.com", is_active=False)
    for name, password, who, why in (
        ("ops@example.com", WRONG, world.operator, "invalid_login"),
        ("Hunter2-my-password", WRONG, None, "invalid_login"),
        ("tenant@example.com", PASSWORD, world.outsider, "not_operator"),
        ("gone@example.com", PASSWORD, gone, "invalid_login"),
    ):
        answer = sign_in(name, password)
        assert answer.status_code == 200
        event = last()
        assert (event.event, event.actor, event.source_ip, event.request_id) == (
            "console.sign_in_refused",
            "system",
            "198.51.100.1",
            "req-9",
        )
        assert event.target_id == (str(who.pk) if who else "unknown")
        assert event.after == {"why": why, "email": who.email if who else "unknown"}
        assert event.before is None
    everything = str(list(AuditEvent.objects.values()))
    assert WRONG not in everything
    assert PASSWORD not in everything
    assert "unter2" not in everything
    assert not Session.objects.exists()


def test_what_is_no_attempt_is_neither_noted_nor_counted(world: World) -> None:
    for name, password in (("", PASSWORD), ("ops@example.com", ""), ("ops\0@example.com", "x"), ("", "")):
        for _ in range(4):
            assert sign_in(name, password).status_code == 200
    forged = Client(enforce_csrf_checks=True)
    for _ in range(4):
        assert sign_in("ops@example.com", WRONG, client=forged).status_code == 403
    assert noted() == []
    assert inside(sign_in("ops@example.com", PASSWORD))


def test_an_account_waits_after_its_failures_from_wherever_and_others_do_not(world: World) -> None:
    for number in range(3):
        assert sign_in("ops@example.com", WRONG, address=f"198.51.100.{number}").status_code == 200
    for name in ("ops@example.com", " OPS@example.com"):
        answer = sign_in(name, PASSWORD, address="203.0.113.9")
        assert answer.status_code == 429
        assert 1 <= int(answer["Retry-After"]) <= attempts.WINDOW_SECONDS
        assert re.search(r"Try again in 1\d minutes\.", answer.content.decode())
    # One line says that it began; who goes on does not fill the log.
    assert noted() == [("sign_in_refused", str(world.operator.pk))] * 4
    assert last().after["why"] == "limited"
    assert inside(sign_in("viewer@example.com", PASSWORD, address="203.0.113.9"))


def test_an_account_that_is_not_there_waits_as_one_that_is(world: World) -> None:
    def walk(name: str) -> list[tuple[int, str]]:
        answers = [sign_in(name, WRONG, address=f"198.51.{len(name)}.{n}") for n in range(5)]
        pages = [re.sub(r"\d+ minutes?|value=\"[^\"]*\"", "", answer.content.decode()) for answer in answers]
        return [(answer.status_code, page) for answer, page in zip(answers, pages, strict=True)]

    assert walk("ops@example.com") == walk("nobody@example.com")
    assert noted()[4:] == [("sign_in_refused", "unknown")] * 4


def test_an_address_waits_after_its_failures_with_whatever_names(world: World) -> None:
    for number in range(5):
        assert sign_in(f"guess{number}@example.com", WRONG).status_code == 200
    assert sign_in("ops@example.com", PASSWORD).status_code == 429
    assert sign_in("ops@example.com", PASSWORD, address="::ffff:198.51.100.1").status_code == 429
    assert inside(sign_in("ops@example.com", PASSWORD, address="198.51.100.2"))


def test_one_customers_ipv6_addresses_are_one(world: World) -> None:
    for number in range(5):
        sign_in(f"guess{number}@example.com", WRONG, address=f"2001:db8:1:2:{number:x}::1")
    assert sign_in("ops@example.com", PASSWORD, address="2001:db8:1:2:ffff::9").status_code == 429
    assert inside(sign_in("ops@example.com", PASSWORD, address="2001:db8:1:3::1"))


def test_success_begins_anew_for_the_account_and_not_for_the_address(world: World) -> None:
    for name in ("ops@example.com", "viewer@example.com"):
        assert not inside(sign_in(name, WRONG))
        assert not inside(sign_in(name, WRONG))
        assert inside(sign_in(name, PASSWORD))
    # Four failures, and successes that count as none; the fifth failure is the last.
    assert sign_in("nobody@example.com", WRONG).status_code == 200
    assert sign_in("nobody@example.com", WRONG).status_code == 429


def test_nobody_keeps_a_person_out_of_where_they_signed_in_before(world: World) -> None:
    assert inside(sign_in("ops@example.com", PASSWORD, address="192.0.2.7"))
    for number in range(4):
        sign_in("ops@example.com", WRONG, address=f"198.51.100.{number}")
    assert sign_in("ops@example.com", PASSWORD, address="203.0.113.9").status_code == 429
    assert inside(sign_in("ops@example.com", PASSWORD, address="192.0.2.7"))
    # There too no more than three may fail.
    assert [sign_in("ops@example.com", WRONG, address="192.0.2.7").status_code for _ in range(4)] == [
        200,
        200,
        200,
        429,
    ]


def test_failures_of_others_at_an_address_do_not_keep_out_who_signed_in_there_before(world: World) -> None:
    assert inside(sign_in("ops@example.com", PASSWORD))
    for number in range(6):
        sign_in(f"guess{number}@example.com", WRONG)
    assert sign_in("viewer@example.com", PASSWORD).status_code == 429
    for _ in range(2):
        assert sign_in("ops@example.com", WRONG).status_code == 200
        assert inside(sign_in("ops@example.com", PASSWORD))
    # What succeeds without a count takes none back.
    assert sign_in("viewer@example.com", PASSWORD).status_code == 429


def test_a_new_window_begins_when_the_old_one_ends(world: World) -> None:
    for _ in range(4):
        sign_in("ops@example.com", WRONG)
    client = counters._client()
    keys = list(client.scan_iter(f"{django_settings.REDIS_PREFIX}signin:*"))
    assert keys
    assert all(0 < client.ttl(key) <= attempts.WINDOW_SECONDS for key in keys)
    assert not any(b"ops" in key for key in keys)
    client.delete(*keys)  # as Valkey does by itself when their time has come
    assert inside(sign_in("ops@example.com", PASSWORD))


def test_without_limits_nothing_is_counted(world: World, counted: Any) -> None:
    counted.SIGN_IN_FAILURES_PER_ACCOUNT = counted.SIGN_IN_FAILURES_PER_ADDRESS = 0
    for _ in range(7):
        assert sign_in("ops@example.com", WRONG).status_code == 200
    assert inside(sign_in("ops@example.com", PASSWORD))


def test_a_dead_valkey_keeps_nobody_out_and_refusals_are_still_noted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def silent(self: Pipeline) -> list[Any]:
        asked.append(self)
        raise redis.ConnectionError("nobody there")

    monkeypatch.setattr(Pipeline, "execute", silent)
    for _ in range(7):
        assert sign_in("ops@example.com", WRONG).status_code == 200
    assert inside(sign_in("ops@example.com", PASSWORD))
    assert noted() == [("sign_in_refused", str(world.operator.pk))] * 7 + [
        ("signed_in", str(world.operator.pk))
    ]
    assert len(asked) == 1


def test_an_operators_role_may_not_be_used_from_elsewhere_for_looking_either(world: World) -> None:
    role = factories.role(
        world.platform, world.viewer, permissions=factories.EVERYTHING, ip_ranges=["192.0.2.0/24"]
    )
    world.operator.memberships.update(role="", custom_role=role)
    answer = sign_in("ops@example.com", PASSWORD)
    assert "may not be used from this address" in answer.content.decode()
    assert last().after["why"] == "address"
    client = Client()
    assert inside(sign_in("ops@example.com", PASSWORD, address="192.0.2.7", client=client))
    for url in (reverse("admin:index"), list_of(Node)):
        assert client.get(url, REMOTE_ADDR="192.0.2.7").status_code == 200
        elsewhere = client.get(url, REMOTE_ADDR="198.51.100.1")
        assert (elsewhere.status_code, elsewhere["Location"].partition("?")[0]) == (302, LOGIN)
    assert client.get(LOGIN, REMOTE_ADDR="198.51.100.1").status_code == 200
    client.post("/console/logout/", REMOTE_ADDR="198.51.100.1")
    assert client.get(reverse("admin:index"), REMOTE_ADDR="192.0.2.7").status_code == 302
    assert not AuditEvent.objects.filter(event="request.refused").exists()


class TestScreen:
    @pytest.fixture
    def world(self, screen: Screen) -> World:
        """The same world, committed for the server to see."""
        return worlds.build()

    @pytest.fixture(autouse=True)
    def counted_by_the_server(self, screen: Screen, server: Server, counted: Any) -> Iterator[None]:
        """Where the server counts, and its limit. The next test is to know nothing of what failed here."""
        counted.REDIS_PREFIX = server.env["REDIS_PREFIX"]
        counted.SIGN_IN_FAILURES_PER_ACCOUNT = 10
        yield
        client = counters._client()
        for key in client.scan_iter(f"{counted.REDIS_PREFIX}signin:*"):
            client.delete(key)

    def test_too_many_attempts_are_told_when_to_try_again(self, screen: Screen, world: World) -> None:
        guest = factories.user(world.platform, email=f"{uuid.uuid4()}@example.com")
        for number in range(9):
            attempts.begin(
                attempts.Attempt(name=guest.email, source_ip=f"198.51.100.{number}", request_id="")
            )
        page = screen.page
        screen.sign_in(guest, WRONG)
        expect(page.get_by_text("do not go together")).to_be_visible()
        screen.sign_in(guest)
        expect(page.get_by_text("Too many attempts to sign in have failed")).to_be_visible()
        expect(page.get_by_text(re.compile(r"Try again in \d+ minutes?\."))).to_be_visible()
        screen.sign_in(world.operator)
        expect(page.get_by_role("heading", level=1)).to_contain_text("Overview")
