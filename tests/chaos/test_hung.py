"""Parts that are stopped, not dead: they keep their connections and answer nothing. Each is noticed and
restarted, and nothing else is.
"""

import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.chaos.running import Whole

pytestmark = pytest.mark.slow


def stop(pid: int) -> None:
    """Stop a process and its children, which are PostgreSQL's sessions."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in (pid, *map(int, children)):
        os.kill(each, signal.SIGSTOP)


@pytest.mark.parametrize("part", ["postgres", "valkey", "worker"])
def test_a_part_that_does_not_answer_is_restarted_and_all_is_well_again(whole: Whole, part: str) -> None:
    whole.until("it is ready", whole.ready)
    before = whole.children()
    stopped_at = time.monotonic()
    stop(before[part])
    whole.until(f"{part} is another", lambda: whole.children().get(part, before[part]) != before[part])
    whole.until("all is well again", whole.ready)
    print(f"{part}: well again after {time.monotonic() - stopped_at:.0f} s")
    assert f"{part} runs but does nothing; restarting it" in whole.said()
    after = whole.children()
    assert after["web"] == before["web"]
    if part == "worker":
        ((since,),) = whole.rows("SELECT now()")
        beat = "SELECT at > %s FROM api_beat"
        whole.until("a beat is written", lambda: whole.rows(beat, since) == [(True,)])
    org = whole.demo["orgs"]["buyer"]
    with whole.caller("buyer") as buyer:
        assert buyer.get(f"/v1/orgs/{org}/vms").status_code == 200


def test_requests_go_on_while_the_broker_does_not_answer(whole: Whole) -> None:
    whole.until("it is ready", whole.ready)
    stop(whole.children()["valkey"])
    with whole.caller("buyer") as buyer:
        org = whole.demo["orgs"]["buyer"]
        for _ in range(20):
            assert buyer.get(f"/v1/orgs/{org}/vms", timeout=10).status_code == 200
    whole.until("all is well again", whole.ready)
    assert httpx.get(f"{whole.settings['BASE_URL']}/livez", timeout=10, trust_env=False).status_code == 200
