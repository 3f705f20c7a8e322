"""The page on permissions has every permission, role, template and switch, as the code has them."""

import re

import pytest
from django.conf import settings

from openrelay.identity.permissions import (
    AREAS,
    BUILTIN_ROLES,
    KEY_TEMPLATES,
    SESSION_ONLY_ACTIONS,
    Area,
)
from openrelay.identity.services.organizations import SWITCHES

PAGE = (settings.BASE_DIR / "docs" / "permissions.md").read_text()


def rows() -> dict[str, list[str]]:
    """Each table's rows by their first cell, and what stands in backticks in the last."""
    found = {}
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            first, *_, last = line.strip("| ").split(" | ")
            found[first.strip("`")] = re.findall(r"`([^`]+)`", last)
    return found


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.id)
def test_each_level_with_what_it_adds(area: Area) -> None:
    for level in area.levels:
        assert rows()[f"{area.id}.{level.name}"] == list(level.adds)


def test_roles_and_templates_with_what_they_hold() -> None:
    for role in BUILTIN_ROLES.values():
        held = "everything" if role.everything else ", ".join(f"`{grant}`" for grant in role.grants)
        assert f"| `{role.id}` | {role.description} | {held} |" in PAGE
    for template in KEY_TEMPLATES.values():
        held = ", ".join(f"`{permission}`" for permission in template.permissions)
        assert f"| `{template.id}` | {template.description} | {held} |" in PAGE


def test_what_takes_a_person_and_what_operators_switch() -> None:
    for action in SESSION_ONLY_ACTIONS:
        assert f"`{action}`" in PAGE.partition("take a signed-in person")[2][:200]
    options = {f"--{name.removeprefix('is_').replace('_', '-')}" for name in SWITCHES}
    assert options == {row for row in rows() if row.startswith("--")}
