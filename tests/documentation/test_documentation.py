"""What the documentation says can be done: its links lead somewhere, and its commands work as pasted."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from nodes.models import Node, NodeHeartbeat
from openrelay.core.clock import Now
from openrelay.demo.sdk import folder
from reservations import fleet
from reservations.services.demo import seed
from tests.support.web import Server

ROOT: Path = settings.BASE_DIR
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
GLOSSARY = ROOT / "docs" / "glossary.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "docs/glossary.md"])
def test_a_module_that_a_guide_names_exists(name: str) -> None:
    modules = re.findall(
        r"`((?:openrelay|nodes|compute|reservations|tests)/[\w/.]+)`", (ROOT / name).read_text()
    )
    assert modules
    assert [module for module in modules if not (ROOT / module).exists()] == []


def test_a_term_is_defined_once_and_held_where_the_glossary_says() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+) \| `([\w/.]+)`(?:: `(\w+)`)? \|$", GLOSSARY.read_text(), re.M)
    terms = [row[0] for row in rows]
    assert len(rows) == GLOSSARY.read_text().count("\n| ") - 1, "a row is not read"
    assert terms == sorted(terms, key=str.lower)
    assert len(terms) == len(set(terms))
    absent = [(term, name) for term, _, path, name in rows if name not in (ROOT / path).read_text()]
    assert absent == []


def test_the_fleet_file_in_the_documentation_can_be_loaded() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "fleet-file.md").read_text(), re.S)
    none: dict[str, set[str]] = {"organizations": set(), "locations": set(), "gpu_models": set()}
    loaded, faults = fleet.parse(json.loads(example), known=none)
    assert faults == []
    assert len(loaded["nodes"]) == 1


def _walk(heading: str) -> str:
    """The commands below a heading of README, as one pastes them block after block."""
    section = (ROOT / "README.md").read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return "".join(re.findall(r"```sh\n(.*?)```", section, re.S))


@pytest.fixture
def folder_of_the_demo(server: Server, tmp_path: Path) -> Path:
    """A folder that looks to the walks as the checkout does while `make up` runs with a home elsewhere."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    seed(home, server.url)
    for node in Node.objects.all():
        NodeHeartbeat.objects.update_or_create(node=node, defaults={"seen_at": Now()})
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


SHELLS = {
    "bash": ["bash", "-eu", "-o", "pipefail", "-c"],
    # As interactive shells, which take no comments: the commands are typed, not read from a script.
    "zsh": ["zsh", "-f", "-i", "-e", "-u", "-o", "pipefail", "-c"],
}


def _paste(block: str, where: Path, shell: str = "bash") -> str:
    # Only the making of the environment is left out: the tests run in one.
    block = block.replace("make venv-sdk\n", "").replace(".venv/openrelay-sdk", str(folder().parent))
    done = subprocess.run(
        [*SHELLS[shell], block],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": os.environ["PATH"], "HOME": str(where), "OPENRELAY_HOME": str(where / "elsewhere")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("shell", SHELLS)
def test_the_walk_with_curl_works_as_pasted(folder_of_the_demo: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (apt install {shell})")
    said = _paste(_walk("Five minutes with curl"), folder_of_the_demo, shell)
    assert "INSUFFICIENT_GPU_CAPACITY" in said
    (going,) = json.loads(re.findall(r'"wouldTerminate":(\[.*?\])', said)[0])
    assert f'"terminated":["{going}"]' in said
    assert '"statusReason":"spot_reclaimed_by_capacity_owner"' in said
    assert '"event":"reservation.cancelled"' in said


def test_the_walk_with_the_client_works_as_pasted(folder_of_the_demo: Path) -> None:
    client = _walk("Five minutes with the client")
    said = _paste(client, folder_of_the_demo).splitlines()
    assert said[-5].startswith("0000:")
    assert said[-4].startswith("reserved ['0000:")
    assert said[-3].startswith("trainer deploying 2 ")
    assert said[-2:] == ["terminated", "cancelled"]
