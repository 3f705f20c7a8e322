"""Random histories of a fleet: every answer is one the rules allow, and nothing is wrong after any step."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.histories.comparing import compare, look
from tests.histories.machine import Histories
from tests.histories.openings import OPENINGS

# The deep profile is `make test-deep`; a plain run of the tests takes the same histories each time.
DEEP = int(os.environ.get("HISTORIES", "0"))
SHRINK = int(os.environ.get("HISTORIES_SHRINK_SECONDS", "60"))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", range(len(OPENINGS)))
def test_what_histories_begin_with_goes_as_the_rules_say(number: int) -> None:
    history = Histories()
    history.begin(first=[1, 1, 2], second=[1, 2], pods=[1, 1], owner="buyer", opening=OPENINGS[number])
    compare(history.model, look(history.real, history.model.nodes))


@pytest.mark.django_db(transaction=True)
def test_whatever_anybody_does_is_answered_and_done_as_the_rules_say() -> None:
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=DEEP or 4,
            stateful_step_count=int(os.environ.get("HISTORY_STEPS", "0")) or (40 if DEEP else 20),
            derandomize=not DEEP,
            deadline=None,
            database=None,
            phases=[Phase.generate, *([Phase.shrink] if SHRINK else [])],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
            report_multiple_bugs=False,
        ),
    )
