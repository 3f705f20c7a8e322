"""The background work: named as it is queued, and harmless twice."""

import pytest
from celery import current_app
from django.db import connection
from django.test import TestCase
from django.test.utils import CaptureQueriesContext

from compute import tasks
from compute.domain import states
from compute.models import Workload
from compute.services.lifecycle import overdue_teardowns
from openrelay.audit.models import AuditEvent
from openrelay.celery import app
from tests.compute.conftest import World, run_of

pytestmark = pytest.mark.django_db


def test_what_is_queued_and_scheduled_is_there() -> None:
    app.loader.import_default_modules()
    assert tasks.tear_down.name == "compute.tear_down"
    assert tasks.sweep_teardowns.name in {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert current_app is not None


def test_ending_a_vm_queues_its_teardown_once_it_is_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, tuple[object, ...]]] = []
    monkeypatch.setattr("openrelay.core.jobs._send", lambda task, args, eta: sent.append((task, args)))
    made = world.running(world.buyer)
    with TestCase.captureOnCommitCallbacks(execute=True):
        world.terminate(world.buyer, made)
        assert sent == []
    assert sent == [("compute.tear_down", (run_of(made),))]


def test_a_sweep_reports_each_overdue_teardown_once_whoever_asks(world: World, clock) -> None:  # type: ignore[no-untyped-def]
    made = [world.running(world.buyer) for _ in range(2)]
    for vm in made:
        world.terminate(world.buyer, vm)
    first = run_of(made[0])
    with CaptureQueriesContext(connection) as asked:
        tasks.tear_down(first)
    # What is not overdue is seen without the lock of its node, which others wait for.
    assert len(asked) == 1
    assert not AuditEvent.objects.filter(event="vm.teardown_overdue").exists()
    clock.advance(200)
    tasks.tear_down(first)
    for _ in range(2):
        tasks.sweep_teardowns()
    assert AuditEvent.objects.filter(event="vm.teardown_overdue").count() == 2
    world.says((made[0], "gone"), (made[1], "gone"))
    assert overdue_teardowns.overdue_ids() == []


@pytest.mark.parametrize("status", states.PASSING)
def test_what_sweeps_look_for_is_found_by_index_among_all_there_ever_were(status: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    assert "workload_passing" in Workload.objects.filter(status=status).order_by().explain()
