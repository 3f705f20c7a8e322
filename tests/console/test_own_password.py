"""An operator's own password: changed in the console, noted, and no way around the limit on guesses."""

import uuid
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from openrelay.audit.models import AuditEvent
from openrelay.console import attempts
from openrelay.core import counters
from openrelay.core.circuit_breaker import CircuitBreaker
from tests.console.test_signing_in import inside, sign_in
from tests.console.world import PASSWORD, World

URL = "/console/password_change/"
NEW = "another long enough secret"


@pytest.fixture(autouse=True)
def three_guesses(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SIGN_IN_FAILURES_PER_ACCOUNT = 3
    settings.REDIS_PREFIX = f"openrelay-test-{uuid.uuid4()}:"
    monkeypatch.setattr(counters, "valkey", CircuitBreaker())


def change(client: Client, old: str, new: str = NEW, again: str | None = None) -> Any:
    fields = {"old_password": old, "new_password1": new, "new_password2": again or new}
    return client.post(URL, fields, HTTP_X_REQUEST_ID="req-5")


def test_a_changed_password_is_noted_and_ends_other_sessions(console: Client, world: World) -> None:
    elsewhere = Client()
    elsewhere.force_login(world.operator)
    assert console.get(URL).status_code == 200
    answer = change(console, PASSWORD)
    assert (answer.status_code, answer["Location"]) == (302, reverse("admin:password_change_done"))
    event = AuditEvent.objects.get(event="user.password_set")
    assert (event.actor, event.target_id) == (f"user:{world.operator.pk}", str(world.operator.pk))
    assert (event.source_ip, event.request_id) == ("127.0.0.1", "req-5")
    assert NEW not in str(list(AuditEvent.objects.values()))
    assert console.get(reverse("admin:index")).status_code == 200
    assert elsewhere.get(reverse("admin:index")).status_code == 302
    assert not inside(sign_in(world.operator.email, PASSWORD))
    assert inside(sign_in(world.operator.email, NEW))


def test_a_password_that_will_not_do_changes_nothing(console: Client, world: World) -> None:
    for old, new, again in (
        (PASSWORD, "short", None),
        (PASSWORD, NEW, "another"),
        ("wrong", NEW, None),
        ("", NEW, None),
    ):
        assert change(console, old, new, again).status_code == 200
    assert not AuditEvent.objects.filter(event="user.password_set").exists()
    assert inside(sign_in(world.operator.email, PASSWORD))


def test_only_operators_have_the_page(world: World) -> None:
    outsider = Client()
    outsider.force_login(world.outsider)
    for client in (Client(), outsider):
        for answer in (client.get(URL), change(client, PASSWORD)):
            assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/console/login/")
    assert not AuditEvent.objects.filter(event="user.password_set").exists()


def test_the_old_password_cannot_be_guessed_here_either(console: Client, world: World) -> None:
    for _ in range(3):
        assert "entered incorrectly" in change(console, "wrong").content.decode()
    answer = change(console, PASSWORD)
    assert answer.status_code == 429
    assert 1 <= int(answer["Retry-After"]) <= attempts.WINDOW_SECONDS
    assert "Too many attempts" in answer.content.decode()
    assert not AuditEvent.objects.filter(event="user.password_set").exists()
    assert sign_in(world.operator.email, PASSWORD).status_code == 429
