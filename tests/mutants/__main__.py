"""Plants each fault in a copy of the tree and looks whether the random histories find it.

    python -m tests.mutants [NAME …] [--examples 120] [--seconds 240]

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
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


@contextmanager
def served() -> Iterator[None]:
    """Services for all of the runs, where the environment does not name them: making them anew takes as long
    as most faults do.
    """
    if "DATABASE_URL" in os.environ and "REDIS_URL" in os.environ:
        yield
        return
    with services.started() as (database_url, redis_url):
        own = {
            "DATABASE_URL": urlsplit(database_url)._replace(path="/openrelay").geturl(),
            "REDIS_URL": redis_url,
        }
        added = {name: url for name, url in own.items() if name not in os.environ}
        os.environ.update(added)
        try:
            yield
        finally:
            for name in added:
                del os.environ[name]


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


def histories(tree: Path, *, examples: int, seconds: int, fresh: bool) -> Outcome:
    """Run the random histories in that tree."""
    env = {
        **os.environ,
        "HISTORIES": str(examples),
        "HISTORY_STEPS": str(STEPS),
        "HISTORIES_SHRINK_SECONDS": str(SHRINK_SECONDS),
        "PYTHONPATH": str(tree),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=short", "-p", "no:cacheprovider"]
    command += ["--create-db" if fresh else "--reuse-db", "tests/histories"]
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


def run(mutant: Mutant, *, examples: int, seconds: int, fresh: bool) -> Outcome:
    """Plant a fault and let the histories look for it."""
    try:
        with planted(mutant) as tree:
            return histories(tree, examples=examples, seconds=seconds, fresh=fresh)
    except LookupError as error:
        return Outcome("broken", 0, [f"the fault does not fit any more: {error}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    known = {mutant.name: mutant for mutant in MUTANTS}
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(known)}")
    parser.add_argument("--examples", type=int, default=150, help="histories a fault (%(default)s)")
    parser.add_argument("--seconds", type=int, default=300, help="at most, a fault (%(default)s)")
    parser.add_argument("--quiet", action="store_true", help="the verdicts without the histories")
    options = parser.parse_args()
    if unknown := set(options.names) - known.keys():
        parser.error(f"there is no fault {', '.join(sorted(unknown))}")
    chosen = [known[name] for name in options.names] or list(MUTANTS)
    outcomes: dict[str, Outcome] = {}
    schema = True  # whether the database has to be made anew
    with served():
        for mutant in chosen:
            changes_schema = any("/migrations/" in path for path, _, _ in mutant.edits)
            outcome = run(
                mutant,
                examples=options.examples,
                seconds=options.seconds,
                fresh=schema or changes_schema,
            )
            schema = changes_schema or not outcome.killed
            outcomes[mutant.name] = outcome
            print(
                f"{outcome.verdict:8} {mutant.name:26} {outcome.seconds:4.0f} s  {mutant.promise}", flush=True
            )
            if not (outcome.killed and options.quiet):
                for line in outcome.said[-LINES_SHOWN:]:
                    print(f"           {line}", flush=True)
    return summary(outcomes)


def summary(outcomes: dict[str, Outcome]) -> int:
    """Say what became of all of them; 1 unless each was killed."""
    left = [f"{name} {outcome.verdict}" for name, outcome in outcomes.items() if not outcome.killed]
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    print(f"{len(outcomes) - len(left)} of {len(outcomes)} killed in {seconds / 60:.1f} minutes")
    slow = {name: found.seconds for name, found in outcomes.items() if found.seconds > SLOW_SECONDS}
    if slow:
        print(f"slow: {', '.join(f'{name} {seconds:.0f} s' for name, seconds in slow.items())}")
    if left:
        print(f"left: {', '.join(left)}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
