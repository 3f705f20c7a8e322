"""Plants each fault in a copy of the tree and looks whether the random histories find it.

    python -m tests.mutants [NAME …] [--examples 150] [--seconds 300] [--at-once 2]

Prints of each whether it was killed, after how long and by which history, and exits 1 when one survives or
no longer fits. Where the environment names no database or broker, all of them use the same of their own.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import urlsplit

from tests.mutants.seeded import MUTANTS, Mutant
from tests.support import services

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = (
    ".git",
    ".venv",
    "var",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
)
LINES_SHOWN = 40
STEPS = 6  # a history, after its opening
SHRINK_SECONDS = int(os.environ.get("HISTORIES_SHRINK_SECONDS", "30"))
SLOW_SECONDS = 60  # what takes longer wants an opening of its own


@dataclass(frozen=True)
class Outcome:
    """What became of one: `killed`, `survived` or `broken`; the end of what the histories said."""

    verdict: str
    seconds: float
    said: list[str]

    @property
    def killed(self) -> bool:
        return self.verdict == "killed"


@dataclass
class Lane:
    """Where one fault after another runs: what of the environment is its own, and whether its database has
    to be made anew.
    """

    own: dict[str, str]
    fresh: bool = True


@contextmanager
def lanes(count: int) -> Iterator[list[Lane]]:
    """So many lanes beside each other, on the services that the environment names or else on some that are
    started for all: making them anew for each fault takes as long as finding it.
    """
    if "DATABASE_URL" in os.environ and "REDIS_URL" in os.environ:
        yield [
            lane_at(number, os.environ["DATABASE_URL"], os.environ["REDIS_URL"]) for number in range(count)
        ]
        return
    with services.started() as (database_url, redis_url):
        database_url = os.environ.get("DATABASE_URL", f"{database_url.rpartition('/')[0]}/openrelay")
        redis_url = os.environ.get("REDIS_URL", redis_url)
        yield [lane_at(number, database_url, redis_url) for number in range(count)]


def lane_at(number: int, database_url: str, redis_url: str) -> Lane:
    """A lane with a database and keys of its own at those services."""
    path = f"{urlsplit(database_url).path}_mutant_{number}"
    return Lane(
        {
            "DATABASE_URL": urlsplit(database_url)._replace(path=path).geturl(),
            "REDIS_URL": redis_url,
            "REDIS_PREFIX": f"openrelay-mutant-{number}:",
        }
    )


@contextmanager
def planted(mutant: Mutant) -> Iterator[Path]:
    """A copy of the tree with the fault in it. Raises LookupError where it does not fit any more."""
    with tempfile.TemporaryDirectory(prefix="openrelay-mutant-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
        (tree / ".venv").symlink_to(ROOT / ".venv")
        for path, text, instead in mutant.edits:
            file = tree / path
            content = file.read_text()
            if content.count(text) != 1:
                raise LookupError(
                    f"{path} has {content.count(text)} times, and should once: {text.strip()!r}"
                )
            file.write_text(content.replace(text, instead))
        yield tree


def histories(tree: Path, lane: Lane, *, examples: int, seconds: int) -> Outcome:
    """Run the random histories in that tree."""
    env = {
        **os.environ,
        **lane.own,
        "HISTORIES": str(examples),
        "HISTORY_STEPS": str(STEPS),
        "HISTORIES_SHRINK_SECONDS": str(SHRINK_SECONDS),
        "PYTHONPATH": str(tree),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=short", "-p", "no:cacheprovider"]
    command += ["--create-db" if lane.fresh else "--reuse-db", "tests/histories"]
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=tree, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Outcome("survived", time.monotonic() - started, ["nothing was found in that time"])
    said = [line.removeprefix("E").strip() for line in out.splitlines() if line.startswith("E  ")]
    found = "Disagreement" in out or "Flaky" in out
    verdict = {0: "survived", 1: "killed" if found else "broken"}.get(process.returncode, "broken")
    shown = [line for line in said if not line.startswith(("Draw ", "state.step("))]
    return Outcome(verdict, time.monotonic() - started, shown or out.splitlines()[-LINES_SHOWN:])


def run(mutant: Mutant, free: SimpleQueue[Lane], *, examples: int, seconds: int) -> tuple[Mutant, Outcome]:
    """Plant a fault and let the histories look for it, in the first lane that is free."""
    lane = free.get()
    changes_schema = any("/migrations/" in path for path, _, _ in mutant.edits)
    lane.fresh = lane.fresh or changes_schema
    outcome = Outcome("broken", 0, [])
    try:
        with planted(mutant) as tree:
            outcome = histories(tree, lane, examples=examples, seconds=seconds)
    except LookupError as error:
        outcome = Outcome("broken", 0, [f"the fault does not fit any more: {error}"])
    finally:
        lane.fresh = changes_schema or not outcome.killed
        free.put(lane)
    return mutant, outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    known = {mutant.name: mutant for mutant in MUTANTS}
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(known)}")
    parser.add_argument("--examples", type=int, default=150, help="histories a fault (%(default)s)")
    parser.add_argument("--seconds", type=int, default=300, help="at most, a fault (%(default)s)")
    parser.add_argument("--at-once", type=int, default=2, help="faults at a time (%(default)s)")
    parser.add_argument("--quiet", action="store_true", help="the verdicts without the histories")
    options = parser.parse_args()
    if unknown := set(options.names) - known.keys():
        parser.error(f"there is no fault {', '.join(sorted(unknown))}")
    chosen = [known[name] for name in options.names] or list(MUTANTS)
    outcomes: dict[str, Outcome] = {}
    started = time.monotonic()
    count = max(1, min(options.at_once, len(chosen)))
    with lanes(count) as prepared, ThreadPoolExecutor(count) as pool:
        free: SimpleQueue[Lane] = SimpleQueue()
        for lane in prepared:
            free.put(lane)
        try:
            for found in as_completed(
                pool.submit(run, mutant, free, examples=options.examples, seconds=options.seconds)
                for mutant in chosen
            ):
                mutant, outcome = found.result()
                outcomes[mutant.name] = outcome
                tell(mutant, outcome, quiet=options.quiet)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return summary(outcomes, time.monotonic() - started)


def tell(mutant: Mutant, outcome: Outcome, *, quiet: bool) -> None:
    """Say what became of one, and unless it was killed and that is enough, by what."""
    print(f"{outcome.verdict:8} {mutant.name:26} {outcome.seconds:4.0f} s  {mutant.promise}", flush=True)
    if not (outcome.killed and quiet):
        for line in outcome.said[-LINES_SHOWN:]:
            print(f"           {line}", flush=True)


def summary(outcomes: Mapping[str, Outcome], seconds: float) -> int:
    """Say what became of all of them in that time; 1 unless each was killed."""
    left = [f"{name} {outcome.verdict}" for name, outcome in outcomes.items() if not outcome.killed]
    slow = [
        f"{name} {outcome.seconds:.0f} s"
        for name, outcome in outcomes.items()
        if outcome.seconds > SLOW_SECONDS
    ]
    print(f"{len(outcomes) - len(left)} of {len(outcomes)} killed in {seconds / 60:.1f} minutes")
    if slow:
        print(f"slow: {', '.join(slow)}")
    if left:
        print(f"left: {', '.join(left)}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
