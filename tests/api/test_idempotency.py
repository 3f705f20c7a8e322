"""Idempotency-Key: one request, one piece of work, one answer."""

import threading
from typing import Any

import pytest
from django.db import close_old_connections, connection, transaction

from openrelay.api.handler import Replayed
from openrelay.api.idempotency import GuardedRequest, open_guard
from openrelay.api.models import IdempotencyKey
from openrelay.api.services.idempotency import delete_expired
from openrelay.core.errors import Conflict, Invalid, Unprocessable
from openrelay.core.idempotency import NO_GUARD
from openrelay.identity.models import Organization
from tests.identity.factories import make_org
from tests.support.travel import Clock


def guard(
    organization: Organization, key: str | None = "k", body: Any = None, principal: str = "key:1"
) -> Any:
    return open_guard(
        key,
        method="POST",
        path="/v1/things",
        principal=principal,
        organization_id=organization.id,
        body=body if body is not None else {"a": 1, "b": [2]},
        render=lambda result: {"made": result},
    )


def work(one: GuardedRequest, result: Any) -> Any:
    with transaction.atomic():
        one.begin()
        one.store(result)
    return one.response(result).data


@pytest.mark.django_db
def test_the_same_request_replays_and_another_is_refused() -> None:
    org = make_org()
    assert work(guard(org), 1) == {"made": 1}
    with pytest.raises(Replayed) as replayed:
        guard(org, body={"b": [2], "a": 1})
    assert replayed.value.answer == {"made": 1}
    for other in ({"body": {"a": 2}}, {"principal": "key:2"}):
        with pytest.raises(Unprocessable):
            guard(org, **other)
    assert work(guard(make_org()), 2) == {"made": 2}
    assert work(guard(org, key="l"), 3) == {"made": 3}


@pytest.mark.django_db
def test_a_request_without_the_header_is_never_looked_up(django_assert_num_queries: Any) -> None:
    org = make_org()
    with django_assert_num_queries(0):
        one = guard(org, key=None)
        one.begin()
        one.store(1)
        assert one.response(1).data == {"made": 1}


@pytest.mark.django_db
@pytest.mark.parametrize("header", ["", " ", "é", "a\tb", "x" * 256, " padded "])
def test_a_malformed_key_is_refused(header: str) -> None:
    with pytest.raises(Invalid):
        guard(make_org(), key=header)


@pytest.mark.django_db
def test_255_characters_are_a_key() -> None:
    assert work(guard(make_org(), key="x y" * 85), 1) == {"made": 1}


@pytest.mark.django_db
def test_a_failure_keeps_nothing_and_the_key_may_be_tried_again() -> None:
    org = make_org()
    with transaction.atomic():
        one = guard(org)
        one.begin()
        one.store(1)
        transaction.set_rollback(True)
    assert not IdempotencyKey.objects.exists()
    assert work(guard(org), 2) == {"made": 2}


@pytest.mark.django_db
def test_a_key_is_free_again_after_24_hours(clock: Clock) -> None:
    org = make_org()
    clock.freeze()
    work(guard(org), 1)
    clock.advance(24 * 3600 - 1)
    with pytest.raises(Replayed):
        guard(org)
    assert delete_expired() == 0
    clock.advance(1)
    assert work(guard(org, body={"other": 1}), 2) == {"made": 2}
    assert IdempotencyKey.objects.count() == 1
    clock.advance(24 * 3600)
    assert delete_expired() == 1


@pytest.mark.django_db(transaction=True)
def test_while_the_first_runs_the_second_is_told_to_wait() -> None:
    org = make_org()
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        try:
            with transaction.atomic():
                one = guard(org)
                one.begin()
                inside.set()
                leave.wait(60)
                one.store(1)
        finally:
            connection.close()

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(60)
    second = guard(org)
    with pytest.raises(Conflict) as refused:
        work(second, 2)
    assert refused.value.code == "IDEMPOTENCY_KEY_IN_USE"
    assert refused.value.headers["Retry-After"] == "1"
    leave.set()
    thread.join()
    # It was opened before the first finished, and still does nothing twice.
    with pytest.raises(Replayed):
        work(second, 2)


@pytest.mark.django_db(transaction=True)
def test_six_at_once_do_the_work_once() -> None:
    org = make_org()
    start = threading.Barrier(6)
    outcomes: list[str] = []

    def attempt(number: int) -> None:
        try:
            start.wait(60)
            work(guard(org), number)
            outcomes.append("worked")
        except Replayed:
            outcomes.append("replayed")
        except Conflict as error:
            outcomes.append(error.code)
        finally:
            close_old_connections()
            connection.close()

    threads = [threading.Thread(target=attempt, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("worked") == 1
    assert set(outcomes) <= {"worked", "replayed", "IDEMPOTENCY_KEY_IN_USE"}
    assert IdempotencyKey.objects.count() == 1


def test_services_default_to_no_key() -> None:
    NO_GUARD.begin()
    NO_GUARD.store(1)
