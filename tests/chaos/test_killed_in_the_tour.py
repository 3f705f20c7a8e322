"""Kill -9 of any part at any moment of the tour: it completes, with nothing lost and nothing doubled.

One round is in the suite. More by hand: `CHAOS_ROUNDS=20 make test ARGS="tests/chaos -s"`, with CHAOS_SEED to
repeat one that failed.
"""

import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.chaos.running import SUPERVISED, Whole

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("CHAOS_SEED", "20261129"))
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))
# How often each is chosen: most often what serves requests and what speaks to it.
VICTIMS = {"request": 4, "web": 3, "agents": 3, "worker": 2, "beat": 1, "postgres": 2, "valkey": 2}
TOUR_SECONDS = 240
MOST_OF_ONE = 2

# What one whole tour writes of its reservation; each once, but what happens twice in it.
RESERVATION_EVENTS = {
    "reservation.created": 1,
    "reservation.units_released": 1,
    "reservation.units_reclaimed": 1,
    "reservation.needs_review": 2,
    "reservation.reaffirmed": 2,
    "reservation.cancelled": 1,
}


def harass(
    whole: Whole, tour: subprocess.Popen[bytes], random: Random, *, seconds: float, most: int
) -> Counter[str]:
    """Kill parts at random moments while the tour runs, for `seconds` or until it ends; what was killed.

    At most `most` kills: what is killed again and again is started ever later, and nothing would be left to
    be harassed.
    """
    killed: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while tour.poll() is None and time.monotonic() < end:
        pause = min(end, time.monotonic() + random.uniform(0.5, 3.5))
        while tour.poll() is None and time.monotonic() < pause:
            time.sleep(0.02)
        victim = random.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        if killed.total() >= most or killed[victim] >= MOST_OF_ONE:
            continue
        if tour.poll() is None and whole.kill(victim, random):
            killed[victim] += 1
            print(f"{time.strftime('%H:%M:%S')} killed {victim}")
    return killed


def events_of(whole: Whole, contract: str) -> dict[str, int]:
    """How often each event was written about the one reservation with that contract reference."""
    found = whole.rows("SELECT hold_id FROM reservations_reservation WHERE contract_ref = %s", contract)
    assert len(found) <= 1, f"{contract} was reserved {len(found)} times"
    return dict(
        whole.rows(
            "SELECT event, count(*) FROM audit_auditevent WHERE target_id = ANY(%s) GROUP BY 1",
            [str(row[0]) for row in found],
        )
    )


def assert_nothing_lost_or_doubled(whole: Whole) -> None:
    """Whatever was done since the home was made, every object and its events agree, and nothing is held."""
    assert whole.rows("SELECT workload_id, unit_id FROM compute_claim") == []
    # One workload, one creation, and one termination when it was terminated.
    wrong = whole.rows(
        """
        SELECT workload.id, workload.name, workload.status, said.created, said.terminated
        FROM compute_workload workload CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE event = 'vm.created') AS created,
                   count(*) FILTER (WHERE event = 'vm.terminated') AS terminated
            FROM audit_auditevent WHERE target_type = 'vm' AND target_id = workload.id::text) said
        WHERE said.created <> 1 OR said.terminated <> (workload.status = 'terminated')::int
        """
    )
    assert wrong == []
    # And no event of a workload that is not there.
    assert (
        whole.rows(
            """
        SELECT event, target_id FROM audit_auditevent
        WHERE target_type = 'vm' AND target_id NOT IN (SELECT id::text FROM compute_workload)
        """
        )
        == []
    )
    assert whole.rows("SELECT name FROM compute_workload GROUP BY name HAVING count(*) > 1") == []
    # Each announcement once, and once in the log.
    assert (
        whole.rows(
            """
        SELECT reservation_id, event, count(*) FROM reservations_announcement
        GROUP BY 1, 2, key HAVING count(*) > 1
        """
        )
        == []
    )
    assert (
        whole.rows(
            """
        SELECT told.reservation_id, told.event, told.times, said.times
        FROM (SELECT reservation_id, event, count(*) AS times
              FROM reservations_announcement GROUP BY 1, 2) told
        CROSS JOIN LATERAL (SELECT count(*) AS times FROM audit_auditevent log
            WHERE log.target_id = told.reservation_id::text AND log.event = told.event) said
        WHERE told.times <> said.times
        """
        )
        == []
    )
    checked = whole.manage("check_invariants")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def mark_of(log: str) -> str:
    """The name a tour gave to what it made."""
    return next(line for line in log.splitlines() if line.startswith("tour-"))


@pytest.mark.parametrize("number", range(ROUNDS))
def test_the_tour_completes_while_any_part_is_killed(whole: Whole, number: int, tmp_path: Path) -> None:
    seed = SEED + number
    print(f"CHAOS_SEED={seed}")
    random = Random(seed)

    # A first tour is itself killed somewhere, and leaves its things about, perhaps the hardware changed.
    log = tmp_path / "cut"
    tour = whole.tour(log)
    killed = harass(whole, tour, random, seconds=random.uniform(3, 8 if ROUNDS == 1 else 30), most=3)
    if tour.poll() is None:
        os.killpg(tour.pid, signal.SIGKILL)
    tour.wait()
    cut = log.read_text()
    print(cut)
    assert tour.returncode in (0, -signal.SIGKILL), cut

    # The second is harassed to its end, and has to reach it. Once in it the supervisor itself is killed.
    log = tmp_path / "tour"
    tour = whole.tour(log)
    whole.until("the tour begins", lambda: tour.poll() is not None or " 1. " in log.read_text())
    killed += harass(whole, tour, random, seconds=random.uniform(1, 6), most=2)
    whole.kill_supervisor()
    before, settings = whole.children(), whole.settings
    assert before, "the supervisor's children are to live on without it"
    whole.start()
    left = set(before.values()) & set(whole.children().values())
    assert not left, f"{left} of the killed run still live"
    for name in ("SECRET_KEY", "PORT"):
        assert whole.settings[name] == settings[name]
    killed += harass(whole, tour, random, seconds=TOUR_SECONDS, most=6)
    if tour.poll() is None:
        os.killpg(tour.pid, signal.SIGKILL)
    tour.wait()
    said = log.read_text()
    print(said, f"killed: {dict(killed)}", sep="\n")
    assert tour.returncode == 0, f"seed {seed}\n{said}\n{whole.terminal.read_text()}"
    assert sum(killed.values()) >= 5

    whole.until("all is well again", lambda: set(whole.children()) >= set(SUPERVISED) and whole.ready())
    whole.until(
        "every guest is confirmed gone",
        lambda: not whole.rows("SELECT id FROM compute_occupancy WHERE closed_at IS NULL"),
    )
    assert events_of(whole, mark_of(said)) == RESERVATION_EVENTS
    if "\ntour-" in cut:
        for event, times in events_of(whole, mark_of(cut)).items():
            assert times <= RESERVATION_EVENTS[event], f"{event} of the tour that was killed"
    assert_nothing_lost_or_doubled(whole)
