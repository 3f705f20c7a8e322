"""Plants each fault in a copy of the tree and looks whether the random histories find it.

    python -m tests.mutants [NAME …] [--examples 120] [--seconds 240]

Prints of each whether it was killed, by which history, and exits 1 when one survives or no longer fits.
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

from tests.mutants.seeded import MUTANTS, Mutant

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
NOTHING = Mutant("nothing", "the histories find nothing where nothing is wrong", ())


@dataclass(frozen=True)
class Outcome:
    """What became of one: `killed`, `survived` or `broken`; the end of what the histories said."""

    verdict: str
    seconds: float
    said: list[str]


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
    left = []
    schema = True  # whether the database has to be made anew
    for mutant in chosen:
        changes_schema = any("/migrations/" in path for path, _, _ in mutant.edits)
        outcome = run(
            mutant,
            examples=options.examples,
            seconds=options.seconds,
            fresh=schema or changes_schema,
        )
        schema = changes_schema or outcome.verdict != "killed"
        print(f"{outcome.verdict:8} {mutant.name:26} {outcome.seconds:4.0f} s  {mutant.promise}", flush=True)
        if outcome.verdict != "killed":
            left.append(mutant.name)
        if outcome.verdict != "killed" or not options.quiet:
            for line in outcome.said[-LINES_SHOWN:]:
                print(f"           {line}", flush=True)
    killed = len(chosen) - len(left)
    print(f"{killed} of {len(chosen)} killed" + (f"; left: {', '.join(left)}" if left else ""))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
